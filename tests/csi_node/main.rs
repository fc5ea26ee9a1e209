//! The node side of the CSI driver, over its socket and with the real kernel.
#![cfg(test)]

#[path = "../support/csi.rs"]
#[allow(dead_code, reason = "shared with other test programs")]
mod csi;
#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/s3.rs"]
mod s3;
#[path = "../support/mod.rs"]
mod support;

mod dynamic;
mod failing;
mod isolation;
mod keys;
mod life;
mod publishing;
mod restart;
mod sanity;
