//! Third-party file system test suites, and programs that people run, on a mount.
//!
//! `JFS_TEST_LONG=1` runs all of them at full length.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod fsx;
mod pjdfstest;
mod programs;
mod suite;
