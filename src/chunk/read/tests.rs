mod cached;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::join_all;

use super::*;
use crate::chunk::testing::{BLOCK, LAYOUT, TestBucket, body, content, slice, until, within};
use crate::chunk::{Compression, Options, StoreConfig};
use crate::object::ObjectStore;

fn store(bucket: &Arc<TestBucket>, blocks: usize) -> Arc<Store> {
    open(bucket, Budget::new(blocks * BLOCK as usize), Compression::None, Options::default())
}

fn open(
    bucket: &Arc<TestBucket>,
    budget: Arc<Budget>,
    compression: Compression,
    options: Options,
) -> Arc<Store> {
    let objects = bucket.clone();
    Store::open(StoreConfig { objects, layout: LAYOUT, compression, cache: None, budget, options })
}

fn key(slice: SliceSize, index: u32) -> String {
    LAYOUT.key(LAYOUT.block(slice, index))
}

#[tokio::test]
async fn any_range_reads_the_bytes_that_were_stored() {
    let one = slice(5, 3 * BLOCK + 100);
    let store = store(&TestBucket::with(one).await, 100);
    let all = content(one);
    for range in [0..1, 0..one.size, 7..BLOCK, BLOCK..BLOCK + 1, BLOCK - 1..3 * BLOCK + 50, 5..5] {
        let read = store.read(one, range.clone()).await.unwrap().concat();
        assert!(read == all[range.start as usize..range.end as usize], "{range:?}");
    }
    let past = store.read(one, 3 * BLOCK..4 * BLOCK).await.unwrap().concat();
    assert!(past == all[3 * BLOCK as usize..]);
}

#[tokio::test]
async fn slices_read_at_once_follow_each_other() {
    let (one, two) = (slice(5, 2 * BLOCK), slice(6, 100));
    let bucket = TestBucket::with(one).await;
    bucket.fill(two).await;
    let wanted = [(two, 10..20), (one, 0..2 * BLOCK), (two, 0..100)]
        .map(|(slice, range)| SliceRange { slice, range });
    let read = store(&bucket, 100).read_all(&wanted).await.unwrap().concat();
    assert!(read == [&content(two)[10..20], &content(one), &content(two)].concat());
}

#[tokio::test]
async fn sequential_small_reads_cost_one_get_per_block() {
    let one = slice(5, 2 * BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 100);
    let mut read = Vec::new();
    for start in (0..one.size).step_by(1 << 10) {
        read.extend(store.read(one, start..start + (1 << 10)).await.unwrap().concat());
    }
    assert!(read == content(one));
    assert_eq!(bucket.count(), (2, 0));
}

#[tokio::test]
async fn a_read_from_the_middle_gets_only_that_part() {
    let one = slice(5, BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 100);
    let read = store.read(one, 100..300).await.unwrap().concat();
    assert!(read == content(one)[100..300]);
    assert_eq!(bucket.count(), (0, 1));
}

#[tokio::test]
async fn a_stream_that_begins_in_the_middle_gets_the_whole_block_at_its_second_read() {
    let one = slice(5, BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 100);
    for start in (1000..5000).step_by(1000) {
        let read = store.read(one, start..start + 1000).await.unwrap().concat();
        assert!(read == content(one)[start as usize..][..1000]);
    }
    assert_eq!(bucket.count(), (1, 1));
}

#[tokio::test]
async fn compressed_blocks_are_read_whole() {
    let one = slice(5, 2 * BLOCK);
    let bucket = TestBucket::new();
    for block in LAYOUT.blocks(one) {
        let packed = Compression::Lz4.compress(body(block)).unwrap();
        bucket.mem.put(&LAYOUT.key(block), packed, 0).await.unwrap();
    }
    let budget = Budget::new(1 << 20);
    let store = open(&bucket, budget, Compression::Lz4, Options::default());
    let read = store.read(one, 100..300).await.unwrap().concat();
    assert!(read == content(one)[100..300]);
    assert_eq!(bucket.count(), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_of_a_block_cause_one_get() {
    let one = slice(5, BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 100);
    bucket.hold();
    let readers: Vec<_> = (0..64_u32)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.read(one, 0..BLOCK - n).await.unwrap().concat() })
        })
        .collect();
    until("a get", || bucket.count().0 == 1).await;
    bucket.release();
    for (n, reader) in readers.into_iter().enumerate() {
        assert!(within("a reader", reader).await.unwrap() == content(one)[..BLOCK as usize - n]);
    }
    assert_eq!(bucket.count(), (1, 0));
}

#[tokio::test]
async fn a_fetch_outlives_the_reader_that_started_it() {
    let one = slice(5, BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 100);
    bucket.hold();
    let starter = tokio::spawn({
        let store = store.clone();
        async move { store.read(one, 0..10).await }
    });
    until("a get", || bucket.count().0 == 1).await;
    starter.abort();
    assert!(starter.await.unwrap_err().is_cancelled());
    let second = tokio::spawn({
        let store = store.clone();
        async move { store.read(one, 0..10).await.unwrap().concat() }
    });
    tokio::task::yield_now().await;
    bucket.release();
    assert!(within("the second reader", second).await.unwrap() == content(one)[..10]);
    assert_eq!(bucket.count(), (1, 0));
}

#[tokio::test]
async fn an_error_reaches_all_waiters_and_is_not_kept() {
    let one = slice(5, BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 100);
    bucket.hold();
    bucket.fail(true);
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.read(one, 0..10).await })
        })
        .collect();
    until("a get", || bucket.count().0 == 1).await;
    // Gives the others a chance to join.
    tokio::task::yield_now().await;
    bucket.release();
    for reader in readers {
        let error = within("a reader", reader).await.unwrap().unwrap_err();
        assert!(
            matches!(&error, Error::Storage { key, .. } if *key == self::key(one, 0)),
            "{error}"
        );
    }
    assert_eq!(bucket.count(), (1, 0));
    bucket.fail(false);
    assert!(store.read(one, 0..10).await.unwrap().concat() == content(one)[..10]);
    assert_eq!(store.budget().used(), BLOCK as usize);
}

#[tokio::test]
async fn the_error_names_a_missing_block() {
    let bucket = TestBucket::new();
    let store = store(&bucket, 100);
    for range in [0..10, 5..10] {
        let error = store.read(slice(9, 10), range).await.unwrap_err();
        let Error::MissingBlock { place, key } = &error else { panic!("{error}") };
        assert_eq!((place.as_str(), key.as_str()), ("bucket://", "chunks/0/0/9_0_10"));
    }
    assert_eq!(store.budget().used(), 0);
}

#[tokio::test]
async fn a_block_of_another_length_is_an_error() {
    let one = slice(5, BLOCK);
    for (len, range) in [(BLOCK - 1, 0..10), (BLOCK + 1, 0..10), (100, 90..110)] {
        let bucket = TestBucket::new();
        bucket.mem.put(&key(one, 0), vec![1; len as usize].into(), 0).await.unwrap();
        let error = store(&bucket, 100).read(one, range).await.unwrap_err();
        assert!(
            matches!(&error, Error::Storage { key, .. } if *key == self::key(one, 0)),
            "{error}"
        );
    }
}

#[tokio::test]
async fn read_now_returns_only_bytes_in_memory() {
    let one = slice(5, 2 * BLOCK);
    let store = store(&TestBucket::with(one).await, 100);
    assert!(store.read_now(one, 0..10).is_none());
    store.read(one, 0..10).await.unwrap();
    assert!(store.read_now(one, 3..BLOCK).unwrap().concat() == content(one)[3..BLOCK as usize]);
    assert!(store.read_now(one, 3..BLOCK + 1).is_none());
}

#[tokio::test]
async fn returned_bytes_keep_their_memory_reserved() {
    let one = slice(5, BLOCK);
    let store = store(&TestBucket::with(one).await, 100);
    let pieces = store.read(one, 0..10).await.unwrap();
    store.remove(one).await.unwrap();
    assert_eq!(store.budget().used(), BLOCK as usize);
    drop(pieces);
    assert_eq!(store.budget().used(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_stay_within_a_small_budget() {
    let all: Vec<_> = (1..=64).map(|id| slice(id, 2 * BLOCK)).collect();
    let bucket = TestBucket::new();
    for one in &all {
        bucket.fill(*one).await;
    }
    let store = store(&bucket, 16);
    let readers = all.iter().map(|one| {
        let (one, store) = (*one, store.clone());
        tokio::spawn(async move {
            for _ in 0..5 {
                let pieces = store.read(one, 0..one.size).await.unwrap();
                assert!(pieces.concat() == content(one));
                // Held for a while, as by a reply that is being sent.
                tokio::task::yield_now().await;
            }
        })
    });
    for reader in within("all readers", join_all(readers)).await {
        reader.unwrap();
    }
    assert!(store.budget().peak() <= 16 * BLOCK as usize, "{}", store.budget().peak());
    assert!(store.budget().peak() > 8 * BLOCK as usize, "{}", store.budget().peak());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_more_blocks_than_fit_into_memory_reads_them_one_by_one() {
    let all: Vec<_> = (1..=20).map(|id| slice(id, BLOCK)).collect();
    let bucket = TestBucket::new();
    for one in &all {
        bucket.fill(*one).await;
    }
    let store = store(&bucket, 3);
    // From offset 0, so that the blocks are fetched whole.
    let wanted: Vec<_> = all.iter().map(|one| SliceRange { slice: *one, range: 0..100 }).collect();
    let expected: Vec<u8> = all.iter().flat_map(|one| content(*one)[..100].to_vec()).collect();
    let readers = (0..8).map(|_| {
        let (store, wanted, expected) = (store.clone(), wanted.clone(), expected.clone());
        tokio::spawn(async move {
            assert!(store.read_all(&wanted).await.unwrap().concat() == expected);
        })
    });
    for reader in within("all readers", join_all(readers)).await {
        reader.unwrap();
    }
    assert!(store.budget().peak() <= 3 * BLOCK as usize);
}

#[tokio::test]
async fn a_block_larger_than_the_budget_is_read() {
    let one = slice(5, BLOCK);
    let bucket = TestBucket::with(one).await;
    let budget = Budget::new(1 << 10);
    let store = open(&bucket, budget, Compression::None, Options::default());
    let read = within("the read", store.read(one, 0..BLOCK)).await.unwrap().concat();
    assert!(read == content(one));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_downloads_are_limited() {
    let one = slice(5, 20 * BLOCK);
    let bucket = TestBucket::with(one).await;
    let options = Options { max_downloads: 3, ..Options::default() };
    let store = open(&bucket, Budget::new(1 << 20), Compression::None, options);
    bucket.hold();
    let read = tokio::spawn(async move { store.read(one, 0..one.size).await.unwrap().concat() });
    until("the gets", || bucket.count().0 == 3).await;
    bucket.release();
    assert!(within("the read", read).await.unwrap() == content(one));
    assert_eq!(bucket.most_gets_at_once.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_prefetched_block_needs_no_other_get() {
    let one = slice(5, BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 100);
    let block = LAYOUT.block(one, 0);
    let stream = store.open_stream();
    assert!(store.prefetch(block, &stream));
    assert!(store.prefetch(block, &stream));
    until("the block", || store.read_now(one, 0..BLOCK).is_some()).await;
    assert!(store.prefetch(block, &stream));
    assert_eq!(bucket.count(), (1, 0));
}

#[tokio::test]
async fn prefetching_leaves_memory_for_waiting_readers() {
    let one = slice(5, 8 * BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 8);
    bucket.hold();
    let stream = store.open_stream();
    let started = LAYOUT.blocks(one).filter(|block| store.prefetch(*block, &stream)).count();
    assert_eq!(started, 4);
    let read = tokio::spawn({
        let store = store.clone();
        async move { store.read(one, 4 * BLOCK..8 * BLOCK).await.unwrap().concat() }
    });
    until("the gets", || bucket.count().0 == 8).await;
    bucket.release();
    assert!(within("the read", read).await.unwrap() == content(one)[4 * BLOCK as usize..]);
}

#[tokio::test]
async fn prefetching_does_not_evict_prefetched_blocks_that_were_not_read() {
    let one = slice(5, 8 * BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 8);
    let blocks: Vec<_> = LAYOUT.blocks(one).collect();
    let stream = store.open_stream();
    for block in &blocks[..4] {
        assert!(store.prefetch(*block, &stream));
        until("the block", || store.block_cache.contains(*block)).await;
    }
    assert!(!store.prefetch(blocks[4], &stream));
    assert!(store.read_now(one, 0..10).is_some());
    assert!(store.prefetch(blocks[4], &stream));
}

#[tokio::test]
async fn prefetching_takes_the_memory_of_blocks_that_were_read_to_their_end() {
    let one = slice(5, 40 * BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 8);
    let stream = store.open_stream();
    for block in LAYOUT.blocks(one) {
        assert!(store.prefetch(block, &stream), "block {}", block.index);
        let range = block.index * BLOCK..(block.index + 1) * BLOCK;
        until("the block", || store.read_now(one, range.clone()).is_some()).await;
    }
    assert!(store.budget().peak() <= 8 * BLOCK as usize);
}

#[tokio::test]
async fn prefetching_takes_the_memory_of_blocks_of_other_volumes_that_were_read() {
    let one = slice(5, 8 * BLOCK);
    let bucket = TestBucket::with(one).await;
    let all = Budget::new(8 * BLOCK as usize);
    let open = || open(&bucket, all.part(all.capacity()), Compression::None, Options::default());
    let (first, second) = (open(), open());
    let (ahead, other) = (first.open_stream(), second.open_stream());
    for block in LAYOUT.blocks(one).take(4) {
        assert!(first.prefetch(block, &ahead));
        let range = block.index * BLOCK..(block.index + 1) * BLOCK;
        until("the block", || first.read_now(one, range.clone()).is_some()).await;
    }
    bucket.hold();
    let started = LAYOUT.blocks(one).filter(|block| second.prefetch(*block, &other)).count();
    assert_eq!(started, 4, "half of the memory");
    bucket.release();
}

#[tokio::test]
async fn prefetching_takes_the_memory_of_blocks_for_streams_that_have_ended() {
    let one = slice(5, 8 * BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 8);
    let blocks: Vec<_> = LAYOUT.blocks(one).collect();
    let (ends, goes_on) = (store.open_stream(), store.open_stream());
    for block in &blocks[..4] {
        assert!(store.prefetch(*block, &ends));
        until("the block", || store.block_cache.contains(*block)).await;
    }
    assert!(!store.prefetch(blocks[4], &goes_on));
    drop(ends);
    assert!(store.prefetch(blocks[4], &goes_on));
}

#[tokio::test]
async fn a_thread_outside_the_runtime_may_prefetch() {
    let one = slice(5, BLOCK);
    let bucket = TestBucket::with(one).await;
    let store = store(&bucket, 8);
    let asked = store.clone();
    let stream = store.open_stream();
    std::thread::spawn(move || asked.prefetch(LAYOUT.block(one, 0), &stream)).join().unwrap();
    until("the block", || store.read_now(one, 0..BLOCK).is_some()).await;
}

/// Returns a store that downloads one block at a time, and whose bucket is held.
async fn one_download_at_a_time(one: SliceSize) -> (Arc<TestBucket>, Arc<Store>) {
    let bucket = TestBucket::with(one).await;
    let options = Options { max_downloads: 1, ..Options::default() };
    let store = open(&bucket, Budget::new(100 * BLOCK as usize), Compression::None, options);
    bucket.hold();
    (bucket, store)
}

#[tokio::test]
async fn a_reader_overtakes_what_is_fetched_ahead_and_promotes_what_it_waits_for() {
    let one = slice(5, 4 * BLOCK);
    let (bucket, store) = one_download_at_a_time(one).await;
    let stream = store.open_stream();
    for block in LAYOUT.blocks(one).take(3) {
        assert!(store.prefetch(block, &stream));
    }
    until("a get", || bucket.count().0 == 1).await;
    let read = |range: Range<u32>| {
        let store = store.clone();
        tokio::spawn(async move { store.read(one, range).await.unwrap().concat() })
    };
    let (joins, starts) = (read(2 * BLOCK..3 * BLOCK), read(3 * BLOCK..4 * BLOCK));
    let wanted = || store.single_flight.contains(LAYOUT.block(one, 3));
    until("the second reader", wanted).await;
    tokio::task::yield_now().await;
    bucket.release();
    within("the readers", async { (joins.await.unwrap(), starts.await.unwrap()) }).await;
    until("the last get", || bucket.count().0 == 4).await;
    let keys = bucket.keys_read.lock().clone();
    assert_eq!(keys.first(), Some(&key(one, 0)));
    assert_eq!(keys.last(), Some(&key(one, 1)), "{keys:?}");
}

#[tokio::test]
async fn the_end_of_a_stream_cancels_its_queued_fetches() {
    let one = slice(5, 4 * BLOCK);
    let (bucket, store) = one_download_at_a_time(one).await;
    let stream = store.open_stream();
    for block in LAYOUT.blocks(one) {
        assert!(store.prefetch(block, &stream));
    }
    until("a get", || bucket.count().0 == 1).await;
    let waits = tokio::spawn({
        let store = store.clone();
        async move { store.read(one, BLOCK..BLOCK + 10).await.unwrap().concat() }
    });
    tokio::task::yield_now().await;
    drop(stream);
    until("the rest", || !store.single_flight.contains(LAYOUT.block(one, 3))).await;
    bucket.release();
    let read = within("the reader", waits).await.unwrap();
    assert!(read == content(one)[BLOCK as usize..BLOCK as usize + 10]);
    assert_eq!(bucket.count(), (2, 0), "one was running, one was wanted");
    assert_eq!(store.budget().used(), 2 * BLOCK as usize);
}
