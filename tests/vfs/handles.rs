//! Handles that another process opened, and closing handles.

use std::ops::RangeInclusive;
use std::sync::Arc;

use jfs::Error;
use jfs::meta::record::LockKind;
use jfs::meta::{Caller, Ino};
use jfs::vfs::{Fh, NodeChange, RangeLock, Vfs, VfsOptions};
use nix::fcntl::OFlag;

use crate::faulty_bucket::FaultyBucket;
use crate::fixture::{Client, within};
use crate::on_every_engine;
use crate::support::volume::{Volume, setting};

on_every_engine! { super::setting();
    a_handle_of_another_process_reads_and_writes_its_file,
    a_handle_never_replaces_that_of_another_file,
    a_directory_handle_of_another_process_is_listed,
    closing_a_handle_of_another_process_does_nothing,
    range_locks_are_released_when_their_owner_closes_any_handle,
    range_locks_of_an_open_file_are_released_with_it,
    flock_and_range_locks_are_independent,
    a_removed_file_stays_until_its_last_handle_is_released,
    a_temporary_file_has_no_name_and_leaves_nothing,
    opening_reports_that_the_kernel_may_have_an_outdated_length,
}

const ROOT: Ino = Ino::ROOT;
/// A handle number as an earlier process would have used it.
const OLD: Fh = Fh(12345);

async fn vfs(vol: &Volume) -> (Client, Arc<Vfs>) {
    let client = Client::new(vol, &Arc::new(FaultyBucket::default())).await;
    let vfs = client.vfs(VfsOptions::default());
    (client, vfs)
}

async fn file(vfs: &Vfs, name: &str, content: &[u8]) -> (Ino, Fh) {
    let made = vfs.create(&Caller::root(), ROOT, name.as_bytes(), 0o644, 0, true).await;
    let (node, opened) = made.unwrap();
    within("write", vfs.write(node.ino, opened.fh, OFlag::O_RDWR, 0, content)).await.unwrap();
    vfs.flush(node.ino, opened.fh, 1).await.unwrap();
    (node.ino, opened.fh)
}

fn lock(owner: u64, range: RangeInclusive<u64>) -> RangeLock {
    RangeLock { owner, pid: 10, kind: Some(LockKind::Write), range }
}

async fn read(vfs: &Vfs, ino: Ino, fh: Fh) -> Vec<u8> {
    within("read", vfs.read(ino, fh, OFlag::O_RDWR, 0, 1000)).await.unwrap().concat()
}

async fn release(vfs: &Vfs, ino: Ino, fh: Fh) {
    let closing = vfs.release(ino, fh, None);
    vfs.finish(ino, closing).await.unwrap();
}

async fn a_handle_of_another_process_reads_and_writes_its_file(vol: Volume) {
    let (_, vfs) = vfs(&vol).await;
    let (ino, fh) = file(&vfs, "f", b"content").await;
    release(&vfs, ino, fh).await;
    assert_eq!(read(&vfs, ino, OLD).await, b"content");
    vfs.write(ino, OLD, OFlag::O_RDWR, 7, b" more").await.unwrap();
    vfs.flush(ino, OLD, 1).await.unwrap();
    assert_eq!(read(&vfs, ino, OLD).await, b"content more");
    release(&vfs, ino, OLD).await;
    assert_eq!(vol.meta.getattr(ino).await.unwrap().length, 12);
}

async fn a_handle_never_replaces_that_of_another_file(vol: Volume) {
    let (_, vfs) = vfs(&vol).await;
    let (one, fh) = file(&vfs, "one", b"1").await;
    let (two, _) = file(&vfs, "two", b"22").await;
    let read_two = vfs.read(two, fh, OFlag::O_RDWR, 0, 1000).await;
    assert!(matches!(read_two, Err(Error::BadHandle)));
    assert_eq!(read(&vfs, one, fh).await, b"1");
}

async fn a_directory_handle_of_another_process_is_listed(vol: Volume) {
    let (_, vfs) = vfs(&vol).await;
    file(&vfs, "f", b"").await;
    let listed = vfs.list(ROOT, OLD, 0, |_| true).await.unwrap();
    assert!(listed.iter().any(|one| one.name == "f"));
    let (at, rest) = (listed[2].next, listed.len() - 3);
    vfs.close_dir(ROOT, OLD);
    // As after a restart in the middle of a listing.
    assert_eq!(vfs.list(ROOT, Fh(OLD.0 + 1), at, |_| true).await.unwrap().len(), rest);
}

async fn closing_a_handle_of_another_process_does_nothing(vol: Volume) {
    let (_, vfs) = vfs(&vol).await;
    let (ino, _) = file(&vfs, "f", b"content").await;
    assert!(vfs.release(ino, OLD, None).is_done());
    vfs.flush(ino, OLD, 5).await.unwrap();
}

async fn range_locks_are_released_when_their_owner_closes_any_handle(vol: Volume) {
    let (_, vfs) = vfs(&vol).await;
    let (ino, fh) = file(&vfs, "f", b"content").await;
    let other = vfs.open(&Caller::root(), ino, OFlag::O_RDONLY).await.unwrap().fh;
    vfs.lock_range(ino, fh, lock(1, 0..=9), false).await.unwrap();
    let held = vfs.find_lock(ino, 2, LockKind::Write, 0..=9).await.unwrap();
    assert_eq!(held.map(|it| (it.start, it.end, it.pid)), Some((0, 9, 10)));
    // The close of another owner changes nothing.
    vfs.flush(ino, other, 2).await.unwrap();
    assert!(vfs.find_lock(ino, 2, LockKind::Write, 0..=9).await.unwrap().is_some());
    assert!(vfs.flush_now(ino, other, 1).is_none());
    vfs.flush(ino, other, 1).await.unwrap();
    assert_eq!(vfs.find_lock(ino, 2, LockKind::Write, 0..=9).await.unwrap(), None);
}

async fn range_locks_of_an_open_file_are_released_with_it(vol: Volume) {
    let (_, vfs) = vfs(&vol).await;
    let (ino, fh) = file(&vfs, "f", b"content").await;
    vfs.lock_range(ino, fh, lock(77, 0..=9), false).await.unwrap();
    // A flush never names such an owner.
    vfs.flush(ino, fh, 1).await.unwrap();
    assert!(vfs.find_lock(ino, 2, LockKind::Read, 5..=5).await.unwrap().is_some());
    release(&vfs, ino, fh).await;
    assert_eq!(vfs.find_lock(ino, 2, LockKind::Read, 5..=5).await.unwrap(), None);
}

async fn flock_and_range_locks_are_independent(vol: Volume) {
    let (_, vfs) = vfs(&vol).await;
    let (ino, fh) = file(&vfs, "f", b"content").await;
    let write = Some(LockKind::Write);
    vfs.flock(ino, 1, write, false).await.unwrap();
    vfs.lock_range(ino, fh, lock(2, 0..=u64::MAX), false).await.unwrap();
    assert!(matches!(vfs.flock(ino, 3, write, false).await, Err(Error::WouldBlock)));
    let closing = vfs.release(ino, fh, Some(1));
    vfs.finish(ino, closing).await.unwrap();
    vfs.flock(ino, 3, write, false).await.unwrap();
}

async fn a_removed_file_stays_until_its_last_handle_is_released(vol: Volume) {
    let (client, vfs) = vfs(&vol).await;
    let (ino, fh) = file(&vfs, "f", b"content").await;
    client
        .meta
        .unlink_with(&Caller::root(), ROOT, &crate::support::data::name("f"), true)
        .await
        .unwrap();
    assert_eq!(read(&vfs, ino, fh).await, b"content");
    assert_eq!(vfs.getattr(ino).await.unwrap().nlink, 0);
    release(&vfs, ino, fh).await;
    assert!(matches!(vfs.getattr(ino).await, Err(Error::NotFound)));
}

async fn a_temporary_file_has_no_name_and_leaves_nothing(vol: Volume) {
    let (_, vfs) = vfs(&vol).await;
    let (node, opened) = vfs.tmpfile(&Caller::root(), ROOT, 0o600, 0).await.unwrap();
    assert_eq!(node.attr.nlink, 0);
    vfs.write(node.ino, opened.fh, OFlag::O_RDWR, 0, b"secret").await.unwrap();
    assert_eq!(read(&vfs, node.ino, opened.fh).await, b"secret");
    assert!(vol.meta.entries(ROOT, false).await.unwrap().is_empty());
    release(&vfs, node.ino, opened.fh).await;
    assert!(matches!(vfs.getattr(node.ino).await, Err(Error::NotFound)));
}

async fn opening_reports_that_the_kernel_may_have_an_outdated_length(vol: Volume) {
    let bucket = Arc::new(FaultyBucket::default());
    let here = Client::new(&vol, &bucket).await.vfs(VfsOptions::default());
    let there = Client::new(&vol, &bucket).await.vfs(VfsOptions::default());
    let (ino, fh) = file(&there, "f", b"one").await;
    let root = Caller::root();
    let node = here.lookup(&root, ROOT, b"f").await.unwrap();
    here.record_reply(&node);
    let same = here.open(&root, ino, OFlag::O_RDONLY).await.unwrap();
    assert!(!same.stale_attr);
    release(&here, ino, same.fh).await;
    there
        .setattr(&root, ino, NodeChange { length: Some(9), ..NodeChange::default() })
        .await
        .unwrap();
    release(&there, ino, fh).await;
    let changed = here.open(&root, ino, OFlag::O_RDONLY).await.unwrap();
    assert!(changed.stale_attr && !changed.keep_cache);
}
