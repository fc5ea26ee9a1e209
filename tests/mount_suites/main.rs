//! Third-party file system test suites, and programs that people run, on a mount.
//!
//! `JFS_TEST_LONG=1` runs all of them at full length.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../survival/kept_mount.rs"]
mod kept_mount;

mod fsx;
mod pjdfstest;
mod programs;
mod suite;
