//! The CSI services: what is asked for is checked, done by `mounts` or `meta`, and answered.
//!
//! Knows Kubernetes and gRPC, and nothing of the kernel.

pub mod authority;
mod busy;
pub mod controller;
pub mod deadline;
pub mod gate;
mod identity;
mod kube;
mod listen;
mod node;
mod options;
mod pages;
mod pattern;
pub mod place;
mod program;
pub mod proto;
mod quantity;
pub mod records;
mod registration;
pub mod status;
mod stop;

pub use program::{Mode, Program, Settings};
