//! Data: slices cut into blocks, blocks packed into objects, and the caches in front of them.
//!
//! Knows nothing of inodes, names, or where in a file a slice lies.

mod block;
mod budget;
mod cache;
mod compress;
mod store;

pub use block::{BlockKey, Layout};
pub use budget::{Budget, Reserved};
pub use cache::{Cache, CacheOptions, CacheUsage, Checksum, Eviction, VolumeCache};
pub use compress::Compression;
pub use store::{Store, Upload};
