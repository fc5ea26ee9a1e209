//! Metadata operations, each behaviour once, on every engine.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod acl;
mod beside;
mod compaction;
mod content;
mod content_model;
mod contention;
mod garbage;
mod lost_answers;
mod model;
mod names;
mod quota;
mod reference;
mod resize;
mod room;
mod round_trips;
mod sessions;
mod stale;
mod tikv;
mod trees;
mod usage;
mod xattr;
