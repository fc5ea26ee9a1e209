//! Suites that others wrote to test file systems, and programs that people run on them, on a mount.
//!
//! `JFS_TEST_LONG=1` runs all of them at full length.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod fsx;
mod pjdfstest;
mod programs;
mod suite;
