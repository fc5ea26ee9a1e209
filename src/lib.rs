//! A JuiceFS-compatible file-system client: metadata, data path, FUSE and CSI in one library.
//!
//! Modules depend only on modules further down in this list; `tests/layering` checks it. To read them
//! in order:
//!
//! - [`csi`]: the CSI services, controller and node
//! - [`cli`]: the subcommands of `jfs-mount`
//! - [`mounts`]: the PVs that a node has mounted
//! - [`access`]: a Secret, parsed: where a file system is and how to log in
//! - [`options`]: mount and format options, by the names of the Go client
//! - [`volume`]: one volume: metadata, data and mount together
//! - [`fuse`]: the FUSE protocol and its session with the kernel
//! - [`vfs`]: the file system of a mount: names, handles, reads and writes
//! - [`meta`]: metadata: operations, transactions, and the engines that store records
//! - [`chunk`]: data: slices, blocks, and their caches
//! - [`object`]: object stores: S3, files, memory
//! - `tls`: TLS for clients
//! - [`policy`]: what tenants may name
//! - [`runtime`]: threads, memory allocator, busy polling
//! - [`metrics_http`]: metrics over HTTP
//! - `outage`: log lines at the start and end of an outage
//! - [`buffer_pool`]: page-aligned buffers that are reused
//! - [`ledger`]: what the next process must know if this one dies
//! - [`log`]: the log of a program
//! - [`keeper`]: the process that holds descriptors of mounts while their server is replaced
//! - [`error`]: the error type and its errno
//! - [`secret`]: passwords and keys that no log shows
//! - [`mod@slice`]: slices, as both metadata and data name them
//! - [`sync`]: locks without poisoning
//! - `rate_limit`: limits on bytes per second
//! - `metric_families`: metrics that are read when they are collected
//! - `descriptors`: limits on file descriptors
//! - `crc32c`: the checksum of objects and cached blocks

pub mod access;
pub mod buffer_pool;
pub mod chunk;
pub mod cli;
mod crc32c;
pub mod csi;
mod descriptors;
pub mod error;
pub mod fuse;
pub mod keeper;
pub mod ledger;
pub mod log;
pub mod meta;
mod metric_families;
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
