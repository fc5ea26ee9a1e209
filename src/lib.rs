//! A JuiceFS-compatible file-system client: metadata, data path, FUSE and CSI in one library.
//!
//! Layers only depend downwards; `tests/layering.rs` checks it.

pub mod chunk;
pub mod cli;
mod crc32c;
pub mod csi;
mod descriptors;
pub mod error;
pub mod fuse;
pub mod log;
pub mod meta;
mod metric_families;
pub mod mounts;
pub mod object;
pub mod options;
mod outage;
mod pace;
pub mod page;
pub mod policy;
pub mod runtime;
pub mod scrape;
pub mod secret;
pub mod slice;
pub mod sync;
mod tls;
pub mod vfs;
pub mod volume;

pub use error::{Error, Result};
