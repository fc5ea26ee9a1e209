//! Reading and writing open files: metadata and data together, without a kernel.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/s3.rs"]
mod s3;

mod cut_store;
mod failures;
mod faulty_bucket;
mod faulty_network;
mod fixture;
mod handles;
mod layers;
mod listing;
mod memory;
mod model;
mod readahead;
mod readdir_prefetch;
mod reading;
mod truncate;
mod writing;
