//! Records have the bytes that the Go client writes, and are read back unchanged.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::fixtures::Server;
use super::*;
use crate::meta::record::{
    AclEntry, AclRule, DirStat, Flock, LockKind, Plock, PlockRange, Quota, QuotaKey, SliceSize,
};
use crate::meta::{LockOwner, Sid};

type Hash = BTreeMap<String, Vec<u8>>;

fn hash(server: &Server, key: &str) -> Hash {
    server.run(&["HGETALL", key])
}

fn fields<const N: usize>(pairs: [(&str, &[u8]); N]) -> Hash {
    pairs.into_iter().map(|(field, value)| (field.to_owned(), value.to_vec())).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

#[tokio::test]
async fn a_new_directory_has_the_bytes_that_the_go_client_writes() {
    let server = Server::start();
    let engine = server.engine().await;
    let now = Timestamp { sec: 0x6afa_4f27, nsec: 0x06ae_fdc0 };
    let attr = Attr::new(FileKind::Dir, 0o777, 0, 0, Ino::ROOT, now);
    let entry = Entry { kind: FileKind::Dir, ino: Ino(2) };
    put(
        &engine,
        &[
            Change::PutAttr(Ino(2), attr),
            Change::PutEntry(Ino(1), name("dd"), entry),
            Change::PutDirStat(Ino(2), DirStat::default()),
            Change::AddUsage { space: 4096, inodes: 1 },
        ],
    )
    .await;
    let stored: Vec<u8> = server.run(&["GET", "i2"]);
    let expected = hex("00 21ff 00000000 00000000 000000006afa4f27 06aefdc0 \
         000000006afa4f27 06aefdc0 000000006afa4f27 06aefdc0 00000002 0000000000001000 \
         00000000 0000000000000001 00");
    assert_eq!(stored, expected);
    assert_eq!(hash(&server, "d1"), fields([("dd", &hex("02 0000000000000002"))]));
    for key in ["dirDataLength", "dirUsedSpace", "dirUsedInodes"] {
        assert_eq!(hash(&server, key), fields([("2", b"0")]), "{key}");
    }
    assert_eq!(server.run::<String>(&["GET", "usedSpace"]), "4096");
    assert_eq!(server.run::<String>(&["GET", "totalInodes"]), "1");
    put(&engine, &[Change::RemoveDirStat(Ino(2)), Change::RemoveAttr(Ino(2))]).await;
    put(&engine, &[Change::RemoveEntry(Ino(1), name("dd"))]).await;
    assert_eq!(server.keys(), ["totalInodes", "usedSpace"]);
}

#[tokio::test]
async fn a_create_is_one_read_and_one_commit() {
    let server = Server::start();
    let engine = server.engine().await;
    let before = engine.round_trips();
    let mut txn = engine.begin();
    txn.read(&[Key::Attr(Ino(1)), Key::Lookup(Ino(1), name("a"))]).await.unwrap();
    assert_eq!(engine.round_trips() - before, 1);
    let changes = [
        Change::PutAttr(Ino(5), file()),
        Change::PutEntry(Ino(1), name("a"), entry(5)),
        Change::PutAttr(Ino(1), file()),
        Change::AddUsage { space: 4096, inodes: 1 },
    ];
    txn.commit(&changes).await.unwrap();
    assert_eq!(engine.round_trips() - before, 2);
    read_one(&engine, Key::Lookup(Ino(1), name("a"))).await;
    assert_eq!(engine.round_trips() - before, 3);
}

#[tokio::test]
async fn a_lookup_finds_inodes_of_any_size() {
    let server = Server::start();
    let engine = server.engine().await;
    let inodes = [
        1,
        0xFFFF_FFFF,
        0x1_0000_0000,
        (1 << 53) - 1,
        1 << 53,
        (1 << 53) + 1,
        1_000_000_000_000_000_000,
        9_223_372_032_828_243_969,
        i64::MAX as u64,
        u64::MAX,
    ];
    for ino in inodes {
        let mut attr = file();
        attr.length = ino;
        put(&engine, &[Change::PutEntry(Ino(1), name("a"), entry(ino))]).await;
        put(&engine, &[Change::PutAttr(Ino(ino), attr.clone())]).await;
        let record = read_one(&engine, Key::Lookup(Ino(1), name("a"))).await;
        let Record::Lookup(Some(found)) = record else { panic!("{ino}: {record:?}") };
        assert_eq!((found.entry, found.attr), (entry(ino), Some(attr)), "{ino}");
    }
}

#[tokio::test]
async fn an_entry_without_a_node_is_found_without_an_attr() {
    let server = Server::start();
    let engine = server.engine().await;
    put(&engine, &[Change::PutEntry(Ino(1), name("a"), entry(5))]).await;
    let record = read_one(&engine, Key::Lookup(Ino(1), name("a"))).await;
    let Record::Lookup(Some(found)) = record else { panic!("{record:?}") };
    assert_eq!((found.entry, found.attr), (entry(5), None));
    assert_eq!(read_one(&engine, Key::Lookup(Ino(1), name("b"))).await, Record::Lookup(None));
}

#[tokio::test]
async fn many_keys_are_returned_in_their_order() {
    let server = Server::start();
    let engine = server.engine().await;
    put(&engine, &[Change::PutAttr(Ino(13), file())]).await;
    put(&engine, &[Change::PutEntry(Ino(1), name("a"), entry(13))]).await;
    let mut keys: Vec<Key> = (10..20).map(|ino| Key::Attr(Ino(ino))).collect();
    keys.insert(5, Key::Entry(Ino(1), name("a")));
    keys.push(Key::HasEntries(Ino(1)));
    let before = engine.round_trips();
    let records = engine.read(&keys).await.unwrap();
    assert_eq!(engine.round_trips() - before, 1);
    assert_eq!(records[3], Record::Attr(Some(file())));
    assert_eq!(records[4], Record::Attr(None));
    assert_eq!(records[5], Record::Entry(Some(entry(13))));
    assert_eq!(records[10], Record::Attr(None));
    assert_eq!(records[11], Record::HasEntries(true));
}

#[tokio::test]
async fn chunks_are_lists_of_records() {
    let server = Server::start();
    let engine = server.engine().await;
    let append = |slices: &[Slice], if_present| Change::AppendSlices {
        ino: Ino(3),
        index: 0,
        slices: slices.to_vec(),
        if_present,
    };
    assert_eq!(
        put(&engine, &[append(&[slice(7, 0)], true)]).await,
        [0],
        "the chunk does not exist yet"
    );
    let one = Slice { pos: 0, id: SliceId(1), size: 2, off: 0, len: 2 };
    assert_eq!(put(&engine, &[append(&[one], false)]).await, [1]);
    assert_eq!(put(&engine, &[append(&[Slice::hole(4, 8), one], true)]).await, [3]);
    assert_eq!(put(&engine, &[append(&[], false)]).await, [3]);
    let stored: Vec<Vec<u8>> = server.run(&["LRANGE", "c3_0", "0", "-1"]);
    let first = hex("00000000 0000000000000001 00000002 00000000 00000002");
    let hole = hex("00000004 0000000000000000 00000000 00000000 00000008");
    assert_eq!(stored, [first.clone(), hole, first]);
    let record = read_one(&engine, Key::Chunk(Ino(3), 0)).await;
    assert_eq!(record, Record::Chunk(vec![one, Slice::hole(4, 8), one]));
    put(&engine, &[Change::RemoveChunk { ino: Ino(3), index: 0 }]).await;
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn slice_references_are_stored_minus_one() {
    let server = Server::start();
    let engine = server.engine().await;
    let slice = SliceSize { id: SliceId(1), size: 2 };
    let add = |by| Change::AddSliceRef { slice, by };
    let key = Key::SliceRef(SliceId(1), 2);
    assert_eq!(read_one(&engine, key.clone()).await, Record::SliceRef(1));
    assert_eq!(put(&engine, &[add(1), add(1)]).await, [2, 3]);
    assert_eq!(hash(&server, "sliceRef"), fields([("k1_2", b"2")]));
    assert_eq!(put(&engine, &[add(-1), Change::NewSlice(slice), add(-2)]).await, [2, 0, 0]);
    assert_eq!(hash(&server, "sliceRef"), fields([("k1_2", b"-1")]));
    assert_eq!(read_one(&engine, key.clone()).await, Record::SliceRef(0));
    put(&engine, &[Change::TrackSlice(slice)]).await;
    assert_eq!(hash(&server, "sliceRef"), fields([("k1_2", b"0")]));
    assert_eq!(read_one(&engine, key).await, Record::SliceRef(1));
    put(&engine, &[Change::RemoveSliceRef(slice)]).await;
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn delayed_slices_skip_holes_and_empty_lists() {
    let server = Server::start();
    let engine = server.engine().await;
    let hole = SliceSize { id: SliceId::HOLE, size: 0 };
    let five = SliceSize { id: SliceId(5), size: 1000 };
    let delay = |slices: &[SliceSize]| Change::PutDelayed {
        id: SliceId(9),
        at: 1_794_789_851,
        slices: slices.to_vec(),
    };
    put(&engine, &[delay(&[hole])]).await;
    assert!(server.keys().is_empty());
    put(&engine, &[delay(&[five, hole])]).await;
    let expected = fields([("9_1794789851", &hex("0000000000000005 000003e8"))]);
    assert_eq!(hash(&server, "delSlices"), expected);
    put(&engine, &[Change::RemoveDelayed { id: SliceId(9), at: 1_794_789_851 }]).await;
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn parents_symlinks_and_xattrs_are_stored_by_inode() {
    let server = Server::start();
    let engine = server.engine().await;
    let add = |parent, count| Change::AddParent { ino: Ino(3), parent: Ino(parent), count };
    let value = Bytes::from_static(b"");
    put(
        &engine,
        &[
            add(2, 1),
            add(9_223_372_032_828_243_969, 1),
            add(7, -1),
            Change::PutSymlink(Ino(4), Bytes::from_static(b"tgt")),
            Change::PutXattr(Ino(4), name("user.k"), Bytes::from_static(b"val")),
            Change::PutXattr(Ino(4), name("user.empty"), value.clone()),
        ],
    )
    .await;
    assert_eq!(
        hash(&server, "p3"),
        fields([("2", b"1"), ("9223372032828243969", b"1"), ("7", b"-1")])
    );
    assert_eq!(server.run::<String>(&["GET", "s4"]), "tgt");
    assert_eq!(hash(&server, "x4"), fields([("user.k", b"val"), ("user.empty", b"")]));
    let Record::Parents(mut parents) = read_one(&engine, Key::Parents(Ino(3))).await else {
        panic!()
    };
    parents.sort_unstable();
    assert_eq!(parents, [(Ino(2), 1), (Ino(9_223_372_032_828_243_969), 1)]);
    let empty = read_one(&engine, Key::Xattr(Ino(4), name("user.empty"))).await;
    assert_eq!(empty, Record::Xattr(Some(value)));
    let Record::Xattrs(all) = read_one(&engine, Key::Xattrs(Ino(4))).await else { panic!() };
    assert_eq!(all.len(), 2);
    put(&engine, &[Change::RemoveXattr(Ino(4), name("user.k"))]).await;
    put(
        &engine,
        &[
            Change::RemoveParents(Ino(3)),
            Change::RemoveSymlink(Ino(4)),
            Change::RemoveXattrs(Ino(4)),
        ],
    )
    .await;
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn locks_are_stored_by_session_and_owner_and_in_the_set_of_the_session() {
    let server = Server::start();
    let engine = server.engine().await;
    let owner = LockOwner(0x2309_0C09_4EC5_CE57);
    let other = LockOwner(1);
    let range = PlockRange { kind: LockKind::Read, pid: 0x6f11, start: 3, end: 9 };
    let (sid, ino) = (Sid(1), Ino(3));
    put(
        &engine,
        &[
            Change::PutFlock { ino, sid, owner, kind: LockKind::Write },
            Change::PutFlock { ino, sid, owner: other, kind: LockKind::Read },
            Change::PutPlock { ino, sid, owner, ranges: vec![range] },
        ],
    )
    .await;
    assert_eq!(
        hash(&server, "lockf3"),
        fields([("1_23090C094EC5CE57", b"W"), ("1_0000000000000001", b"R")])
    );
    let raw = hex("00000000 00006f11 0000000000000003 0000000000000009");
    assert_eq!(hash(&server, "lockp3"), fields([("1_23090C094EC5CE57", &raw)]));
    let locked = || {
        let mut members: Vec<String> = server.run(&["SMEMBERS", "locked1"]);
        members.sort();
        members
    };
    assert_eq!(locked(), ["lockf3", "lockp3"]);
    let Record::Flocks(flocks) = read_one(&engine, Key::Flocks(ino)).await else { panic!() };
    assert!(flocks.contains(&Flock { sid, owner, kind: LockKind::Write }), "{flocks:?}");
    let plocks = read_one(&engine, Key::Plocks(ino)).await;
    assert_eq!(plocks, Record::Plocks(vec![Plock { sid, owner, ranges: vec![range] }]));

    put(&engine, &[Change::RemoveFlock { ino, sid, owner }]).await;
    assert_eq!(locked(), ["lockf3", "lockp3"], "one flock is still held");
    put(&engine, &[Change::RemoveFlock { ino, sid, owner: other }]).await;
    assert_eq!(locked(), ["lockp3"]);
    put(&engine, &[Change::RemovePlock { ino, sid, owner }]).await;
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn the_lock_of_another_session_does_not_keep_the_key_in_the_set() {
    let server = Server::start();
    let engine = server.engine().await;
    let lock = |sid| Change::PutFlock {
        ino: Ino(3),
        sid: Sid(sid),
        owner: LockOwner(1),
        kind: LockKind::Read,
    };
    put(&engine, &[lock(1), lock(11)]).await;
    let unlock = Change::RemoveFlock { ino: Ino(3), sid: Sid(1), owner: LockOwner(1) };
    put(&engine, &[unlock]).await;
    assert_eq!(server.keys(), ["locked11", "lockf3"]);
}

#[tokio::test]
async fn deleted_files_and_detached_nodes_are_stored_by_time() {
    let server = Server::start();
    let engine = server.engine().await;
    put(
        &engine,
        &[
            Change::AddSustained(Sid(1), Ino(10)),
            Change::PutDeletedFile { ino: Ino(6), length: 7, at: 1_794_789_851 },
            Change::PutDetached(Ino(8), 1_794_789_852),
        ],
    )
    .await;
    assert_eq!(server.run::<Vec<String>>(&["SMEMBERS", "session1"]), ["10"]);
    let scores: Vec<String> = server.run(&["ZRANGE", "delfiles", "0", "-1", "WITHSCORES"]);
    assert_eq!(scores, ["6:7", "1794789851"]);
    let scores: Vec<String> = server.run(&["ZRANGE", "detachedNodes", "0", "-1", "WITHSCORES"]);
    assert_eq!(scores, ["8", "1794789852"]);
    assert_eq!(read_one(&engine, Key::Sustained(Sid(1), Ino(10))).await, Record::Sustained(true));
    put(
        &engine,
        &[
            Change::RemoveSustained(Sid(1), Ino(10)),
            Change::RemoveDeletedFile { ino: Ino(6), length: 7 },
            Change::RemoveDetached(Ino(8)),
        ],
    )
    .await;
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn unchanged_usage_is_not_written() {
    let server = Server::start();
    let engine = server.engine().await;
    put(&engine, &[Change::AddUsage { space: -4096, inodes: 0 }]).await;
    assert_eq!(server.keys(), ["usedSpace"]);
    assert_eq!(server.run::<String>(&["GET", "usedSpace"]), "-4096");
}

#[tokio::test]
async fn the_quota_of_a_directory_is_removed_with_it() {
    let server = Server::start();
    let engine = server.engine().await;
    let quota = Quota { max_space: 1 << 30, max_inodes: 100, used_space: 24576, used_inodes: 5 };
    engine.put_quota(QuotaKey::Dir(Ino(2)), &quota, true).await.unwrap();
    assert_eq!(
        hash(&server, "dirQuota"),
        fields([("2", &hex("0000000040000000 0000000000000064"))])
    );
    assert_eq!(hash(&server, "dirQuotaUsedSpace"), fields([("2", b"24576")]));
    assert_eq!(hash(&server, "dirQuotaUsedInodes"), fields([("2", b"5")]));
    let key = Key::Quota(QuotaKey::Dir(Ino(2)));
    assert_eq!(read_one(&engine, key).await, Record::Quota(Some(quota)));
    put(&engine, &[Change::RemoveDirQuota(Ino(2))]).await;
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn ids_of_acl_rules_start_at_one() {
    let server = Server::start();
    let engine = server.engine().await;
    let rule = AclRule {
        owner: 6,
        group: 4,
        mask: 7,
        other: 4,
        users: vec![AclEntry { id: 1000, perm: 7 }],
        groups: vec![],
    };
    assert_eq!(engine.insert_acl(&rule).await.unwrap(), 1);
    assert_eq!(engine.insert_acl(&rule).await.unwrap(), 2);
    let stored: Vec<u8> = server.run(&["HGET", "acl", "1"]);
    assert_eq!(stored, hex("0006 0004 0007 0004 00000001 000003e8 0007 00000000"));
    assert_eq!(server.run::<String>(&["GET", "aclMaxId"]), "2");
    assert_eq!(read_one(&engine, Key::Acl(2)).await, Record::Acl(Some(rule.clone())));
    assert_eq!(read_one(&engine, Key::Acl(3)).await, Record::Acl(None));
    assert_eq!(engine.acls().await.unwrap(), [(1, rule.clone()), (2, rule)]);
}

#[tokio::test]
async fn the_script_touches_a_directory_as_the_record_does() {
    let server = Server::start();
    let engine = server.engine().await;
    let at = |sec, nsec| Timestamp { sec, nsec };
    let cases = [
        (at(100, 5), 2, 1, Some(at(100, 6))),
        (at(100, 5), 2, -3, Some(at(99, 9))),
        (at(100, 5), u32::MAX, 1, None),
        // Before 1970.
        (at(-5, 7), 0x0102_0304, 0x0001_FFFF, Some(at(100, 0))),
        (at(-5, 7), 1, 0, Some(at(-4, 0))),
        (at(100, 5), 1, 0, Some(at(-4, 0))),
    ];
    for (old, nlink, links, time) in cases {
        let mut attr = Attr { mtime: old, ctime: old, nlink, ..file() };
        put(&engine, &[Change::PutAttr(Ino(5), attr.clone())]).await;
        put(&engine, &[Change::TouchDir { ino: Ino(5), links, at: time }]).await;
        attr.touch(links, time);
        assert_eq!(read_one(&engine, Key::Attr(Ino(5))).await, Record::Attr(Some(attr)));
    }
}

#[tokio::test]
async fn touching_a_removed_directory_fails_and_applies_nothing() {
    let server = Server::start();
    let engine = server.engine().await;
    let touch = Change::TouchDir { ino: Ino(5), links: 1, at: None };
    let changes = [Change::PutAttr(Ino(6), file()), touch.clone()];
    let result = engine.begin().commit(&changes).await;
    let refused = matches!(result, Err(CommitError::Failed(crate::error::Error::NotFound)));
    assert!(refused, "{result:?}");
    assert!(server.keys().is_empty());
    put(&engine, &[Change::PutAttr(Ino(5), file()), touch]).await;
    let touched = Attr { nlink: 2, ..file() };
    assert_eq!(read_one(&engine, Key::Attr(Ino(5))).await, Record::Attr(Some(touched)));
}
