//! The CSI services: they validate requests and carry them out through `mounts` and `meta`.
//!
//! Knows Kubernetes and gRPC, and nothing of the kernel.

mod controller;
mod deadline;
mod keeper;
mod launcher;
mod mount_options;
mod node;
mod paths;
mod program;
pub mod proto;
pub mod records;
mod server;
mod settings;
mod status;
mod volume_locks;

pub use program::Program;
pub use settings::{Mode, Settings};
