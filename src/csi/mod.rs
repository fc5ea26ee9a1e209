//! The CSI services: what is asked for is checked, done by `mounts` or `meta`, and answered.
//!
//! Knows Kubernetes and gRPC, and nothing of the kernel.

pub mod proto;
