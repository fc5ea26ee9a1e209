//! Reading: what is fetched, what is not, and what happens if it is missing.

use std::sync::Arc;

use jfs::Error;
use jfs::meta::record::CHUNK_SIZE;
use jfs::object::ObjectStore;

use crate::faulty_bucket::FaultyBucket;
use crate::fixture::{BLOCK, Client, noise, read, until, within};
use crate::support::data::records;
use crate::support::volume::Volume;

async fn client(vol: &Volume) -> (Client, Arc<FaultyBucket>) {
    let bucket = Arc::new(FaultyBucket::default());
    (Client::new(vol, &bucket).await, bucket)
}

#[tokio::test]
async fn holes_cost_nothing() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    here.write(file.ino(), 3 * CHUNK_SIZE, b"end").await;
    here.flush(file.ino()).await;
    let pieces = within("read", file.read(CHUNK_SIZE, 1 << 20)).await.unwrap();
    assert_eq!(pieces.iter().map(bytes::Bytes::len).sum::<usize>(), 1 << 20);
    assert!(pieces.iter().all(|piece| piece.as_ptr() == pieces[0].as_ptr()), "one shared page");
    assert!(pieces[0].iter().all(|byte| *byte == 0));
    assert_eq!(bucket.gets(), Vec::<String>::new());
}

#[tokio::test]
async fn a_read_beside_dirty_data_stores_nothing() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    here.write(file.ino(), 0, b"stored").await;
    here.flush(file.ino()).await;
    bucket.hold("_5");
    here.write(file.ino(), 1000, b"dirty").await;
    assert_eq!(read(&file, 0, 6).await, b"stored");
    assert_eq!(read(&file, 990, 10).await, [0; 10], "up to the dirty bytes");
    assert_eq!(here.stored_length(file.ino()).await, 6);
    bucket.release();
    assert_eq!(read(&file, 998, 100).await, b"\0\0dirty");
}

#[tokio::test]
async fn a_read_of_a_later_chunk_commits_the_drafts_it_depends_on() {
    let vol = Volume::memory().await;
    let (here, _) = client(&vol).await;
    let file = here.create("f").await;
    here.write(file.ino(), CHUNK_SIZE - 10, &[5; 20]).await;
    here.write(file.ino(), 10, &[4; 10]).await;
    assert_eq!(read(&file, CHUNK_SIZE, 100).await, [5; 10]);
    assert_eq!(here.stored_length(file.ino()).await, CHUNK_SIZE + 10);
}

#[tokio::test]
async fn slices_that_another_client_has_compacted_are_looked_up_again() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let there = Client::new(&vol, &bucket).await;
    let file = here.create("f").await;
    let bytes = noise(300, 1);
    for (i, part) in (0..).zip(bytes.chunks(100)) {
        here.write(file.ino(), i * 100, part).await;
        here.flush(file.ino()).await;
    }
    let other = there.open(file.ino()).await;
    assert_eq!(read(&other, 0, 50).await, bytes[..50]);
    assert!(here.meta.compact(file.ino(), 0, true).await.unwrap());
    here.meta.idle().await;
    assert_eq!(records(&here.meta, file.ino(), 0).await.len(), 1);
    assert_eq!(read(&other, 90, 1000).await, bytes[90..]);
}

#[tokio::test]
async fn a_missing_block_is_reported_with_its_slice_and_its_file() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    here.write(file.ino(), 0, &[1; 3 * BLOCK as usize]).await;
    here.flush(file.ino()).await;
    let there = Client::new(&vol, &bucket).await;
    let key = bucket.keys().await[1].clone();
    bucket.delete(&key).await.unwrap();
    let other = there.open(file.ino()).await;
    let error = within("read", other.read(0, 500)).await.unwrap_err();
    let (text, slice) = (error.to_string(), records(&here.meta, file.ino(), 0).await[0].id);
    assert!(matches!(error, Error::Storage { .. }), "{text}");
    for named in [key, format!("slice {slice}"), format!("inode {}", file.ino())] {
        assert!(text.contains(&named), "{named}: {text}");
    }
}

#[tokio::test]
async fn data_in_memory_is_read_without_waiting() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    let bytes = noise(300, 5);
    here.write(file.ino(), 100, &bytes).await;
    assert!(file.read_now(90, 20).is_none(), "it is dirty");
    here.flush(file.ino()).await;
    let there = Client::new(&vol, &bucket).await;
    let other = there.open(file.ino()).await;
    assert!(other.read_now(90, 20).is_none(), "nothing is known of it");
    let read = read(&other, 0, 1000).await;
    let now = other.read_now(0, 1000).expect("it was just read");
    assert_eq!(now.concat(), read);
    assert_eq!(read, [&[0; 100], &bytes[..]].concat());
}

#[tokio::test]
async fn a_stream_is_fetched_ahead_and_random_reads_are_not() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    let bytes = noise(1000 * BLOCK as usize, 1);
    here.write(file.ino(), 0, &bytes).await;
    here.flush(file.ino()).await;
    let there = Client::new(&vol, &bucket).await;
    let other = there.open(file.ino()).await;
    let (at, block) = (50 * u64::from(BLOCK), BLOCK as usize);
    assert_eq!(read(&other, at, BLOCK).await, bytes[50 * block..51 * block]);
    assert_eq!(bucket.gets().len(), 1, "nobody knows yet what comes next");
    read(&other, at + u64::from(BLOCK), BLOCK).await;
    until("the block ahead", async || bucket.gets().iter().any(|k| k.contains("_52_"))).await;
}
