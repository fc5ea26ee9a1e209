//! Shared by tests that talk to real servers and to the real Go client.
#![allow(dead_code, reason = "each test program uses its own part of this")]

pub mod cgroup;
pub mod command;
pub mod connection;
pub mod data;
pub mod fixture;
pub mod juicefs;
pub mod mount;
pub mod no_shared_locks;
pub mod normalise;
pub mod records;
pub mod redis;
pub mod slow;
pub mod store;
pub mod tikv;
pub mod timeout;
pub mod tree;
pub mod volume;
