//! Dumps written by one client and loaded by the other, on every engine.
#![cfg(test)]

mod backups;
mod equal;
mod failures;
mod fixture;
mod hostile;
#[path = "../support/mod.rs"]
mod support;
