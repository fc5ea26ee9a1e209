//! The mount with the real kernel, by real system calls: what programs may rely on, on Redis and on
//! SQLite, beside the Go client and against failing servers.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod attributes;
mod content;
mod kit;
mod mapped;
mod names;
mod opening;
