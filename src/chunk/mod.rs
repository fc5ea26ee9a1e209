//! File data: slices are cut into blocks, blocks are stored as objects, and caches sit in front of
//! the bucket.
//!
//! Knows nothing of inodes, names, or the position of a slice in a file.

mod block;
mod bucket;
mod budget;
mod cache;
mod compaction;
mod compress;
mod download_queue;
mod metrics;
mod options;
mod read;
mod staging;
mod store;
#[cfg(test)]
mod testing;
mod upload;
mod warmup;

pub use block::{BlockKey, BlockRange, Layout, SliceRange};
pub use bucket::{Bucket, ObjectStatus};
pub use budget::{Budget, Reclaim, Reserved};
pub use cache::{Cache, CacheOptions, CacheOwner, CacheUsage, Checksum, Eviction, VolumeCache};
pub use compress::Compression;
pub use download_queue::Priority;
pub use options::{Hours, Options, Verify, Writeback};
pub use read::stream::ReadStream;
pub use store::{Store, StoreConfig};
pub use upload::Upload;
pub use warmup::CacheCoverage;
