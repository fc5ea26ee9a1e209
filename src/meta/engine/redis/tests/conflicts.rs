//! A commit succeeds exactly if the records that were read are unchanged.

use bytes::Bytes;

use super::fixtures::Server;
use super::*;
use crate::meta::Sid;
use crate::meta::record::QuotaKey;

/// A change that shows whether a commit was applied. No test guards its record.
fn marker() -> [Change; 1] {
    [Change::PutSymlink(Ino(999), Bytes::from_static(b"applied"))]
}

/// Asserts that a commit after a read of `key` succeeds if another client runs `harmless` in between,
/// and conflicts if it runs `interfering`.
async fn assert_guarded(setup: &[&[&str]], key: Key, harmless: &[&str], interfering: &[&str]) {
    let server = Server::start();
    let engine = server.engine().await;
    for args in setup {
        server.run::<redis::Value>(args);
    }
    let run = |command: &[&str]| drop(server.run::<redis::Value>(command));
    let undisturbed = commit_around(&engine, key.clone(), || run(harmless), &marker()).await;
    assert!(undisturbed.is_ok(), "{key:?}: {undisturbed:?}");
    server.run::<i64>(&["DEL", "s999"]);
    let disturbed = commit_around(&engine, key.clone(), || run(interfering), &marker()).await;
    assert!(is_conflict(&disturbed), "{key:?}: {disturbed:?}");
    assert_eq!(
        server.run::<i64>(&["EXISTS", "s999"]),
        0,
        "{key:?}: applied in spite of the conflict"
    );
}

const ENTRY: &str = "\u{1}\0\0\0\0\0\0\0\u{5}";
const OTHER_ENTRY: &str = "\u{1}\0\0\0\0\0\0\0\u{6}";
const NOTHING: &[&str] = &["PING"];

fn attr_text(mode: u16) -> String {
    // Every byte of this attr is ASCII, so that commands can be written as text.
    let attr = Attr::new(FileKind::File, mode, 7, 8, Ino::ROOT, Timestamp::from_secs(1));
    String::from_utf8(attr.encode().to_vec()).unwrap()
}

fn ascii_attrs() -> (String, String) {
    (attr_text(0o4), attr_text(0o6))
}

#[tokio::test]
async fn a_changed_attr_conflicts() {
    let (old, new) = ascii_attrs();
    assert_guarded(
        &[&["SET", "i5", &old]],
        Key::Attr(Ino(5)),
        &["SET", "i6", &new],
        &["SET", "i5", &new],
    )
    .await;
}

#[tokio::test]
async fn a_new_attr_conflicts() {
    let (_, new) = ascii_attrs();
    assert_guarded(&[], Key::Attr(Ino(5)), NOTHING, &["SET", "i5", &new]).await;
}

#[tokio::test]
async fn a_removed_attr_conflicts() {
    let (old, _) = ascii_attrs();
    assert_guarded(&[&["SET", "i5", &old]], Key::Attr(Ino(5)), NOTHING, &["DEL", "i5"]).await;
}

#[tokio::test]
async fn a_changed_entry_conflicts_and_another_entry_does_not() {
    assert_guarded(
        &[&["HSET", "d1", "a", ENTRY]],
        Key::Entry(Ino(1), name("a")),
        &["HSET", "d1", "b", OTHER_ENTRY],
        &["HSET", "d1", "a", OTHER_ENTRY],
    )
    .await;
}

#[tokio::test]
async fn a_new_entry_conflicts() {
    assert_guarded(
        &[],
        Key::Entry(Ino(1), name("a")),
        &["HSET", "d1", "b", OTHER_ENTRY],
        &["HSET", "d1", "a", ENTRY],
    )
    .await;
}

#[tokio::test]
async fn a_lookup_guards_the_entry() {
    let (old, _) = ascii_attrs();
    assert_guarded(
        &[&["HSET", "d1", "a", ENTRY], &["SET", "i5", &old]],
        Key::Lookup(Ino(1), name("a")),
        NOTHING,
        &["HDEL", "d1", "a"],
    )
    .await;
}

#[tokio::test]
async fn a_lookup_guards_the_attr_of_the_entry() {
    let (old, new) = ascii_attrs();
    assert_guarded(
        &[&["HSET", "d1", "a", ENTRY], &["SET", "i5", &old]],
        Key::Lookup(Ino(1), name("a")),
        &["SET", "i6", &new],
        &["SET", "i5", &new],
    )
    .await;
}

#[tokio::test]
async fn a_lookup_guards_the_absence_of_an_entry() {
    assert_guarded(&[], Key::Lookup(Ino(1), name("a")), NOTHING, &["HSET", "d1", "a", ENTRY]).await;
}

#[tokio::test]
async fn a_directory_that_is_no_longer_empty_conflicts() {
    assert_guarded(&[], Key::HasEntries(Ino(2)), NOTHING, &["HSET", "d2", "a", ENTRY]).await;
}

#[tokio::test]
async fn a_directory_that_became_empty_conflicts_and_one_removed_entry_does_not() {
    assert_guarded(
        &[&["HSET", "d2", "a", ENTRY, "b", ENTRY]],
        Key::HasEntries(Ino(2)),
        &["HDEL", "d2", "b"],
        &["DEL", "d2"],
    )
    .await;
}

#[tokio::test]
async fn a_grown_chunk_conflicts() {
    let record = "012345678901234567890123";
    assert_guarded(
        &[&["RPUSH", "c5_0", record]],
        Key::Chunk(Ino(5), 0),
        &["RPUSH", "c5_1", record],
        &["RPUSH", "c5_0", record],
    )
    .await;
}

#[tokio::test]
async fn a_changed_symlink_conflicts() {
    assert_guarded(&[&["SET", "s5", "x"]], Key::Symlink(Ino(5)), NOTHING, &["SET", "s5", "y"])
        .await;
}

#[tokio::test]
async fn reading_one_xattr_guards_it_and_reading_all_guards_all() {
    let setup: &[&[&str]] = &[&["HSET", "x5", "user.a", "1"]];
    let other = &["HSET", "x5", "user.b", "2"];
    let own = &["HSET", "x5", "user.a", "2"];
    assert_guarded(setup, Key::Xattr(Ino(5), name("user.a")), other, own).await;
    assert_guarded(setup, Key::Xattrs(Ino(5)), NOTHING, other).await;
    assert_guarded(setup, Key::Xattrs(Ino(5)), NOTHING, own).await;
    assert_guarded(&[], Key::Xattrs(Ino(5)), NOTHING, own).await;
}

#[tokio::test]
async fn changed_parents_conflict() {
    assert_guarded(
        &[&["HSET", "p5", "1", "2", "2", "0"]],
        Key::Parents(Ino(5)),
        NOTHING,
        &["HINCRBY", "p5", "1", "-1"],
    )
    .await;
}

#[tokio::test]
async fn changed_locks_conflict() {
    assert_guarded(
        &[&["HSET", "lockf5", "1_000000000000000A", "R"]],
        Key::Flocks(Ino(5)),
        NOTHING,
        &["HSET", "lockf5", "2_000000000000000B", "R"],
    )
    .await;
    assert_guarded(&[], Key::Plocks(Ino(5)), NOTHING, &["HSET", "lockp5", "2_0A", ""]).await;
}

#[tokio::test]
async fn a_released_sustained_inode_conflicts() {
    let key = Key::Sustained(Sid(1), Ino(5));
    let setup: &[&[&str]] = &[&["SADD", "session1", "5", "6"]];
    assert_guarded(setup, key.clone(), &["SREM", "session1", "6"], &["SREM", "session1", "5"])
        .await;
    assert_guarded(&[], key, &["SADD", "session1", "6"], &["SADD", "session1", "5"]).await;
}

#[tokio::test]
async fn slice_references_stats_quotas_and_rules_are_guarded_by_field() {
    let key = Key::SliceRef(SliceId(1), 2);
    let (other, own) = (&["HSET", "sliceRef", "k2_2", "1"], &["HSET", "sliceRef", "k1_2", "0"]);
    assert_guarded(&[], key, other, own).await;
    let key = Key::DirStat(Ino(5));
    assert_guarded(&[], key.clone(), NOTHING, &["HSET", "dirUsedInodes", "5", "1"]).await;
    assert_guarded(&[], key, NOTHING, &["HSET", "dirDataLength", "5", "1"]).await;
    let key = Key::Quota(QuotaKey::User(5));
    assert_guarded(&[], key, NOTHING, &["HSET", "userQuotaUsedInodes", "5", "1"]).await;
    assert_guarded(&[], Key::Acl(1), NOTHING, &["HSET", "acl", "1", "rule"]).await;
}

#[tokio::test]
async fn a_peek_guards_nothing() {
    let server = Server::start();
    let engine = server.engine().await;
    let mut txn = engine.begin();
    txn.peek(&[Key::Symlink(Ino(5))]).await.unwrap();
    server.run::<()>(&["SET", "s5", "y"]);
    txn.commit(&marker()).await.unwrap();
}

#[tokio::test]
async fn replacing_the_first_slices_does_not_conflict_with_appends() {
    let server = Server::start();
    let engine = server.engine().await;
    let append = |id| Change::AppendSlices {
        ino: Ino(5),
        index: 0,
        slices: vec![slice(id, 0)],
        if_present: false,
    };
    put(&engine, &[append(1), append(2)]).await;
    let mut txn = engine.begin();
    txn.read(&[Key::Chunk(Ino(5), 0)]).await.unwrap();
    put(&engine, &[append(3)]).await;
    let with = vec![slice(8, 0), slice(9, 0)];
    let compact = [Change::ReplaceSlices { ino: Ino(5), index: 0, count: 2, with }];
    txn.commit(&compact).await.unwrap();
    let now = read_one(&engine, Key::Chunk(Ino(5), 0)).await;
    assert_eq!(now, Record::Chunk(vec![slice(8, 0), slice(9, 0), slice(3, 0)]));
}

#[tokio::test]
async fn replacing_changed_slices_conflicts() {
    let server = Server::start();
    let engine = server.engine().await;
    let append = Change::AppendSlices {
        ino: Ino(5),
        index: 0,
        slices: vec![slice(1, 0), slice(2, 0)],
        if_present: false,
    };
    put(&engine, &[append]).await;
    let compact =
        Change::ReplaceSlices { ino: Ino(5), index: 0, count: 2, with: vec![slice(9, 0)] };
    let result = commit_around(
        &engine,
        Key::Chunk(Ino(5), 0),
        || server.run(&["LTRIM", "c5_0", "1", "-1"]),
        std::slice::from_ref(&compact),
    )
    .await;
    assert!(is_conflict(&result), "{result:?}");
    assert_eq!(server.run::<i64>(&["LLEN", "c5_0"]), 1);
}

#[tokio::test]
async fn replacing_slices_that_were_not_read_is_refused() {
    let server = Server::start();
    let engine = server.engine().await;
    let compact =
        Change::ReplaceSlices { ino: Ino(5), index: 0, count: 2, with: vec![slice(9, 0)] };
    let result = engine.begin().commit(std::slice::from_ref(&compact)).await;
    assert!(matches!(result, Err(CommitError::Failed(_))), "{result:?}");
}

#[tokio::test]
async fn appends_to_a_chunk_that_was_not_read_never_conflict() {
    let server = Server::start();
    let engine = server.engine().await;
    let append = |id| Change::AppendSlices {
        ino: Ino(5),
        index: 0,
        slices: vec![slice(id, 0)],
        if_present: false,
    };
    let (mut one, mut two) = (engine.begin(), engine.begin());
    one.read(&[Key::Attr(Ino(5))]).await.unwrap();
    two.read(&[Key::Attr(Ino(5))]).await.unwrap();
    assert_eq!(one.commit(&[append(1)]).await.unwrap(), [1]);
    assert_eq!(two.commit(&[append(2)]).await.unwrap(), [2]);
}

#[tokio::test]
async fn of_two_creates_of_the_same_name_one_succeeds() {
    let server = Server::start();
    let engine = server.engine().await;
    let key = [Key::Attr(Ino(1)), Key::Entry(Ino(1), name("a"))];
    let (mut one, mut two) = (engine.begin(), engine.begin());
    one.read(&key).await.unwrap();
    two.read(&key).await.unwrap();
    let create = |ino| [Change::PutEntry(Ino(1), name("a"), entry(ino))];
    one.commit(&create(5)).await.unwrap();
    assert!(is_conflict(&two.commit(&create(6)).await));
    assert_eq!(read_one(&engine, key[1].clone()).await, Record::Entry(Some(entry(5))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_updates_of_many_tasks_are_all_kept() {
    let server = Server::start();
    let engine = std::sync::Arc::new(server.engine().await);
    put(&engine, &[Change::PutAttr(Ino(5), Attr { nlink: 0, ..file() })]).await;
    let add = |engine: std::sync::Arc<RedisEngine>| async move {
        for _ in 0..10 {
            loop {
                let mut txn = engine.begin();
                let Record::Attr(Some(mut attr)) =
                    txn.read(&[Key::Attr(Ino(5))]).await.unwrap().remove(0)
                else {
                    panic!()
                };
                attr.nlink += 1;
                match txn.commit(&[Change::PutAttr(Ino(5), attr)]).await {
                    Ok(_) => break,
                    Err(CommitError::Conflict) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
    };
    let tasks: Vec<_> = (0..20).map(|_| tokio::spawn(add(engine.clone()))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let Record::Attr(Some(attr)) = read_one(&engine, Key::Attr(Ino(5))).await else { panic!() };
    assert_eq!(attr.nlink, 200);
}

#[tokio::test]
async fn a_plan_with_thousands_of_records_fits_in_one_commit() {
    let server = Server::start();
    let engine = server.engine().await;
    let slices: Vec<Slice> = (0..9000).map(|i| slice(i + 1, 0)).collect();
    let append =
        Change::AppendSlices { ino: Ino(5), index: 0, slices: slices.clone(), if_present: false };
    assert_eq!(put(&engine, &[append]).await, [9000]);
    let mut txn = engine.begin();
    let keys: Vec<Key> = (0..3000).map(|i| Key::Attr(Ino(i + 10))).collect();
    txn.read(&keys).await.unwrap();
    txn.read(&[Key::Chunk(Ino(5), 0)]).await.unwrap();
    let with: Vec<Slice> = slices.iter().rev().copied().collect();
    let mut changes: Vec<Change> =
        (0..3000).map(|i| Change::PutAttr(Ino(i + 10), file())).collect();
    changes.push(Change::ReplaceSlices { ino: Ino(5), index: 0, count: 9000, with: with.clone() });
    txn.commit(&changes).await.unwrap();
    assert_eq!(read_one(&engine, Key::Chunk(Ino(5), 0)).await, Record::Chunk(with));
}

/// Inodes of the files in directory 1 that are removed together.
const MANY: std::ops::Range<u8> = 20..60;

fn entry_text(ino: u8) -> String {
    format!("\u{1}\0\0\0\0\0\0\0{}", char::from(ino))
}

/// Creates the files, reads them, lets another client interfere, and removes them in one commit.
async fn remove_many_around(
    server: &Server,
    interfering: &[&str],
) -> Result<Vec<i64>, CommitError> {
    let engine = server.engine().await;
    let (attr, _) = ascii_attrs();
    for ino in MANY {
        server.run::<redis::Value>(&["SET", &format!("i{ino}"), &attr]);
        server.run::<redis::Value>(&["HSET", "d1", &format!("f{ino}"), &entry_text(ino)]);
    }
    let inos = || MANY.map(|ino| Ino(u64::from(ino)));
    let listed: Vec<(Name, Entry)> =
        inos().map(|ino| (name(&format!("f{ino}")), Entry { kind: FileKind::File, ino })).collect();
    let mut txn = engine.begin();
    assert!(txn.speculate_entries(Ino(1), &listed));
    txn.read(&inos().map(Key::Attr).collect::<Vec<_>>()).await.unwrap();
    server.run::<redis::Value>(interfering);
    let mut changes = Vec::new();
    for (name, entry) in listed {
        changes.push(Change::RemoveEntry(Ino(1), name));
        changes.push(Change::PutDeletedFile { ino: entry.ino, length: 0, at: 1 });
        changes.push(Change::RemoveAttr(entry.ino));
        changes.push(Change::RemoveXattrs(entry.ino));
    }
    txn.commit(&changes).await
}

#[tokio::test]
async fn each_of_many_files_that_are_removed_together_is_guarded() {
    let server = Server::start();
    let (attr, other) = ascii_attrs();
    let longer = format!("{attr}x");
    for interfering in [
        &["SET", "i33", &other][..],
        &["SET", "i33", &longer],
        &["SET", "i33", ""],
        &["DEL", "i59"],
        &["HSET", "d1", "f20", &entry_text(21)],
        &["HSET", "d1", "f20", "odd"],
        &["HDEL", "d1", "f59"],
        &["MSET", "i20", &attr[1..], "i21", &longer],
    ] {
        let outcome = remove_many_around(&server, interfering).await;
        assert!(is_conflict(&outcome), "{interfering:?}: {outcome:?}");
        assert!(server.run::<i64>(&["HLEN", "d1"]) >= 39, "{interfering:?}");
        assert_eq!(server.run::<i64>(&["EXISTS", "delfiles"]), 0, "{interfering:?}");
    }
    server.run::<redis::Value>(&["HSET", "x25", "user.a", "1"]);
    remove_many_around(&server, &["HSET", "d1", "new", &entry_text(90)]).await.unwrap();
    assert_eq!(server.run::<Vec<String>>(&["HKEYS", "d1"]), ["new"]);
    assert_eq!(server.run::<i64>(&["ZCARD", "delfiles"]), 40);
    assert_eq!(server.run::<Vec<String>>(&["KEYS", "[ix]??"]), Vec::<String>::new());
}

#[tokio::test]
async fn each_of_many_attrs_of_different_lengths_is_guarded() {
    let server = Server::start();
    let engine = server.engine().await;
    let (attr, other) = ascii_attrs();
    for ino in MANY {
        // Records of older clients lack the last fields.
        let end = if ino % 2 == 0 { attr.len() } else { 63 };
        server.run::<redis::Value>(&["SET", &format!("i{ino}"), &attr[..end]]);
    }
    let keys: Vec<Key> = MANY.map(|ino| Key::Attr(Ino(u64::from(ino)))).collect();
    for (interfering, is_harmless) in
        [(NOTHING, true), (&["SET", "i40", &other], false), (&["DEL", "i41"], false)]
    {
        let mut txn = engine.begin();
        txn.read(&keys).await.unwrap();
        server.run::<redis::Value>(interfering);
        let outcome = txn.commit(&marker()).await;
        assert_eq!(outcome.is_ok(), is_harmless, "{interfering:?}: {outcome:?}");
    }
}
