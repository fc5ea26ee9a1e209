//! Writing: from a write to the store.

use std::sync::Arc;
use std::time::Duration;

use jfs::meta::record::CHUNK_SIZE;
use jfs::meta::{Ino, Timestamp};

use crate::faulty_bucket::FaultyBucket;
use crate::fixture::{BLOCK, Client, noise, read, until, within};
use crate::on_every_engine;
use crate::support::data::records;
use crate::support::volume::{Volume, setting};

on_every_engine! { super::setting();
    written_data_is_read_back_whether_it_is_stored_or_not,
    writes_in_sequence_become_one_slice_of_whole_blocks,
    of_overlapping_writes_the_last_shows,
    a_write_over_the_end_of_a_chunk_becomes_two_slices,
    a_second_client_sees_what_was_flushed,
}

async fn client(vol: &Volume) -> (Client, Arc<FaultyBucket>) {
    let bucket = Arc::new(FaultyBucket::default());
    (Client::new(vol, &bucket).await, bucket)
}

async fn written_data_is_read_back_whether_it_is_stored_or_not(vol: Volume) {
    let (here, _) = client(&vol).await;
    let file = here.create("f").await;
    let bytes = noise(1000, 1);
    here.write(file.ino(), 0, &bytes).await;
    assert_eq!(read(&file, 0, 2000).await, bytes);
    here.write(file.ino(), 1000, b"more").await;
    here.flush(file.ino()).await;
    assert_eq!(read(&file, 990, 100).await, [&bytes[990..], b"more"].concat());
    assert_eq!(read(&file, 1004, 100).await, b"");
    assert_eq!(read(&file, 5000, 100).await, b"");
}

async fn writes_in_sequence_become_one_slice_of_whole_blocks(vol: Volume) {
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    let bytes = noise(1000, 2);
    for (i, part) in (0..).zip(bytes.chunks(37)) {
        here.write(file.ino(), i * 37, part).await;
    }
    here.flush(file.ino()).await;
    let [record] = records(&here.meta, file.ino(), 0).await[..] else { panic!("one record") };
    assert_eq!((record.pos, record.size, record.off, record.len), (0, 1000, 0, 1000));
    assert_eq!(bucket.keys().await.len(), 1000_usize.div_ceil(BLOCK as usize));
    assert_eq!(read(&file, 0, 1000).await, bytes);
}

async fn of_overlapping_writes_the_last_shows(vol: Volume) {
    let (here, _) = client(&vol).await;
    let file = here.create("f").await;
    here.write(file.ino(), 0, &[b'a'; 50]).await;
    here.write(file.ino(), 10, &[b'b'; 20]).await;
    here.write(file.ino(), 200, &[b'c'; 50]).await;
    // After the first one, and over the newer one: it must not join the older slice.
    here.write(file.ino(), 50, &[b'd'; 180]).await;
    here.write(file.ino(), 40, &[b'e'; 5]).await;
    here.flush(file.ino()).await;
    let parts: [(u8, usize); 7] =
        [(b'a', 10), (b'b', 20), (b'a', 10), (b'e', 5), (b'a', 5), (b'd', 180), (b'c', 20)];
    let expected: Vec<u8> = parts.iter().flat_map(|(byte, len)| vec![*byte; *len]).collect();
    assert_eq!(read(&file, 0, 1000).await, expected);
}

async fn a_write_over_the_end_of_a_chunk_becomes_two_slices(vol: Volume) {
    let (here, _) = client(&vol).await;
    let file = here.create("f").await;
    let bytes = noise(300, 3);
    here.write(file.ino(), CHUNK_SIZE - 100, &bytes).await;
    here.flush(file.ino()).await;
    let lens = async |index| records(&here.meta, file.ino(), index).await[0].len;
    assert_eq!((lens(0).await, lens(1).await), (100, 200));
    assert_eq!(read(&file, CHUNK_SIZE - 100, 500).await, bytes);
    assert_eq!(read(&file, CHUNK_SIZE - 200, 100).await, [0; 100], "a hole in front");
    assert_eq!(here.stored_length(file.ino()).await, CHUNK_SIZE + 200);
}

async fn a_second_client_sees_what_was_flushed(vol: Volume) {
    let (here, bucket) = client(&vol).await;
    let there = Client::new(&vol, &bucket).await;
    let file = here.create("f").await;
    let bytes = noise(5000, 4);
    here.write(file.ino(), 7, &bytes).await;
    here.flush(file.ino()).await;
    let other = there.open(file.ino()).await;
    assert_eq!(read(&other, 0, 10_000).await, [&[0; 7], &bytes[..]].concat());
}

#[tokio::test]
async fn a_full_block_is_uploaded_before_a_flush() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    here.write(file.ino(), 0, &[1; BLOCK as usize + 5]).await;
    until("upload", async || bucket.keys().await.len() == 1).await;
    assert_eq!(here.stored_length(file.ino()).await, 0, "nothing is committed");
    assert_eq!(here.content.length(file.ino()), Some(u64::from(BLOCK) + 5));
}

#[tokio::test(start_paused = true)]
async fn idle_data_is_committed_after_a_second_without_a_flush() {
    let vol = Volume::memory().await;
    let (here, _) = client(&vol).await;
    let file = here.create("f").await;
    here.write(file.ino(), 0, b"some").await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(here.stored_length(file.ino()).await, 0);
    tokio::time::sleep(Duration::from_millis(400)).await;
    until("commit", async || here.stored_length(file.ino()).await == 4).await;
}

#[tokio::test(start_paused = true)]
async fn constantly_written_data_is_committed_after_five_seconds() {
    let vol = Volume::memory().await;
    let (here, _) = client(&vol).await;
    let file = here.create("f").await;
    for at in 0..48 {
        here.write(file.ino(), at, b"x").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(here.stored_length(file.ino()).await, 0);
    tokio::time::sleep(Duration::from_millis(400)).await;
    until("commit", async || here.stored_length(file.ino()).await == 48).await;
}

#[tokio::test]
async fn the_file_never_ends_after_data_that_is_not_stored() {
    let vol = Volume::memory().await;
    let (here, bucket) = client(&vol).await;
    let file = here.create("f").await;
    bucket.hold("_50");
    here.write(file.ino(), CHUNK_SIZE - 50, &[1; 50 + 40]).await;
    let flush = tokio::spawn({
        let (content, ino) = (here.content.clone(), file.ino());
        async move { content.flush(ino).await }
    });
    until("second chunk", async || bucket.keys().await.iter().any(|key| key.ends_with("_40")))
        .await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(here.stored_length(file.ino()).await, 0);
    bucket.release();
    within("flush", flush).await.unwrap().unwrap();
    assert_eq!(here.stored_length(file.ino()).await, CHUNK_SIZE + 40);
}

#[tokio::test]
async fn the_mtime_is_that_of_the_last_write() {
    let vol = Volume::memory().await;
    let (here, _) = client(&vol).await;
    let file = here.create("f").await;
    let before = Timestamp::now();
    here.write(file.ino(), 0, b"x").await;
    let after = Timestamp::now();
    let unflushed = here.content.attr(file.ino()).await.unwrap();
    here.flush(file.ino()).await;
    let stored = here.meta.getattr(file.ino()).await.unwrap();
    assert!(before <= stored.mtime && stored.mtime <= after);
    assert_eq!((unflushed.mtime, unflushed.length), (stored.mtime, 1), "as seen before the flush");
}

#[tokio::test]
async fn random_writes_do_not_create_too_many_drafts() {
    let vol = Volume::memory().await;
    let (here, _) = client(&vol).await;
    let file = here.create("f").await;
    for i in (0..3000_u64).rev() {
        here.write(file.ino(), i * 200, &i.to_le_bytes()).await;
    }
    here.flush(file.ino()).await;
    for i in (0..3000_u64).step_by(97) {
        assert_eq!(read(&file, i * 200, 8).await, i.to_le_bytes());
    }
}

#[tokio::test]
async fn closing_stores_the_data_of_every_file() {
    let vol = Volume::memory().await;
    let (here, _) = client(&vol).await;
    let mut inodes: Vec<Ino> = Vec::new();
    for at in ["a", "b", "c"] {
        let file = here.create(at).await;
        here.write(file.ino(), 0, at.as_bytes()).await;
        inodes.push(file.ino());
    }
    within("close", here.content.close()).await.unwrap();
    for ino in inodes {
        assert_eq!(here.stored_length(ino).await, 1);
        assert_eq!(here.content.length(ino), None, "nothing is held of it any more");
    }
}

#[tokio::test]
async fn a_write_that_fits_into_memory_does_not_wait() {
    let vol = Volume::memory().await;
    let (here, _) = client(&vol).await;
    let file = here.create("f").await;
    assert_eq!(here.content.write_now(file.ino(), 3, b"now").unwrap(), 3);
    assert_eq!(here.content.write_now(Ino(999), 0, b"x").unwrap(), 0, "nobody has it open");
    assert_eq!(read(&file, 0, 10).await, b"\0\0\0now");
}
