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

mod apart;
mod control;
mod dynamic;
mod failing;
mod hostile;
mod isolation;
mod keys;
mod life;
mod limits;
mod load;
mod pages;
mod policy;
mod publishing;
mod registering;
mod restart;
mod sanity;
