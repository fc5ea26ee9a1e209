//! Data: slices cut into blocks, blocks packed into objects, and the caches in front of them.
//!
//! Knows nothing of inodes, names, or where in a file a slice lies.

mod block;
mod bucket;
mod budget;
mod cache;
mod compress;
mod flight;
mod hot;
mod metrics;
mod options;
mod prefetch;
mod read;
mod rewrite;
mod staging;
mod store;
#[cfg(test)]
mod testing;
mod trail;
mod upload;
mod warm;

pub use block::{BlockKey, Layout};
pub use bucket::Stored;
pub use budget::{Budget, Reclaim, Reserved};
pub use cache::{Cache, CacheOptions, CacheOwner, CacheUsage, Checksum, Eviction, VolumeCache};
pub use compress::Compression;
pub use options::{Hours, Options, Verify, Writeback};
pub use rewrite::Fragment;
pub use store::{Parts, Store};
pub use upload::Upload;
pub use warm::Warmth;
