//! Metadata operations, each behaviour once, on every engine.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod acl;
mod contention;
mod model;
mod names;
mod quota;
mod reference;
mod round_trips;
mod sessions;
mod stale;
mod usage;
mod xattr;
