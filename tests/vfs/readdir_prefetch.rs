//! Listings with attributes, whose next page is prefetched: which attributes may be reported.

use std::sync::Arc;
use std::time::Duration;

use jfs::meta::record::FileKind;
use jfs::meta::{AttrSet, Caller, Ino, NodeKind};
use jfs::vfs::{Fh, ListedNode, NodeChange, Vfs, VfsOptions};
use nix::fcntl::OFlag;

use crate::faulty_bucket::FaultyBucket;
use crate::fixture::{Client, within};
use crate::on_every_engine;
use crate::support::volume::{Volume, setting};

on_every_engine! { super::setting();
    prefetched_attrs_are_reported_with_their_age,
    own_changes_invalidate_prefetched_attrs,
    open_files_are_listed_with_dirty_data,
    changes_by_another_client_are_seen_after_a_rewind,
    a_removed_entry_is_only_a_name,
    without_a_lifetime_nothing_is_prefetched,
}

const FILES: usize = 30;
const PAGE: usize = 8;
/// Longer than any test.
const LONG: Duration = Duration::from_hours(1);
/// Gives a prefetch time to complete. Tests pass whether it does or not.
const MOMENT: Duration = Duration::from_millis(30);

async fn vfs(vol: &Volume, attr_lifetime: Duration) -> Arc<Vfs> {
    let client = Client::new(vol, &Arc::new(FaultyBucket::default())).await;
    client.vfs(VfsOptions { attr_lifetime, ..VfsOptions::default() })
}

async fn dir(vfs: &Vfs) -> Ino {
    let root = Caller::root();
    let dir = vfs.mkdir(&root, Ino::ROOT, b"dir", 0o755, 0).await.unwrap().ino;
    for n in 0..FILES {
        let name = format!("file-{n:05}");
        let kind = NodeKind { kind: FileKind::File, rdev: 0 };
        vfs.mknod(&root, dir, name.as_bytes(), kind, 0o644, 0).await.unwrap();
    }
    dir
}

async fn page(vfs: &Arc<Vfs>, dir: Ino, fh: Fh, offset: u64) -> Vec<ListedNode> {
    let mut left = PAGE;
    let fits = move |_: &[u8]| {
        let fits = left > 0;
        left = left.saturating_sub(1);
        fits
    };
    within("list", vfs.list_nodes(dir, fh, offset, fits)).await.unwrap()
}

fn behind(page: &[ListedNode]) -> u64 {
    page.last().map_or(0, |node| node.listed.next)
}

/// Lists everything from an offset on.
async fn rest(vfs: &Arc<Vfs>, dir: Ino, fh: Fh, mut offset: u64) -> Vec<ListedNode> {
    let mut all = Vec::new();
    loop {
        let page = page(vfs, dir, fh, offset).await;
        if page.is_empty() {
            return all;
        }
        offset = behind(&page);
        all.extend(page);
    }
}

async fn chmod(vfs: &Vfs, ino: Ino, mode: u16) {
    let set = AttrSet { mode: Some(mode), ..AttrSet::default() };
    let change = NodeChange { set, ..NodeChange::default() };
    vfs.setattr(&Caller::root(), ino, change).await.unwrap();
}

fn modes(nodes: &[ListedNode]) -> Vec<u16> {
    nodes.iter().filter_map(|node| node.attr.as_ref()).map(|attr| attr.mode).collect()
}

async fn prefetched_attrs_are_reported_with_their_age(vol: Volume) {
    let vfs = vfs(&vol, LONG).await;
    let dir = dir(&vfs).await;
    let fh = vfs.open_dir(dir).unwrap();
    let first = page(&vfs, dir, fh, 0).await;
    assert!(first.iter().all(|node| node.age.is_zero()), "{first:?}");
    tokio::time::sleep(MOMENT).await;
    let second = page(&vfs, dir, fh, behind(&first)).await;
    assert_eq!(second.len(), PAGE);
    assert!(second.iter().all(|node| node.attr.is_some() && !node.age.is_zero()), "{second:?}");
    assert_eq!(first.len() + second.len() + rest(&vfs, dir, fh, behind(&second)).await.len(), 32);
}

async fn own_changes_invalidate_prefetched_attrs(vol: Volume) {
    let vfs = vfs(&vol, LONG).await;
    let dir = dir(&vfs).await;
    let all = rest(&vfs, dir, vfs.open_dir(dir).unwrap(), 0).await;
    let fh = vfs.open_dir(dir).unwrap();
    let first = page(&vfs, dir, fh, 0).await;
    tokio::time::sleep(MOMENT).await;
    for node in &all[first.len()..] {
        chmod(&vfs, node.listed.ino, 0o600).await;
    }
    let later = rest(&vfs, dir, fh, behind(&first)).await;
    assert_eq!(modes(&later), vec![0o600; all.len() - first.len()]);
}

async fn open_files_are_listed_with_dirty_data(vol: Volume) {
    let vfs = vfs(&vol, LONG).await;
    let dir = dir(&vfs).await;
    let all = rest(&vfs, dir, vfs.open_dir(dir).unwrap(), 0).await;
    let fh = vfs.open_dir(dir).unwrap();
    let first = page(&vfs, dir, fh, 0).await;
    tokio::time::sleep(MOMENT).await;
    let ino = all[first.len()].listed.ino;
    let file = vfs.open(&Caller::root(), ino, OFlag::O_WRONLY).await.unwrap().fh;
    vfs.write(ino, file, OFlag::O_WRONLY, 0, b"new").await.unwrap();
    let second = page(&vfs, dir, fh, behind(&first)).await;
    assert_eq!(second[0].listed.ino, ino);
    assert_eq!(second[0].attr.as_ref().unwrap().length, 3);
}

async fn changes_by_another_client_are_seen_after_a_rewind(vol: Volume) {
    let (vfs, other) = (vfs(&vol, LONG).await, vfs(&vol, LONG).await);
    let dir = dir(&vfs).await;
    let fh = vfs.open_dir(dir).unwrap();
    let first = page(&vfs, dir, fh, 0).await;
    tokio::time::sleep(MOMENT).await;
    let all = rest(&other, dir, other.open_dir(dir).unwrap(), 0).await;
    for node in &all[2..] {
        chmod(&other, node.listed.ino, 0o600).await;
    }
    // After a rewind the prefetched page is not used any more.
    let again = rest(&vfs, dir, fh, 0).await;
    assert_eq!(modes(&again), vec![0o600; FILES]);
    assert!(first.iter().filter_map(|node| node.attr.as_ref()).all(|attr| attr.mode == 0o644));
}

async fn a_removed_entry_is_only_a_name(vol: Volume) {
    let (vfs, other) = (vfs(&vol, LONG).await, vfs(&vol, Duration::ZERO).await);
    let dir = dir(&vfs).await;
    let all = rest(&other, dir, other.open_dir(dir).unwrap(), 0).await;
    let fh = vfs.open_dir(dir).unwrap();
    let first = page(&vfs, dir, fh, 0).await;
    for node in &all[first.len()..] {
        let name = &node.listed.name[..];
        other.unlink(&Caller::root(), dir, name).await.unwrap();
    }
    // A prefetched entry still existed then; one that is read now does not.
    for node in rest(&vfs, dir, fh, behind(&first)).await {
        assert!(node.attr.is_none() || !node.age.is_zero(), "{node:?}");
    }
}

async fn without_a_lifetime_nothing_is_prefetched(vol: Volume) {
    let vfs = vfs(&vol, Duration::ZERO).await;
    let dir = dir(&vfs).await;
    let all = rest(&vfs, dir, vfs.open_dir(dir).unwrap(), 0).await;
    assert_eq!(modes(&all), vec![0o644; FILES]);
    assert!(all.iter().all(|node| node.age.is_zero()));
}
