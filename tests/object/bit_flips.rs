//! Bits that flip in transit: the checksum of a whole object detects them, a range has none.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use jfs::chunk::{BlockKey, Budget, Compression, Layout, Options, Store, StoreConfig, Verify};
use jfs::object::{Spec, open};
use jfs::slice::{SliceId, SliceSize};

use crate::s3::{Fault, S3Server};

/// Bytes in the middle of a block.
const PART: Range<u32> = 70_000..74_096;

fn content(slice: u64, size: u32) -> Vec<u8> {
    (0..size).map(|at| (u64::from(at) * 31 + slice).to_le_bytes()[0]).collect()
}

/// Counts the wrong ranges of blocks of this size, if the first response for each has a flipped
/// bit.
async fn wrong_parts(block_size: u32, verify: Verify) -> usize {
    let server = S3Server::start();
    let objects = open(&Spec { retries: 3, ..server.spec("bucket") }).unwrap();
    let layout = Layout { block_size, hash_prefix: false };
    let store = Store::open(StoreConfig {
        objects: Arc::clone(&objects),
        layout,
        compression: Compression::None,
        cache: None,
        budget: Budget::new(64 << 20),
        options: Options { verify, prefetch: 0, ..Options::default() },
    });
    let mut wrong = 0;
    for id in 1..=10 {
        let slice = SliceId(id);
        let body = Bytes::from(content(id, block_size));
        let block = BlockKey { slice, index: 0, size: block_size };
        objects.put(&layout.key(block), body.clone(), 0).await.unwrap();
        server.fail([Fault::WrongByte]);
        let read = store.read(SliceSize { id: slice, size: block_size }, PART).await.unwrap();
        wrong += usize::from(read.concat() != body[PART.start as usize..PART.end as usize]);
    }
    wrong
}

#[tokio::test]
async fn with_all_reads_verified_no_flipped_bit_is_read() {
    assert_eq!(wrong_parts(2 << 20, Verify::All).await, 0);
}

#[tokio::test]
async fn small_blocks_are_verified_by_default() {
    assert_eq!(wrong_parts(256 << 10, Verify::default()).await, 0);
}

#[tokio::test]
async fn a_range_of_a_large_block_is_not_verified() {
    assert_eq!(wrong_parts(2 << 20, Verify::default()).await, 10);
    assert_eq!(wrong_parts(256 << 10, Verify::None).await, 10);
}
