//! Mounts that survive the process that serves them: it is killed, replaced or restarted while programs
//! work, on a host under a keeper, and in the CSI driver.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/csi.rs"]
mod csi;
#[path = "../support/csi_sanity.rs"]
mod csi_sanity;

mod appender;
mod conformance;
mod driver;
mod interrupted;
mod kept_mount;
mod lost_writes;
mod names;
mod open_files;
mod writers;
