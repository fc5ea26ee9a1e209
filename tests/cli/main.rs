//! The program `jfs-mount`: options, start, output and exit status.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod background;
mod bench;
mod embedded;
mod fixture;
mod foreground;
mod metrics;
mod mount_helper;
mod options;
mod secrets;
mod umount;
