//! The node side of the CSI driver, over its socket and with the real kernel.
#![cfg(test)]

#[path = "../support/csi.rs"]
#[allow(dead_code, reason = "shared with other test programs")]
mod csi;
#[path = "../support/csi_sanity.rs"]
mod csi_sanity;
#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/hostile.rs"]
mod hostile_server;
#[allow(dead_code, reason = "shared with other test programs")]
#[path = "../support/s3.rs"]
mod s3;
#[path = "../support/mod.rs"]
mod support;

/// The process: its sockets, its HTTP endpoints, and CSI conformance.
mod driver {
    mod http_and_virtual_files;
    pub mod process;
    mod registration;
    mod sanity;
}

/// What tenants can do to each other and to the node.
mod tenants {
    mod control_file;
    mod credentials;
    mod hostile_servers;
    mod isolation;
    mod limits;
    mod memory_load;
    mod policy;
}

/// Volumes, from their creation to their deletion.
mod volumes {
    mod conditions;
    mod dynamic_volumes;
    mod mount_propagation;
    mod publish;
    mod restart;
}
