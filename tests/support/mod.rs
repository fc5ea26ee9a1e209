//! What the tests share that talk to real servers and to the real Go client.
#![allow(dead_code, reason = "each test program uses its own part of this")]

pub mod aside;
pub mod cgroup;
pub mod command;
pub mod connection;
pub mod data;
pub mod juicefs;
pub mod mount;
pub mod normalise;
pub mod records;
pub mod redis;
pub mod rig;
pub mod slow;
pub mod store;
pub mod tikv;
pub mod timeout;
pub mod tree;
pub mod volume;
