//! Listing an open directory: seeking back, and entries created and removed meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use jfs::meta::record::FileKind;
use jfs::meta::{Caller, Ino, NodeKind};
use jfs::vfs::{Fh, ListedEntry, Vfs, VfsOptions};

use crate::faulty_bucket::FaultyBucket;
use crate::fixture::Client;
use crate::on_every_engine;
use crate::support::volume::{Volume, setting};

on_every_engine! { super::setting();
    every_entry_is_listed_once_with_any_step_size,
    a_listing_continues_from_any_offset_it_returned,
    rewinding_shows_entries_created_and_removed_since,
    the_root_shows_virtual_files_unless_they_are_hidden,
}

async fn vfs(vol: &Volume, options: VfsOptions) -> Arc<Vfs> {
    Client::new(vol, &Arc::new(FaultyBucket::default())).await.vfs(options)
}

/// Creates a directory with this many files.
async fn dir(vfs: &Vfs, count: usize) -> (Ino, BTreeSet<String>) {
    let root = Caller::root();
    let dir = vfs.mkdir(&root, Ino::ROOT, b"dir", 0o755, 0).await.unwrap().ino;
    let names: BTreeSet<String> = (0..count).map(|n| format!("file-{n:05}")).collect();
    for name in &names {
        add(vfs, dir, name).await;
    }
    (dir, names)
}

async fn add(vfs: &Vfs, dir: Ino, name: &str) {
    let kind = NodeKind { kind: FileKind::File, rdev: 0 };
    vfs.mknod(&Caller::root(), dir, name.as_bytes(), kind, 0o644, 0).await.unwrap();
}

/// Lists at most `count` entries from an offset on.
async fn step(vfs: &Vfs, dir: Ino, fh: Fh, offset: u64, count: usize) -> Vec<ListedEntry> {
    let mut left = count;
    let fits = move |_: &[u8]| {
        let fits = left > 0;
        left = left.saturating_sub(1);
        fits
    };
    vfs.list(dir, fh, offset, fits).await.unwrap()
}

fn name(listed: &ListedEntry) -> String {
    String::from_utf8_lossy(&listed.name).into_owned()
}

async fn every_entry_is_listed_once_with_any_step_size(vol: Volume) {
    let vfs = vfs(&vol, VfsOptions::default()).await;
    let (dir, names) = dir(&vfs, 25).await;
    for size in [1, 7, 100] {
        let fh = vfs.open_dir(dir).unwrap();
        let (mut seen, mut offset) = (Vec::new(), 0);
        loop {
            let listed = step(&vfs, dir, fh, offset, size).await;
            let Some(last) = listed.last() else { break };
            offset = last.next;
            seen.extend(listed.iter().map(name));
        }
        assert_eq!(seen[..2], [".".to_owned(), "..".to_owned()]);
        assert_eq!(seen.len(), 27);
        assert_eq!(seen[2..].iter().cloned().collect::<BTreeSet<_>>(), names);
        vfs.close_dir(dir, fh);
    }
}

async fn a_listing_continues_from_any_offset_it_returned(vol: Volume) {
    let vfs = vfs(&vol, VfsOptions::default()).await;
    let (dir, _) = dir(&vfs, 12).await;
    let fh = vfs.open_dir(dir).unwrap();
    let all = step(&vfs, dir, fh, 0, 100).await;
    for (at, listed) in all.iter().enumerate().rev() {
        let rest: Vec<String> =
            step(&vfs, dir, fh, listed.next, 100).await.iter().map(name).collect();
        let want: Vec<String> = all[at + 1..].iter().map(name).collect();
        assert_eq!(rest, want);
    }
}

async fn rewinding_shows_entries_created_and_removed_since(vol: Volume) {
    let vfs = vfs(&vol, VfsOptions::default()).await;
    let (dir, mut names) = dir(&vfs, 3).await;
    let fh = vfs.open_dir(dir).unwrap();
    step(&vfs, dir, fh, 0, 3).await;
    add(&vfs, dir, "new").await;
    vfs.unlink(&Caller::root(), dir, b"file-00001").await.unwrap();
    names.insert("new".to_owned());
    names.remove("file-00001");
    let again = step(&vfs, dir, fh, 0, 100).await;
    assert_eq!(again[2..].iter().map(name).collect::<BTreeSet<_>>(), names);
}

async fn the_root_shows_virtual_files_unless_they_are_hidden(vol: Volume) {
    let names = |listed: Vec<ListedEntry>| listed.iter().map(name).collect::<BTreeSet<_>>();
    let shown = vfs(&vol, VfsOptions::default()).await;
    let fh = shown.open_dir(Ino::ROOT).unwrap();
    let want = [".", "..", ".accesslog", ".config", ".stats", ".trash"].map(str::to_owned);
    assert_eq!(names(step(&shown, Ino::ROOT, fh, 0, 100).await), BTreeSet::from(want));
    let hidden = vfs(&vol, VfsOptions { hide_internal: true, ..VfsOptions::default() }).await;
    let fh = hidden.open_dir(Ino::ROOT).unwrap();
    let want = [".", ".."].map(str::to_owned);
    assert_eq!(names(step(&hidden, Ino::ROOT, fh, 0, 100).await), BTreeSet::from(want));
    let found = hidden.lookup(&Caller::root(), Ino::ROOT, b".stats").await.unwrap();
    assert!(hidden.is_virtual(found.ino));
}
