//! Commits: all changes or none, in order, with a result for each.

use bytes::Bytes;
use jfs::meta::engine::{Change, Key};
use jfs::meta::record::{Counter, DirStat, LockKind};
use jfs::meta::{Ino, LockOwner, Sid, SliceId};

use crate::fixtures::*;

on_every_engine! {
    async fn changes_are_applied_in_order(store) {
        let engine = store.engine.as_ref();
        let changes = [
            Change::PutAttr(FILE, file()),
            Change::RemoveAttr(FILE),
            Change::PutEntry(DIR, name("a"), entry(FILE)),
            Change::RemoveEntry(DIR, name("a")),
            Change::PutEntry(DIR, name("a"), entry(OTHER)),
            Change::PutXattr(FILE, name("user.a"), Bytes::from_static(b"1")),
            Change::RemoveXattrs(FILE),
            Change::PutXattr(FILE, name("user.b"), Bytes::from_static(b"2")),
            append(FILE, 0, vec![slice(1)]),
            Change::RemoveChunk { ino: FILE, index: 0 },
            append(FILE, 0, vec![slice(2)]),
        ];
        commit(engine, &changes).await;
        assert_eq!(attr_of(engine, FILE).await, None);
        assert_eq!(entry_of(engine, DIR, name("a")).await, Some(entry(OTHER)));
        assert_eq!(xattrs(engine, FILE).await, [(name("user.b"), Bytes::from_static(b"2"))]);
        assert_eq!(chunk(engine, FILE, 0).await, [slice(2)]);
    }

    async fn every_change_has_a_result(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        let skipped =
            Change::AppendSlices { ino: OTHER, index: 0, slices: vec![slice(1)], if_present: true };
        let changes = [
            Change::PutAttr(FILE, file()),
            Change::NewSlice(sized(1)),
            append(FILE, 0, vec![slice(1), slice(1)]),
            skipped,
            Change::AddSliceRef { slice: sized(1), by: 1 },
            Change::AddUsage { space: 4096, inodes: 1 },
            Change::PutDirStat(DIR, DirStat::default()),
            Change::PutFlock { ino: FILE, sid: Sid(1), owner: LockOwner(1), kind: LockKind::Read },
            Change::AddSliceRef { slice: sized(1), by: -1 },
        ];
        assert_eq!(commit(engine, &changes).await, [0, 0, 2, 0, 2, 0, 0, 0, 1]);
    }

    /// One change of every kind in one commit, and its reverse in another.
    async fn changes_of_every_kind_fit_in_one_commit(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        let (sid, owner) = (Sid(1), LockOwner(u64::MAX));
        let done = [
            Change::PutAttr(FILE, file()),
            Change::TouchDir { ino: Ino::ROOT, links: 1, at: None },
            Change::PutEntry(DIR, name("a"), entry(FILE)),
            Change::AddParent { ino: FILE, parent: DIR, count: 1 },
            Change::PutSymlink(OTHER, Bytes::from_static(b"t")),
            Change::PutXattr(FILE, name("user.k"), Bytes::from_static(b"v")),
            Change::NewSlice(sized(1)),
            append(FILE, 0, vec![slice(1)]),
            Change::AddSliceRef { slice: sized(1), by: 1 },
            Change::TrackSlice(sized(2)),
            Change::PutDelayed { id: SliceId(2), at: 5, slices: vec![sized(3)] },
            Change::AddSustained(sid, FILE),
            Change::PutDeletedFile { ino: OTHER, length: 10, at: 5 },
            Change::PutDetached(DIR, 5),
            Change::AddUsage { space: 8192, inodes: 2 },
            Change::PutDirStat(DIR, DirStat { length: 1, space: 2, inodes: 3 }),
            Change::PutFlock { ino: FILE, sid, owner, kind: LockKind::Write },
            Change::PutPlock { ino: FILE, sid, owner, ranges: vec![] },
            Change::Log("5.000000000|TEST()|(1,1)".to_owned()),
        ];
        commit(engine, &done).await;
        assert!(sustained(engine, sid, FILE).await);
        assert_eq!(slice_refs(engine, SliceId(1), 1000).await, 2);
        assert_eq!(engine.deleted_files(5, 10).await.expect("lists").len(), 1);

        let mut tx = engine.begin();
        tx.read(&[Key::Chunk(FILE, 0)]).await.expect("reads");
        let undone = [
            Change::ReplaceSlices { ino: FILE, index: 0, count: 1, with: vec![slice(2)] },
            Change::RemoveChunk { ino: FILE, index: 0 },
            Change::RemoveSliceRef(sized(1)),
            Change::RemoveSliceRef(sized(2)),
            Change::RemoveDelayed { id: SliceId(2), at: 5 },
            Change::RemoveSustained(sid, FILE),
            Change::RemoveDeletedFile { ino: OTHER, length: 10 },
            Change::RemoveDetached(DIR),
            Change::RemoveDirStat(DIR),
            Change::RemoveDirQuota(DIR),
            Change::RemoveFlock { ino: FILE, sid, owner },
            Change::RemovePlock { ino: FILE, sid, owner },
            Change::RemoveXattr(FILE, name("user.k")),
            Change::RemoveXattrs(FILE),
            Change::RemoveEntry(DIR, name("a")),
            Change::RemoveParents(FILE),
            Change::RemoveSymlink(OTHER),
            Change::RemoveAttr(FILE),
            Change::AddUsage { space: -8192, inodes: -2 },
        ];
        tx.commit(&undone).await.expect("commits");
        assert_eq!(attr_of(engine, FILE).await, None);
        assert!(!has_entries(engine, DIR).await);
        assert_eq!(parents(engine, FILE).await, []);
        assert_eq!(chunk(engine, FILE, 0).await, []);
        assert_eq!(xattrs(engine, FILE).await, []);
        assert_eq!(symlink(engine, OTHER).await, None);
        assert!(!sustained(engine, sid, FILE).await);
        assert_eq!(engine.deleted_files(i64::MAX - 1, 10).await.expect("lists"), []);
        assert_eq!(engine.delayed_slices(i64::MAX - 1, 10).await.expect("lists"), []);
        assert_eq!(engine.detached(i64::MAX - 1).await.expect("lists"), []);
        assert_eq!(dir_stat(engine, DIR).await, None);
        assert_eq!(flocks(engine, FILE).await, []);
        assert_eq!(plocks(engine, FILE).await, []);
        assert_eq!(engine.counter(Counter::UsedSpace).await.expect("reads"), 0);
    }

    async fn usage_is_counted_in_commits_by_engines_that_say_so(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        commit(engine, &[Change::AddUsage { space: 4096, inodes: 1 }]).await;
        commit(engine, &[Change::AddUsage { space: 8192, inodes: -3 }]).await;
        let expected = if engine.properties().usage_in_commit { (12288, -2) } else { (0, 0) };
        let space = engine.counter(Counter::UsedSpace).await.expect("reads");
        let inodes = engine.counter(Counter::TotalInodes).await.expect("reads");
        assert_eq!((space, inodes), expected);
    }

    async fn other_clients_see_a_commit_at_once(store) {
        let other = store.second_client().await;
        commit(store.engine.as_ref(), &[Change::PutAttr(FILE, file())]).await;
        assert_eq!(attr_of(other.as_ref(), FILE).await, Some(file()));
    }

    async fn a_dropped_transaction_changes_nothing(store) {
        let engine = store.engine.as_ref();
        let mut tx = engine.begin();
        tx.read(&[Key::Attr(FILE)]).await.expect("reads");
        drop(tx);
        assert_eq!(attr_of(engine, FILE).await, None);
    }

    async fn a_full_batch_fits_in_one_commit(store) {
        let engine = store.engine.as_ref();
        let count = engine.properties().batch as u64;
        assert!(count > 0);
        let mut changes = Vec::new();
        for number in 0..count {
            let ino = Ino(1000 + number);
            changes.push(Change::PutAttr(ino, file()));
            changes.push(Change::PutEntry(DIR, name(format!("entry-{number}")), entry(ino)));
            changes.push(Change::PutXattr(ino, name("user.k"), Bytes::from_static(b"v")));
            changes.push(append(ino, 0, vec![slice(number + 1)]));
        }
        let receipts = commit(engine, &changes).await;
        assert_eq!(receipts.len(), changes.len());
        let last = Ino(1000 + count - 1);
        assert_eq!(attr_of(engine, last).await, Some(file()));
        assert_eq!(chunk(engine, last, 0).await, [slice(count)]);
    }
}
