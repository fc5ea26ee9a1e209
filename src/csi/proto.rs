//! Messages and services, generated from `proto/`.

#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

/// The Container Storage Interface.
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// The kubelet's plugin registration.
pub mod registration {
    tonic::include_proto!("pluginregistration");
}
