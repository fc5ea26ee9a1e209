//! Reading and writing of open files: metadata and data together, without a kernel.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod bucket;
mod changing;
mod cut;
mod failing;
mod handles;
mod listing;
mod memory;
mod model;
mod reading;
mod world;
mod writing;
