//! Deleting data that nothing refers to any more, on every engine.

use std::sync::atomic::Ordering;

use jfs::meta::engine::Change;
use jfs::meta::engine::kv::memory::Fault;
use jfs::meta::record::CHUNK_SIZE;
use jfs::meta::{Caller, Ino, Options, Timestamp};
use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::on_every_engine;
use crate::support::data::{
    Blobs, assert_nothing_left, copy, fragile, fresh, in_two_hours, name, new_file, open_new, put,
    read_bytes, records, refused, remove, sizes, used_space, write, write_bytes,
};
use crate::support::volume::{Volume, setting};

on_every_engine! { super::setting();
    a_removed_file_leaves_nothing_behind,
    a_truncated_file_leaves_nothing_behind,
    a_slice_is_deleted_with_its_last_reference,
    a_removed_open_file_is_deleted_with_its_last_handle,
    a_removed_open_file_can_be_read_and_written,
    a_removed_open_file_is_deleted_when_the_session_ends,
    without_a_slice_store_unreferenced_slices_wait_for_the_job,
    a_client_that_deletes_nothing_leaves_unreferenced_slices_to_others,
    the_job_retries_objects_that_could_not_be_deleted,
    the_job_deletes_data_of_files_removed_an_hour_ago,
    data_of_a_file_that_exists_is_never_deleted,
}

async fn a_removed_file_leaves_nothing_behind(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let before = used_space(&meta).await;
    let ino = new_file(&meta, "f").await;
    write_bytes(&meta, &blobs, ino, 0, b"abc").await;
    write_bytes(&meta, &blobs, ino, 1 << 30, b"def").await;
    remove(&meta, "f").await;
    meta.idle().await;
    assert!(blobs.ids().is_empty());
    assert_eq!(records(&meta, ino, 0).await, []);
    assert_eq!(records(&meta, ino, 16).await, []);
    assert_nothing_left(&meta).await;
    assert_eq!(used_space(&meta).await, before);
}

async fn a_truncated_file_leaves_nothing_behind(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = new_file(&meta, "f").await;
    for index in [0, 1, 5, 12, 19] {
        write(&meta, ino, index * CHUNK_SIZE, 10).await;
    }
    meta.truncate(&Caller::root(), ino, 0).await.unwrap();
    remove(&meta, "f").await;
    meta.idle().await;
    assert_eq!(blobs.deleted().len(), 5);
    assert_nothing_left(&meta).await;
}

async fn a_slice_is_deleted_with_its_last_reference(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (a, b) = (new_file(&meta, "a").await, new_file(&meta, "b").await);
    write_bytes(&meta, &blobs, a, 0, b"abcdef").await;
    copy(&meta, (a, 0), (b, 0), 6).await.unwrap();
    remove(&meta, "a").await;
    meta.idle().await;
    assert_eq!(read_bytes(&meta, &blobs, b, 0, 6).await, b"abcdef");
    remove(&meta, "b").await;
    meta.idle().await;
    assert!(blobs.ids().is_empty());
    assert_eq!(blobs.deleted().len(), 1);
    assert_nothing_left(&meta).await;
}

async fn a_removed_open_file_is_deleted_with_its_last_handle(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = open_new(&meta, "f").await;
    meta.open_file(&Caller::root(), ino, OFlag::O_RDONLY).await.unwrap();
    write_bytes(&meta, &blobs, ino, 0, b"abc").await;
    remove(&meta, "f").await;
    let (sid, full) = (meta.context().sid(), used_space(&meta).await);
    assert_eq!(meta.engine().sustained(sid).await.unwrap(), [ino]);
    meta.close_file(ino).await.unwrap();
    meta.idle().await;
    assert_eq!(meta.getattr(ino).await.unwrap().nlink, 0, "one handle is left");
    meta.close_file(ino).await.unwrap();
    meta.idle().await;
    assert_eq!(refused(meta.getattr(ino).await), Errno::ENOENT);
    assert_eq!(meta.engine().sustained(sid).await.unwrap(), []);
    assert!(blobs.ids().is_empty());
    assert_nothing_left(&meta).await;
    assert_eq!(full - used_space(&meta).await, 4096);
}

async fn a_removed_open_file_can_be_read_and_written(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = open_new(&meta, "f").await;
    write_bytes(&meta, &blobs, ino, 0, b"abc").await;
    remove(&meta, "f").await;
    write_bytes(&meta, &blobs, ino, 2, b"de").await;
    assert_eq!(read_bytes(&meta, &blobs, ino, 0, 4).await, b"abde");
}

async fn a_removed_open_file_is_deleted_when_the_session_ends(vol: Volume) {
    let meta = vol.client().await;
    let ino = open_new(&meta, "f").await;
    write(&meta, ino, 0, 10).await;
    remove(&meta, "f").await;
    meta.close().await.unwrap();
    let other = vol.client().await;
    assert_eq!(refused(other.getattr(ino).await), Errno::ENOENT);
    let blobs = Blobs::serve(&other);
    assert_eq!(other.clean_deleted_files(in_two_hours()).await.unwrap(), 1);
    assert_eq!(blobs.deleted().len(), 1);
    assert_nothing_left(&other).await;
}

async fn without_a_slice_store_unreferenced_slices_wait_for_the_job(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let slice = write(&meta, ino, 0, 10).await;
    remove(&meta, "f").await;
    meta.idle().await;
    assert_eq!(meta.engine().dead_slices(10).await.unwrap(), sizes(&[slice]));
    assert_eq!(meta.clean_slices().await.unwrap(), 0);
    let blobs = Blobs::serve(&meta);
    assert_eq!(meta.clean_slices().await.unwrap(), 1);
    assert_eq!(blobs.deleted(), sizes(&[slice]));
    assert_nothing_left(&meta).await;
}

async fn a_client_that_deletes_nothing_leaves_unreferenced_slices_to_others(vol: Volume) {
    let meta = vol.client_with(Options { max_deletes: 0, ..Options::default() }).await;
    let blobs = Blobs::serve(&meta);
    let ino = new_file(&meta, "f").await;
    let slice = write(&meta, ino, 0, 10).await;
    remove(&meta, "f").await;
    meta.idle().await;
    assert_eq!(meta.clean_slices().await.unwrap(), 0);
    assert!(blobs.deleted().is_empty());
    let other = vol.client().await;
    let blobs = Blobs::serve(&other);
    assert_eq!(other.clean_slices().await.unwrap(), 1);
    assert_eq!(blobs.deleted(), sizes(&[slice]));
}

async fn the_job_retries_objects_that_could_not_be_deleted(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = new_file(&meta, "f").await;
    let slice = write(&meta, ino, 0, 10).await;
    blobs.broken.store(true, Ordering::Relaxed);
    remove(&meta, "f").await;
    meta.idle().await;
    assert_eq!(meta.engine().dead_slices(10).await.unwrap(), sizes(&[slice]));
    assert_eq!(meta.clean_slices().await.unwrap(), 0);
    blobs.broken.store(false, Ordering::Relaxed);
    assert_eq!(meta.clean_slices().await.unwrap(), 1);
    assert_nothing_left(&meta).await;
}

async fn the_job_deletes_data_of_files_removed_an_hour_ago(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = new_file(&meta, "f").await;
    write(&meta, ino, 0, 10).await;
    let length = 10;
    // The state that a client leaves if it dies right after the removal.
    let at = Timestamp::now().sec;
    let changes = [
        Change::RemoveEntry(Ino::ROOT, name("f")),
        Change::RemoveAttr(ino),
        Change::PutDeletedFile { ino, length, at },
    ];
    meta.engine().begin().commit(&changes).await.unwrap();
    assert_eq!(meta.clean_deleted_files(at + 3599).await.unwrap(), 0);
    assert_eq!(records(&meta, ino, 0).await.len(), 1);
    assert_eq!(meta.clean_deleted_files(at + 3600).await.unwrap(), 1);
    assert_eq!(records(&meta, ino, 0).await, []);
    assert_eq!(blobs.deleted().len(), 1);
    assert_nothing_left(&meta).await;
}

async fn data_of_a_file_that_exists_is_never_deleted(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = new_file(&meta, "f").await;
    let slice = write(&meta, ino, 0, 10).await;
    assert!(meta.delete_file_data(ino, 10).await.is_err());
    assert_eq!(records(&meta, ino, 0).await, [slice]);
    assert!(blobs.deleted().is_empty());
}

#[tokio::test]
async fn a_write_that_took_effect_is_not_repeated() {
    let (vol, store) = fragile().await;
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let slice = fresh(&meta, 10).await;
    store.faults().push(Fault::LostApplied);
    put(&meta, ino, 0, slice).await.unwrap();
    assert_eq!(records(&meta, ino, 0).await, [slice]);
    assert_eq!(meta.getattr(ino).await.unwrap().length, 10);
}

#[tokio::test]
async fn a_lost_write_is_repeated() {
    let (vol, store) = fragile().await;
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let slice = fresh(&meta, 10).await;
    store.faults().push(Fault::LostUnapplied);
    put(&meta, ino, 0, slice).await.unwrap();
    assert_eq!(records(&meta, ino, 0).await, [slice]);
}

#[tokio::test]
async fn the_job_finds_slices_of_a_lost_deletion() {
    let (vol, store) = fragile().await;
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = new_file(&meta, "f").await;
    write(&meta, ino, 0, 10).await;
    let changes = [
        Change::RemoveEntry(Ino::ROOT, name("f")),
        Change::RemoveAttr(ino),
        Change::PutDeletedFile { ino, length: 10, at: 1 },
    ];
    meta.engine().begin().commit(&changes).await.unwrap();
    store.faults().push(Fault::LostApplied);
    meta.delete_file_data(ino, 10).await.unwrap();
    assert!(blobs.deleted().is_empty(), "the lost reply said whether it is unreferenced");
    assert_eq!(meta.clean_slices().await.unwrap(), 1);
    assert_nothing_left(&meta).await;
}
