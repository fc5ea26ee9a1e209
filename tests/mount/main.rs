//! The mount with the real kernel, by real system calls: what programs may rely on, on Redis and on
//! SQLite, beside the Go client and against failing servers.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/s3.rs"]
mod s3;

mod attributes;
mod content;
mod crash;
mod descriptors;
mod hanging;
mod kit;
mod limits;
mod listing;
mod locks;
mod mapped;
mod names;
mod opening;
mod options;
mod outage;
mod process;
mod removing;
mod together;
mod tools;
mod two_mounts;
mod xattrs;
