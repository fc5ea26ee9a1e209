//! A JuiceFS-compatible file-system client: metadata, data path, FUSE and CSI in one library.
//!
//! Layers only depend downwards; `tests/layering.rs` checks it.

pub mod buffer_pool;
pub mod access;
pub mod chunk;
pub mod cli;
mod crc32c;
pub mod csi;
mod descriptors;
pub mod error;
mod figures;
pub mod fuse;
pub mod log;
pub mod meta;
pub mod metrics_http;
pub mod mounts;
pub mod object;
pub mod options;
mod outage;

pub mod policy;
mod rate_limit;
pub mod runtime;
pub mod secret;
pub mod slice;
pub mod sync;
mod tls;
pub mod vfs;
pub mod volume;

pub use error::{Error, Result};
