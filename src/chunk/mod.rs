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
mod options;
mod prefetch;
mod read;
mod store;
#[cfg(test)]
mod testing;
mod trail;
mod upload;

pub use block::{BlockKey, Layout};
pub use budget::{Budget, Reclaim, Reserved};
pub use cache::{Cache, CacheOptions, CacheUsage, Checksum, Eviction, VolumeCache};
pub use compress::Compression;
pub use options::Options;
pub use store::Store;
pub use upload::Upload;
