//! The FUSE session with the real kernel, over a file system in memory.
//!
//! Everything that could hang runs in a child process: a process that waits for its own reply could
//! not even be killed.
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
mod fixture;
mod handover;
mod interrupts;
mod listing;
mod locks;
mod memory_fs;
mod mount;
mod names;
mod notifications;
mod session_end;
