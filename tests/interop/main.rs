//! Compatibility with the Go client: it accepts what this client writes, both do the same, and both
//! work on one volume at the same time.
#![cfg(test)]

mod bucket;
mod cli;
mod content;
mod go_tools;
mod locks;
mod opened_by_other_client;
mod same_result;
mod script;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod test_volume;
mod tikv_create_race;
