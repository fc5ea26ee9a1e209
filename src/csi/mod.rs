//! The CSI services: what is asked for is checked, done by `mounts` or `meta`, and answered.
//!
//! Knows Kubernetes and gRPC, and nothing of the kernel.

// mod node;
pub mod proto;
mod quantity;
