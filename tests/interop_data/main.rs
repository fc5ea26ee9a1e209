//! File content through both clients: each reads what the other wrote, in volumes of every shape.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../support/s3.rs"]
#[allow(dead_code, reason = "shared with tests of the stores")]
mod s3;

mod both;
mod edits;
mod ours;
mod shape;
