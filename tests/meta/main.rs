//! Metadata operations, each behaviour once, on every engine.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod acl;
mod compaction;
mod concurrent_removal;
mod content;
mod content_model;
mod contention;
mod garbage;
mod lost_replies;
mod model;
mod names;
mod quota;
mod quota_requests;
mod reference;
mod resize;
mod round_trips;
mod sessions;
mod stale_cache;
mod tikv;
mod trees;
mod usage;
mod xattr;
