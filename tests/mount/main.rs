//! The mount with the real kernel, by real system calls: what programs can rely on, on Redis and on
//! SQLite, next to the Go client and with failing servers.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/s3.rs"]
mod s3;

mod attributes;
mod both_clients;
mod content;
mod crash;
mod descriptors;
mod fixture;
mod hanging_servers;
mod interrupted_removal;
mod limits;
mod listing;
mod locks;
mod mapped;
mod names;
mod open;
mod options;
mod our_tools;
mod outage;
mod process;
mod tools;
mod two_mounts;
mod xattrs;
