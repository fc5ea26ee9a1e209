//! File content: each client reads what the other wrote, in volumes of every format.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../support/s3.rs"]
#[allow(dead_code, reason = "shared with tests of the stores")]
mod s3;

mod both_clients;
mod edits;
mod our_client;
mod volume_format;
