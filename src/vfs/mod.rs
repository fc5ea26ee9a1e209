//! The file system of a mount, without the kernel: names, open files, the virtual files, and
//! content on its way between programs and the store.
//!
//! Knows inodes and chunks from `meta`, slices and blocks from `chunk`; knows nothing of FUSE.
//!
//! [`Vfs`] is what is asked. Below it, [`Content`] has a `File` for every inode that is open or
//! dirty. What is written becomes drafts there, slices in the making, which `carry` uploads and
//! commits. [`Reader`] reads what is committed, after bringing there what of the range is not.

mod ahead;
mod base;
mod buffer;
mod carry;
mod change;
mod content;
mod dir;
mod draft;
mod drain;
mod file;
mod files;
mod fragments;
mod handles;
mod holes;
mod identity;
pub mod internal;
mod io;
mod locks;
mod metrics;
mod names;
mod nodes;
mod notices;
mod options;
mod pending;
mod reader;
mod streams;
mod told;
mod unlocks;
mod xattrs;

pub use ahead::ListedNode;
pub use base::{Node, Vfs, VfsParts};
pub use content::{Content, ContentOptions};
pub use dir::Listed;
pub use files::{Closing, OpenedNode};
pub use handles::Fh;
pub use internal::{AccessLog, Internal, Virtual};
pub use io::Seek;
pub use metrics::OpMetrics;
pub use nodes::NodeChange;
pub use notices::{KernelCache, Notices};
pub use options::{Bandwidth, Squash, VfsOptions};
pub use reader::Reader;
