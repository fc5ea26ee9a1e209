//! Metadata operations, each behaviour once, on every engine.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod acl;
mod compaction;
mod concurrency;
mod content;
mod garbage;
mod models;
mod names;
mod resize;
mod round_trips;
mod sessions;
mod tikv;
mod trees;
mod usage;
mod xattr;
