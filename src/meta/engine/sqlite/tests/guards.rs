//! Guards: a commit conflicts if and only if a record that it read has changed.

use super::*;
use crate::meta::record::{AclRule, DirStat, LockKind, PlockRange, Quota, QuotaKey, SliceSize};
use crate::meta::{LockOwner, Sid};

const DIR: Ino = Ino(10);
const FILE: Ino = Ino(11);
const SLICE: SliceSize = SliceSize { id: SliceId(7), size: 100 };

/// Returns a volume with a file that has a record of every kind.
async fn volume_with_all_records() -> Volume {
    let volume = Volume::new().await;
    volume
        .apply(&[
            Change::PutAttr(DIR, dir_attr(0o755)),
            Change::PutAttr(FILE, file_attr()),
            Change::PutEntry(DIR, name("f"), file(FILE.0)),
            Change::PutSymlink(FILE, bytes("target")),
            Change::PutXattr(FILE, name("user.a"), bytes("1")),
            Change::AppendSlices {
                ino: FILE,
                index: 0,
                slices: vec![slice(7, 100)],
                if_present: false,
            },
            Change::NewSlice(SLICE),
            Change::PutDirStat(DIR, DirStat { length: 1, space: 2, inodes: 3 }),
        ])
        .await
        .unwrap();
    let quota = Quota { max_space: 1, max_inodes: 2, used_space: 3, used_inodes: 4 };
    volume.engine.put_quota(QuotaKey::Dir(DIR), &quota, true).await.unwrap();
    volume
}

fn entry_moved() -> Change {
    Change::PutEntry(DIR, name("f"), file(12))
}

fn touched(ino: Ino) -> Change {
    let mut attr = file_attr();
    attr.mtime = Timestamp::from_secs(1);
    Change::PutAttr(ino, attr)
}

/// Reads `key`, applies the changes of another client, and commits.
async fn commit_after(key: Key, others: &[Change]) -> Result<Vec<i64>, CommitError> {
    let volume = volume_with_all_records().await;
    let mut tx = volume.engine.begin();
    tx.read(&[key]).await.unwrap();
    volume.apply(others).await.unwrap();
    let outcome = tx.commit(&[Change::PutSymlink(Ino(99), bytes("mine"))]).await;
    let written = volume.read(Key::Symlink(Ino(99))).await != Record::Symlink(None);
    assert_eq!(outcome.is_ok(), written, "a conflicting commit leaves nothing");
    outcome
}

async fn conflicts(key: Key, others: &[Change]) {
    let what = format!("{key:?}");
    let outcome = commit_after(key, others).await;
    assert!(matches!(outcome, Err(CommitError::Conflict)), "{what}: {outcome:?}");
}

async fn holds(key: Key, others: &[Change]) {
    let what = format!("{key:?}");
    let outcome = commit_after(key, others).await;
    assert!(outcome.is_ok(), "{what}: {outcome:?}");
}

#[tokio::test]
async fn an_attr_is_guarded() {
    conflicts(Key::Attr(FILE), &[touched(FILE)]).await;
    conflicts(Key::Attr(FILE), &[Change::RemoveAttr(FILE)]).await;
    conflicts(Key::Attr(Ino(50)), &[touched(Ino(50))]).await;
    holds(Key::Attr(FILE), &[touched(DIR)]).await;
}

#[tokio::test]
async fn an_entry_is_guarded() {
    conflicts(Key::Entry(DIR, name("f")), &[entry_moved()]).await;
    conflicts(Key::Entry(DIR, name("f")), &[Change::RemoveEntry(DIR, name("f"))]).await;
    conflicts(Key::Entry(DIR, name("g")), &[Change::PutEntry(DIR, name("g"), file(12))]).await;
    holds(Key::Entry(DIR, name("f")), &[Change::PutEntry(DIR, name("g"), file(12))]).await;
    holds(Key::Entry(DIR, name("f")), &[touched(FILE)]).await;
}

#[tokio::test]
async fn a_lookup_guards_the_entry_and_its_attr() {
    let key = || Key::Lookup(DIR, name("f"));
    conflicts(key(), &[touched(FILE)]).await;
    conflicts(key(), &[entry_moved(), touched(Ino(12))]).await;
    conflicts(key(), &[Change::RemoveEntry(DIR, name("f"))]).await;
    holds(key(), &[Change::PutEntry(DIR, name("g"), file(12))]).await;
}

#[tokio::test]
async fn an_empty_directory_is_guarded() {
    conflicts(Key::HasEntries(DIR), &[Change::RemoveEntry(DIR, name("f"))]).await;
    conflicts(Key::HasEntries(FILE), &[Change::PutEntry(FILE, name("x"), file(12))]).await;
    holds(Key::HasEntries(DIR), &[Change::PutEntry(DIR, name("g"), file(12))]).await;
}

#[tokio::test]
async fn a_chunk_is_guarded() {
    let more =
        Change::AppendSlices { ino: FILE, index: 0, slices: vec![slice(8, 1)], if_present: false };
    let other =
        Change::AppendSlices { ino: FILE, index: 1, slices: vec![slice(8, 1)], if_present: false };
    conflicts(Key::Chunk(FILE, 0), &[more]).await;
    conflicts(Key::Chunk(FILE, 0), &[Change::RemoveChunk { ino: FILE, index: 0 }]).await;
    holds(Key::Chunk(FILE, 0), &[other]).await;
}

#[tokio::test]
async fn replacing_slices_guards_only_those_replaced() {
    let volume = volume_with_all_records().await;
    let append = |id| Change::AppendSlices {
        ino: FILE,
        index: 0,
        slices: vec![slice(id, 1)],
        if_present: false,
    };
    volume.apply(&[append(8)]).await.unwrap();
    let compact =
        Change::ReplaceSlices { ino: FILE, index: 0, count: 2, with: vec![slice(20, 101)] };

    let mut tx = volume.engine.begin();
    tx.read(&[Key::Chunk(FILE, 0)]).await.unwrap();
    volume.apply(&[append(9)]).await.unwrap();
    tx.commit(std::slice::from_ref(&compact)).await.unwrap();
    let now = Record::Chunk(vec![slice(20, 101), slice(9, 1)]);
    assert_eq!(volume.read(Key::Chunk(FILE, 0)).await, now);

    let mut tx = volume.engine.begin();
    tx.read(&[Key::Chunk(FILE, 0)]).await.unwrap();
    volume.apply(&[Change::RemoveChunk { ino: FILE, index: 0 }, append(30)]).await.unwrap();
    assert!(matches!(tx.commit(&[compact]).await, Err(CommitError::Conflict)));
    assert_eq!(volume.read(Key::Chunk(FILE, 0)).await, Record::Chunk(vec![slice(30, 1)]));
}

#[tokio::test]
async fn symlinks_and_xattrs_are_guarded() {
    let set = |text| Change::PutXattr(FILE, name("user.a"), bytes(text));
    conflicts(Key::Symlink(FILE), &[Change::PutSymlink(FILE, bytes("other"))]).await;
    conflicts(Key::Xattr(FILE, name("user.a")), &[set("2")]).await;
    conflicts(Key::Xattr(FILE, name("user.a")), &[Change::RemoveXattr(FILE, name("user.a"))]).await;
    conflicts(Key::Xattrs(FILE), &[Change::PutXattr(FILE, name("user.b"), bytes("2"))]).await;
    conflicts(Key::Xattrs(FILE), &[Change::RemoveXattrs(FILE)]).await;
    holds(Key::Xattrs(FILE), &[set("1")]).await;
}

#[tokio::test]
async fn parents_are_guarded_by_the_entries() {
    conflicts(Key::Parents(FILE), &[Change::PutEntry(DIR, name("g"), file(FILE.0))]).await;
    holds(Key::Parents(FILE), &[Change::PutEntry(DIR, name("g"), file(12))]).await;
}

#[tokio::test]
async fn locks_are_guarded() {
    let (sid, owner) = (Sid(1), LockOwner(u64::MAX));
    let flock = Change::PutFlock { ino: FILE, sid, owner, kind: LockKind::Read };
    let range = PlockRange { kind: LockKind::Write, pid: 1, start: 0, end: 9 };
    let plock = Change::PutPlock { ino: FILE, sid, owner, ranges: vec![range] };
    conflicts(Key::Flocks(FILE), std::slice::from_ref(&flock)).await;
    conflicts(Key::Plocks(FILE), std::slice::from_ref(&plock)).await;
    holds(Key::Flocks(FILE), &[plock]).await;
    holds(Key::Plocks(FILE), &[flock]).await;
}

#[tokio::test]
async fn other_records_are_guarded() {
    let grown = DirStat { length: 2, space: 2, inodes: 3 };
    conflicts(Key::Sustained(Sid(1), FILE), &[Change::AddSustained(Sid(1), FILE)]).await;
    conflicts(Key::SliceRef(SLICE.id, SLICE.size), &[Change::AddSliceRef { slice: SLICE, by: 1 }])
        .await;
    conflicts(Key::DirStat(DIR), &[Change::PutDirStat(DIR, grown)]).await;
    conflicts(Key::Quota(QuotaKey::Dir(DIR)), &[Change::RemoveDirQuota(DIR)]).await;
}

#[tokio::test]
async fn a_rule_that_appears_is_a_conflict() {
    let volume = volume_with_all_records().await;
    let mut tx = volume.engine.begin();
    tx.read(&[Key::Acl(1)]).await.unwrap();
    let unset = AclRule::UNSET;
    let rule = AclRule { owner: 7, group: 5, mask: unset, other: 5, users: vec![], groups: vec![] };
    assert_eq!(volume.engine.insert_acl(&rule).await.unwrap(), 1);
    assert!(matches!(tx.commit(&[touched(FILE)]).await, Err(CommitError::Conflict)));
}

#[tokio::test]
async fn a_peek_does_not_guard() {
    let volume = volume_with_all_records().await;
    let mut tx = volume.engine.begin();
    tx.peek(&[Key::Attr(FILE), Key::Attr(DIR)]).await.unwrap();
    volume.apply(&[touched(FILE)]).await.unwrap();
    tx.commit(&[touched(DIR)]).await.unwrap();
}

#[tokio::test]
async fn guards_of_several_reads_hold_together() {
    let volume = volume_with_all_records().await;
    let mut tx = volume.engine.begin();
    tx.read(&[Key::Attr(DIR), Key::Entry(DIR, name("f"))]).await.unwrap();
    tx.read(&[Key::Attr(FILE)]).await.unwrap();
    volume.apply(&[entry_moved()]).await.unwrap();
    assert!(matches!(tx.commit(&[touched(FILE)]).await, Err(CommitError::Conflict)));
}

#[tokio::test]
async fn many_attrs_are_guarded_one_by_one() {
    let volume = volume_with_all_records().await;
    let inos: Vec<Ino> = (100..1400).map(Ino).collect();
    let puts: Vec<Change> = inos.iter().map(|ino| touched(*ino)).collect();
    volume.apply(&puts).await.unwrap();
    let keys: Vec<Key> = inos.iter().map(|ino| Key::Attr(*ino)).collect();

    let mut tx = volume.engine.begin();
    let read = tx.read(&keys).await.unwrap();
    assert!(read.iter().all(|record| matches!(record, Record::Attr(Some(_)))));
    volume.apply(&[Change::RemoveAttr(Ino(1399))]).await.unwrap();
    assert!(matches!(tx.commit(&[touched(FILE)]).await, Err(CommitError::Conflict)));
}
