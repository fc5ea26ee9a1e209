//! Reading and writing of open files: metadata and data together, without a kernel.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/s3.rs"]
mod s3;

mod ahead;
mod below;
mod bucket;
mod changing;
mod cut;
mod failing;
mod handles;
mod listing;
mod memory;
mod model;
mod reading;
mod wire;
mod world;
mod writing;
