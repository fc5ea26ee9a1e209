//! Each kind of change, and reading it back.

use super::*;
use crate::meta::engine::{Cursor, Found};
use crate::meta::record::{DirStat, Flock, LockKind, Plock, PlockRange, SliceSize};
use crate::meta::{LockOwner, Sid};

#[tokio::test]
async fn an_attr_is_read_as_it_was_written() {
    let volume = Volume::new().await;
    let attr = Attr {
        flags: 0x21,
        kind: FileKind::CharDevice,
        mode: 0o7777,
        uid: u32::MAX,
        gid: u32::MAX - 1,
        atime: Timestamp { sec: 0, nsec: 999 },
        mtime: Timestamp { sec: 253_402_300_799, nsec: 999_999_999 },
        ctime: Timestamp { sec: -62_135_596_800, nsec: 1 },
        nlink: 3,
        length: 1 << 57,
        rdev: u32::MAX,
        parent: Ino::TRASH,
        access_acl: 1,
        default_acl: u32::MAX,
        tier: 3,
    };
    let ino = Ino(0x7FFF_FFFF_1000_0001);
    volume.apply(&[Change::PutAttr(ino, attr.clone())]).await.unwrap();
    assert_eq!(volume.read(Key::Attr(ino)).await, Record::Attr(Some(attr)));
    volume.apply(&[Change::RemoveAttr(ino)]).await.unwrap();
    assert_eq!(volume.read(Key::Attr(ino)).await, Record::Attr(None));
}

#[tokio::test]
async fn columns_of_a_later_version_survive_a_write() {
    let volume = Volume::new().await;
    volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await.unwrap();
    let other_connection = volume.other_connection();
    other_connection
        .execute_batch("ALTER TABLE jfs_node ADD future INTEGER; UPDATE jfs_node SET future = 3")
        .unwrap();
    let mut attr = file_attr();
    attr.length = 9;
    volume.apply(&[Change::PutAttr(Ino(5), attr)]).await.unwrap();
    assert_eq!(volume.value::<i64>("SELECT future FROM jfs_node WHERE inode = 5"), 3);
}

#[tokio::test]
async fn empty_columns_of_older_volumes_read_as_zero() {
    let volume = Volume::new().await;
    volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await.unwrap();
    let sql = "UPDATE jfs_node SET rdev = NULL, parent = NULL, access_acl_id = NULL, \
               default_acl_id = NULL, tier_id = NULL WHERE inode = 5";
    volume.other_connection().execute_batch(sql).unwrap();
    let Record::Attr(Some(attr)) = volume.read(Key::Attr(Ino(5))).await else { panic!() };
    assert_eq!((attr.rdev, attr.parent, attr.access_acl, attr.tier), (0, Ino::NONE, 0, 0));
}

#[tokio::test]
async fn many_attrs_are_returned_in_the_order_of_their_keys() {
    let volume = Volume::new().await;
    let length_of = |ino: u64| ino * 3;
    let puts: Vec<Change> = (1000..6000)
        .map(|ino| {
            let mut attr = file_attr();
            attr.length = length_of(ino);
            Change::PutAttr(Ino(ino), attr)
        })
        .collect();
    volume.apply(&puts).await.unwrap();
    for count in [1, 3, 4, 16, 17, 256, 257, 4096] {
        // Backwards, with a node that does not exist and a key of another kind in between.
        let mut keys: Vec<Key> = (0..count).map(|i| Key::Attr(Ino(5999 - i))).collect();
        keys.insert(0, Key::Attr(Ino(7)));
        keys.insert(1, Key::HasEntries(Ino::ROOT));
        let records = volume.engine.read(&keys).await.unwrap();
        assert_eq!(records[0], Record::Attr(None));
        assert_eq!(records[1], Record::HasEntries(false));
        for (key, record) in keys.iter().zip(&records).skip(2) {
            let (Key::Attr(ino), Record::Attr(Some(attr))) = (key, record) else { panic!() };
            assert_eq!(attr.length, length_of(ino.0));
        }
    }
}

#[tokio::test]
async fn a_lookup_needs_the_node() {
    let volume = Volume::new().await;
    let put = Change::PutEntry(Ino::ROOT, name("f"), file(5));
    volume.apply(&[put]).await.unwrap();
    assert_eq!(volume.read(Key::Lookup(Ino::ROOT, name("f"))).await, Record::Lookup(None));
    assert_eq!(volume.read(Key::Entry(Ino::ROOT, name("f"))).await, Record::Entry(Some(file(5))));
    volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await.unwrap();
    let found = Found { entry: file(5), attr: Some(file_attr()) };
    assert_eq!(volume.read(Key::Lookup(Ino::ROOT, name("f"))).await, Record::Lookup(Some(found)));
}

#[tokio::test]
async fn parents_are_counted_from_the_entries() {
    let volume = Volume::new().await;
    let entries = [(3, "a"), (2, "b"), (3, "c")];
    let puts: Vec<Change> = entries
        .iter()
        .map(|(dir, text)| Change::PutEntry(Ino(*dir), name(text), file(9)))
        .chain([Change::AddParent { ino: Ino(9), parent: Ino(8), count: 1 }])
        .collect();
    volume.apply(&puts).await.unwrap();
    let counted = Record::Parents(vec![(Ino(2), 1), (Ino(3), 2)]);
    assert_eq!(volume.read(Key::Parents(Ino(9))).await, counted);
    volume.apply(&[Change::RemoveParents(Ino(9))]).await.unwrap();
    assert_eq!(volume.read(Key::Parents(Ino(9))).await, counted);
}

#[tokio::test]
async fn a_listing_has_pages_in_the_order_of_bytes() {
    let volume = Volume::new().await;
    let mut names: Vec<Name> = (0..100).map(|i| name(&format!("n{i}"))).collect();
    names.extend([&b"\xff\xfe"[..], b"\x01", b"Z", b"a\x80"].map(|raw| Name::new(raw).unwrap()));
    let puts: Vec<Change> =
        names.iter().map(|n| Change::PutEntry(Ino(2), n.clone(), file(5))).collect();
    volume.apply(&puts).await.unwrap();
    volume.apply(&[Change::PutEntry(Ino(3), name("other"), file(5))]).await.unwrap();
    names.sort();

    for limit in [1, 7, 104, 1000] {
        let mut listed = Vec::new();
        let mut cursor = Cursor::Start;
        while cursor != Cursor::End {
            let page = volume.engine.list(Ino(2), &cursor, limit).await.unwrap();
            assert!(page.entries.len() <= limit);
            listed.extend(page.entries.into_iter().map(|(name, _)| name));
            cursor = page.next;
        }
        assert_eq!(listed, names);
    }
    let page = volume.engine.list(Ino(77), &Cursor::Start, 10).await.unwrap();
    assert!(page.entries.is_empty() && page.next == Cursor::End);
}

#[tokio::test]
async fn names_and_values_of_any_bytes_are_kept() {
    let volume = Volume::new().await;
    let odd = Name::new(b"user.\xff\xfe").unwrap();
    let value = Bytes::from_static(b"\0\xff");
    let changes = [
        Change::PutXattr(Ino(5), odd.clone(), value.clone()),
        Change::PutXattr(Ino(5), name("user.empty"), Bytes::new()),
        Change::PutSymlink(Ino(5), Bytes::from_static(b"\xff/\x01")),
        Change::PutEntry(Ino(5), odd.clone(), file(6)),
    ];
    volume.apply(&changes).await.unwrap();
    let all = vec![(name("user.empty"), Bytes::new()), (odd.clone(), value.clone())];
    assert_eq!(volume.read(Key::Xattrs(Ino(5))).await, Record::Xattrs(all));
    assert_eq!(volume.read(Key::Xattr(Ino(5), odd.clone())).await, Record::Xattr(Some(value)));
    assert_eq!(volume.read(Key::Entry(Ino(5), odd)).await, Record::Entry(Some(file(6))));
    let target = Bytes::from_static(b"\xff/\x01");
    assert_eq!(volume.read(Key::Symlink(Ino(5))).await, Record::Symlink(Some(target)));
}

#[tokio::test]
async fn appending_slices_returns_their_count() {
    let volume = Volume::new().await;
    let append = |id, if_present| Change::AppendSlices {
        ino: Ino(5),
        index: 0,
        slices: vec![slice(id, 10), Slice::hole(10, 5)],
        if_present,
    };
    assert_eq!(volume.apply(&[append(1, true)]).await.unwrap(), [0]);
    assert_eq!(volume.read(Key::Chunk(Ino(5), 0)).await, Record::Chunk(vec![]));
    assert_eq!(volume.apply(&[append(1, false), append(2, true)]).await.unwrap(), [2, 4]);
    let all = vec![slice(1, 10), Slice::hole(10, 5), slice(2, 10), Slice::hole(10, 5)];
    assert_eq!(volume.read(Key::Chunk(Ino(5), 0)).await, Record::Chunk(all));
    assert_eq!(volume.value::<String>("SELECT typeof(slices) FROM jfs_chunk"), "blob");
    assert_eq!(volume.engine.chunk_indexes(Ino(5), 0).await.unwrap(), [0]);
}

#[tokio::test]
async fn slices_stored_as_text_are_read_and_appended_to() {
    let volume = Volume::new().await;
    let append = Change::AppendSlices {
        ino: Ino(5),
        index: 0,
        slices: vec![slice(1, 10)],
        if_present: false,
    };
    volume.apply(std::slice::from_ref(&append)).await.unwrap();
    let sql = "UPDATE jfs_chunk SET slices = slices || slices";
    volume.other_connection().execute_batch(sql).unwrap();
    assert_eq!(volume.value::<String>("SELECT typeof(slices) FROM jfs_chunk"), "text");
    assert_eq!(volume.apply(&[append]).await.unwrap(), [3]);
    let all = vec![slice(1, 10); 3];
    assert_eq!(volume.read(Key::Chunk(Ino(5), 0)).await, Record::Chunk(all));
}

#[tokio::test]
async fn references_are_counted_in_rows() {
    let volume = Volume::new().await;
    let known = SliceSize { id: SliceId(1), size: 10 };
    let lost = SliceSize { id: SliceId(2), size: 20 };
    let refs = |slice: SliceSize| Key::SliceRef(slice.id, slice.size);
    let add = |slice, by| Change::AddSliceRef { slice, by };
    assert_eq!(volume.read(refs(known)).await, Record::SliceRef(0));
    volume.apply(&[Change::NewSlice(known)]).await.unwrap();
    assert_eq!(volume.read(refs(known)).await, Record::SliceRef(1));
    assert_eq!(volume.apply(&[add(known, 2), add(known, -3)]).await.unwrap(), [3, 0]);
    assert_eq!(volume.engine.dead_slices(10).await.unwrap(), [known]);
    volume.apply(&[Change::RemoveSliceRef(known)]).await.unwrap();
    assert_eq!(volume.engine.dead_slices(10).await.unwrap(), []);

    // Without a row, the objects must stay.
    assert_eq!(volume.apply(&[add(lost, -1)]).await.unwrap(), [1]);
    assert_eq!(volume.read(refs(lost)).await, Record::SliceRef(0));
    assert_eq!(volume.apply(&[add(lost, 1)]).await.unwrap(), [2]);
    let twice = volume.apply(&[Change::TrackSlice(lost)]).await;
    let Err(CommitError::Failed(error)) = twice else { panic!("{twice:?}") };
    assert!(error.to_string().contains("chunkid 2"), "{error}");
}

#[tokio::test]
async fn delayed_slices_are_listed_by_time() {
    let volume = Volume::new().await;
    let old = vec![SliceSize { id: SliceId(1), size: 10 }, SliceSize { id: SliceId(2), size: 20 }];
    let put = |id, at, slices| Change::PutDelayed { id: SliceId(id), at, slices };
    let hole = vec![SliceSize { id: SliceId::HOLE, size: 0 }];
    volume.apply(&[put(9, 100, old.clone()), put(8, 200, hole)]).await.unwrap();
    assert!(volume.engine.delayed_slices(99, 10).await.unwrap().is_empty());
    let due = volume.engine.delayed_slices(1000, 10).await.unwrap();
    assert_eq!(due.len(), 1);
    assert_eq!((due[0].id, due[0].at, &due[0].slices), (SliceId(9), 100, &old));
    volume.apply(&[Change::RemoveDelayed { id: SliceId(9), at: 100 }]).await.unwrap();
    assert!(volume.engine.delayed_slices(1000, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn locks_keep_every_bit_of_their_owner() {
    let volume = Volume::new().await;
    let (ino, sid, owner) = (Ino(5), Sid(3), LockOwner(0xFEDC_BA98_7654_3210));
    let range = PlockRange { kind: LockKind::Write, pid: 77, start: 5, end: i64::MAX as u64 };
    let puts = [
        Change::PutFlock { ino, sid, owner, kind: LockKind::Read },
        Change::PutFlock { ino, sid, owner, kind: LockKind::Write },
        Change::PutPlock { ino, sid, owner, ranges: vec![range] },
    ];
    volume.apply(&puts).await.unwrap();
    let flock = Flock { sid, owner, kind: LockKind::Write };
    let plock = Plock { sid, owner, ranges: vec![range] };
    assert_eq!(volume.read(Key::Flocks(ino)).await, Record::Flocks(vec![flock]));
    assert_eq!(volume.read(Key::Plocks(ino)).await, Record::Plocks(vec![plock]));
    let removes =
        [Change::RemoveFlock { ino, sid, owner }, Change::RemovePlock { ino, sid, owner }];
    volume.apply(&removes).await.unwrap();
    assert_eq!(volume.read(Key::Flocks(ino)).await, Record::Flocks(vec![]));
    assert_eq!(volume.read(Key::Plocks(ino)).await, Record::Plocks(vec![]));
}

#[tokio::test]
async fn sustained_deleted_and_detached_nodes_are_listed() {
    let volume = Volume::new().await;
    let puts = [
        Change::AddSustained(Sid(1), Ino(5)),
        Change::AddSustained(Sid(1), Ino(5)),
        Change::PutDeletedFile { ino: Ino(6), length: 77, at: 100 },
        Change::PutDetached(Ino(7), 100),
        Change::PutDirStat(Ino(8), DirStat { length: 1, space: 2, inodes: 3 }),
    ];
    volume.apply(&puts).await.unwrap();
    assert_eq!(volume.engine.sustained(Sid(1)).await.unwrap(), [Ino(5)]);
    assert_eq!(volume.engine.deleted_files(99, 10).await.unwrap(), []);
    let deleted = volume.engine.deleted_files(100, 10).await.unwrap();
    assert_eq!((deleted[0].ino, deleted[0].length, deleted[0].at), (Ino(6), 77, 100));
    assert_eq!(volume.engine.detached(99).await.unwrap(), []);
    assert_eq!(volume.engine.detached(100).await.unwrap(), [Ino(7)]);
    let removes = [
        Change::RemoveSustained(Sid(1), Ino(5)),
        Change::RemoveDeletedFile { ino: Ino(6), length: 77 },
        Change::RemoveDetached(Ino(7)),
        Change::RemoveDirStat(Ino(8)),
    ];
    volume.apply(&removes).await.unwrap();
    assert_eq!(volume.read(Key::Sustained(Sid(1), Ino(5))).await, Record::Sustained(false));
    assert_eq!(volume.engine.deleted_files(100, 10).await.unwrap(), []);
    assert_eq!(volume.engine.detached(100).await.unwrap(), []);
    assert_eq!(volume.read(Key::DirStat(Ino(8))).await, Record::DirStat(None));
}
