//! The kernel side of FUSE with the real kernel, over a file system in memory.
//!
//! Whatever could hang hangs in a child process: one that waits for an answer of its own process
//! could not even be killed.
#![cfg(test)]

#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/command.rs"]
mod command;
#[allow(dead_code, reason = "each test program uses its own part of this")]
#[path = "../support/connection.rs"]
mod connection;
#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/timeout.rs"]
mod timeout;

mod content;
mod handover;
mod interrupts;
mod life;
mod listing;
mod locks;
mod mounting;
mod names;
mod notifications;
mod rig;
mod synth;
