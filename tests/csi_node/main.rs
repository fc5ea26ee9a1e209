//! The node side of the CSI driver, over its socket and with the real kernel.
#![cfg(test)]

#[path = "../support/csi.rs"]
#[allow(dead_code, reason = "shared with other test programs")]
mod csi;
#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/hostile.rs"]
mod hostile_server;
#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/s3.rs"]
mod s3;
#[path = "../support/mod.rs"]
mod support;

mod conditions;
mod control_file;
mod credentials;
mod driver_process;
mod dynamic_volumes;
mod hostile_servers;
mod http_and_virtual_files;
mod isolation;
mod limits;
mod memory_load;
mod mount_propagation;
mod policy;
mod publish;
mod registration;
mod restart;
mod sanity;
