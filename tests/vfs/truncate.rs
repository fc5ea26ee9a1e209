//! Changes other than writes, with dirty data.

use std::sync::Arc;

use jfs::meta::record::CHUNK_SIZE;
use jfs::meta::{AttrSet, Caller, TimeSet, Timestamp};
use nix::fcntl::FallocateFlags;

use crate::faulty_bucket::FaultyBucket;
use crate::fixture::{Client, noise, read};
use crate::support::volume::Volume;

async fn client() -> (Volume, Client) {
    let vol = Volume::memory().await;
    let here = Client::new(&vol, &Arc::new(FaultyBucket::default())).await;
    (vol, here)
}

#[tokio::test]
async fn truncated_data_reads_as_zeros_when_the_file_grows_again() {
    let (_vol, here) = client().await;
    let file = here.create("f").await;
    let (ino, root) = (file.ino(), Caller::root());
    let bytes = noise(300, 1);
    here.write(ino, 0, &bytes).await;
    let attr = here.content.truncate(&root, ino, 100, true).await.unwrap();
    assert_eq!((attr.length, here.content.length(ino)), (100, Some(100)));
    assert_eq!(read(&file, 0, 1000).await, bytes[..100]);
    here.write(ino, 200, b"end").await;
    assert_eq!(read(&file, 0, 1000).await, [&bytes[..100], &[0; 100], b"end"].concat());
    here.content.truncate(&root, ino, CHUNK_SIZE + 5, false).await.unwrap();
    assert_eq!(here.content.length(ino), Some(CHUNK_SIZE + 5));
    assert_eq!(read(&file, CHUNK_SIZE, 100).await, [0; 5]);
}

#[tokio::test]
async fn a_hole_is_punched_into_dirty_data() {
    let (_vol, here) = client().await;
    let file = here.create("f").await;
    let mode = FallocateFlags::FALLOC_FL_KEEP_SIZE | FallocateFlags::FALLOC_FL_PUNCH_HOLE;
    here.write(file.ino(), 0, &[9; 100]).await;
    here.content.fallocate(&Caller::root(), file.ino(), mode, 10, 20).await.unwrap();
    here.write(file.ino(), 15, &[8; 5]).await;
    let expected = [&[9; 10][..], &[0; 5], &[8; 5], &[0; 10], &[9; 70]].concat();
    assert_eq!(read(&file, 0, 1000).await, expected);
}

#[tokio::test]
async fn a_copy_includes_dirty_data_and_overwrites_dirty_data() {
    let (_vol, here) = client().await;
    let (from, to) = (here.create("from").await, here.create("to").await);
    let bytes = noise(500, 2);
    here.write(from.ino(), 0, &bytes).await;
    here.write(to.ino(), 0, &[7; 200]).await;
    let copied = here.content.copy_range((from.ino(), 100), (to.ino(), 50), 1000).await.unwrap();
    assert_eq!((copied.bytes, here.content.length(to.ino())), (400, Some(450)));
    assert_eq!(read(&to, 0, 1000).await, [&[7; 50], &bytes[100..]].concat());
}

#[tokio::test]
async fn a_time_set_after_a_write_stays() {
    let (_vol, here) = client().await;
    let file = here.create("f").await;
    let past = Timestamp::from_secs(1_000_000);
    here.write(file.ino(), 0, b"x").await;
    let set = AttrSet { mtime: Some(TimeSet::At(past)), ..AttrSet::default() };
    let attr = here.content.setattr(&Caller::root(), file.ino(), set).await.unwrap();
    assert_eq!((attr.mtime, attr.length), (past, 1));
    here.flush(file.ino()).await;
    assert_eq!(here.meta.getattr(file.ino()).await.unwrap().mtime, past);
    here.write(file.ino(), 0, b"y").await;
    here.flush(file.ino()).await;
    assert!(here.meta.getattr(file.ino()).await.unwrap().mtime > past, "a later write counts");
}

#[tokio::test]
async fn an_attr_includes_changes_of_other_clients_and_dirty_data() {
    let (vol, here) = client().await;
    let there = vol.client().await;
    let file = here.create("f").await;
    there.truncate(&Caller::root(), file.ino(), 77).await.unwrap();
    assert_eq!(here.content.attr(file.ino()).await.unwrap().length, 77);
    assert_eq!(read(&file, 70, 100).await, [0; 7]);
    here.write(file.ino(), 100, b"x").await;
    assert_eq!(here.content.attr(file.ino()).await.unwrap().length, 101);
}
