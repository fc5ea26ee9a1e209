//! `fsck` and `gc`, beside the Go client's: both find the same in volumes that both have written and
//! that are damaged on purpose, and each accepts what the other has repaired.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod concurrent;
mod damage;
mod fsck_directories;
mod fsck_objects;
mod gc;
mod killed;
mod numbers;
mod scene;
