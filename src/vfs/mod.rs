//! Open files: what is written and not stored yet, and how content is read back.
//!
//! Knows inodes and chunks from `meta`, slices and blocks from `chunk`; knows nothing of FUSE, of
//! names, or of who asks.
//!
//! [`Content`] has a `File` for every inode that is open or dirty. What is written becomes
//! drafts there, slices in the making, which `carry` uploads and commits. [`Reader`]
//! reads what is committed, after bringing there what of the range is not.

mod buffer;
mod carry;
mod change;
mod content;
mod draft;
mod drain;
mod file;
mod fragments;
pub mod internal;
mod metrics;
mod notices;
mod options;
mod pending;
mod reader;
mod streams;

pub use content::{Content, ContentOptions};
pub use internal::{AccessLog, Internal, Virtual};
pub use metrics::OpMetrics;
pub use notices::{KernelCache, Notices};
pub use options::{Squash, VfsOptions};
pub use reader::Reader;
