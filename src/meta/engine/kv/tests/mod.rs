//! Tests of the mapping itself; `tests/meta_engines` tests what all engines have in common.

mod encoding;

use std::sync::Arc;

use bytes::Bytes;

use super::memory::Fault;
use super::{KvEngine, MemoryStore, StoreKey};
use crate::error::Error;
use crate::meta::engine::{
    Change, ChangeLogRecords, CommitError, CounterRecords, Engine, Key, Record, SessionRecords,
    SettingRecords, UsageRecords, connect,
};
use crate::meta::record::{
    Attr, Counter, DirStat, Entry, FileKind, LockKind, Slice, SliceSize, chunk,
};
use crate::meta::{Ino, LockOwner, Name, Sid, SliceId, Timestamp};

fn setup() -> (Arc<MemoryStore>, KvEngine) {
    let store = MemoryStore::new();
    (store.clone(), KvEngine::new(store))
}

fn attr(kind: FileKind) -> Attr {
    Attr::new(kind, 0o644, 1, 2, Ino::ROOT, Timestamp::from_secs(1000))
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

fn slice(id: u64) -> Slice {
    Slice { pos: 0, id: SliceId(id), size: 100, off: 0, len: 100 }
}

fn append(slices: Vec<Slice>) -> Change {
    Change::AppendSlices { ino: Ino(3), index: 0, slices, if_present: false }
}

fn new_slice(slice: &Slice) -> Change {
    Change::NewSlice(SliceSize { id: slice.id, size: slice.size })
}

async fn commit(engine: &KvEngine, changes: &[Change]) -> Vec<i64> {
    engine.begin().commit(changes).await.expect("commits")
}

async fn chunk_len(engine: &KvEngine) -> usize {
    match engine.read(&[Key::Chunk(Ino(3), 0)]).await.expect("reads").as_slice() {
        [Record::Chunk(slices)] => slices.len(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_new_volume_has_the_keys_that_juicefs_format_writes() {
    let (store, engine) = setup();
    let (root, trash) = (attr(FileKind::Dir), attr(FileKind::Dir));
    engine.store_setting(b"{}", &root, Some(&trash)).await.expect("stores");
    let number = |value: i64| Bytes::copy_from_slice(&value.to_le_bytes());
    let mut expected = vec![
        (StoreKey::Setting.encode(), Bytes::from_static(b"{}")),
        (StoreKey::Attr(Ino::ROOT).encode(), root.encode()),
        (StoreKey::Attr(Ino::TRASH).encode(), trash.encode()),
        (StoreKey::Counter(Counter::NextInode).encode(), number(2)),
        (StoreKey::Counter(Counter::NextChunk).encode(), number(1)),
    ];
    expected.sort();
    assert_eq!(store.dump(), expected);
}

#[tokio::test]
async fn a_create_writes_three_keys_and_leaves_usage_to_the_caller() {
    let (store, engine) = setup();
    let dir = attr(FileKind::Dir);
    let changes = [
        Change::PutAttr(Ino(2), dir.clone()),
        Change::PutEntry(Ino::ROOT, name("d"), Entry { kind: FileKind::Dir, ino: Ino(2) }),
        Change::PutDirStat(Ino(2), DirStat::default()),
        Change::AddUsage { space: 4096, inodes: 1 },
    ];
    commit(&engine, &changes).await;
    let mut expected = vec![
        (StoreKey::Attr(Ino(2)).encode(), dir.encode()),
        (
            StoreKey::Entry(Ino::ROOT, name("d")).encode(),
            Bytes::from_static(b"\x02\0\0\0\0\0\0\0\x02"),
        ),
        (StoreKey::DirStat(Ino(2)).encode(), Bytes::from_static(&[0; 24])),
    ];
    expected.sort();
    assert_eq!(store.dump(), expected);
    assert!(!engine.properties().usage_in_commit);
}

#[tokio::test]
async fn a_slice_written_twice_is_recorded_once() {
    let (_, engine) = setup();
    let write = [new_slice(&slice(7)), append(vec![slice(7)])];
    assert_eq!(commit(&engine, &write).await, [0, 1]);
    assert_eq!(commit(&engine, &write).await, [0, 1]);
    assert_eq!(chunk_len(&engine).await, 1);
}

#[tokio::test]
async fn a_copied_slice_and_a_hole_are_recorded_every_time() {
    let (_, engine) = setup();
    for copied in [slice(7), Slice::hole(0, 100)] {
        commit(&engine, &[append(vec![copied])]).await;
        commit(&engine, &[append(vec![copied])]).await;
    }
    assert_eq!(chunk_len(&engine).await, 4);
}

#[tokio::test]
async fn a_false_conflict_of_the_store_is_retried() {
    let (store, engine) = setup();
    let mut tx = engine.begin();
    tx.read(&[Key::Attr(Ino(3)), Key::HasEntries(Ino(3))]).await.expect("reads");
    store.faults().push(Fault::Conflict);
    store.faults().push(Fault::Conflict);
    assert_eq!(tx.commit(&[append(vec![slice(1)])]).await.expect("commits"), [1]);
}

#[tokio::test]
async fn repeated_conflicts_of_the_store_are_a_conflict() {
    let (store, engine) = setup();
    store.faults().conflict_once();
    let refused = engine.begin().commit(&[append(vec![slice(1)])]).await;
    assert!(matches!(refused, Err(CommitError::Conflict)), "{refused:?}");
    assert!(store.dump().is_empty());
    assert_eq!(commit(&engine, &[append(vec![slice(1)])]).await, [1]);
}

#[tokio::test]
async fn a_guarded_value_that_was_written_back_is_no_conflict() {
    let (_, engine) = setup();
    let file = attr(FileKind::File);
    commit(&engine, &[Change::PutAttr(Ino(3), file.clone())]).await;
    let mut tx = engine.begin();
    tx.read(&[Key::Attr(Ino(3))]).await.expect("reads");
    commit(&engine, &[Change::PutAttr(Ino(3), file)]).await;
    tx.commit(&[append(vec![slice(1)])]).await.expect("commits");
}

#[tokio::test]
async fn a_lost_response_is_unknown_whether_or_not_the_commit_took_effect() {
    for (fault, applied) in [(Fault::LostApplied, 1), (Fault::LostUnapplied, 0)] {
        let (store, engine) = setup();
        store.faults().push(fault);
        let lost = engine.begin().commit(&[append(vec![slice(1)])]).await;
        assert!(matches!(lost, Err(CommitError::Unknown(_))), "{lost:?}");
        assert_eq!(chunk_len(&engine).await, applied);
    }
}

#[tokio::test]
async fn a_lost_response_of_a_record_call_is_reported_as_unknown() {
    let (store, engine) = setup();
    store.faults().push(Fault::LostApplied);
    let lost = engine.add_counter(Counter::UsedSpace, 10).await;
    assert!(matches!(lost, Err(Error::Unknown { .. })), "{lost:?}");
    assert_eq!(engine.counter(Counter::UsedSpace).await.expect("reads"), 10);
}

#[tokio::test]
async fn a_record_call_is_retried_after_a_conflict() {
    let (store, engine) = setup();
    store.faults().push(Fault::Conflict);
    assert_eq!(engine.add_counter(Counter::NextInode, 1024).await.expect("adds"), 1024);
}

#[tokio::test]
async fn changes_of_one_key_in_one_commit_build_on_each_other() {
    let (store, engine) = setup();
    let copied = SliceSize { id: SliceId(7), size: 100 };
    let lock = |owner, kind| Change::PutFlock { ino: Ino(3), sid: Sid(1), owner, kind };
    let results = commit(
        &engine,
        &[
            Change::AddSliceRef { slice: copied, by: 1 },
            Change::AddSliceRef { slice: copied, by: 1 },
            lock(LockOwner(1), LockKind::Read),
            lock(LockOwner(2), LockKind::Read),
            Change::RemoveFlock { ino: Ino(3), sid: Sid(1), owner: LockOwner(1) },
            Change::PutXattr(Ino(3), name("user.a"), Bytes::from_static(b"1")),
            Change::RemoveXattrs(Ino(3)),
            Change::PutXattr(Ino(3), name("user.b"), Bytes::from_static(b"2")),
        ],
    )
    .await;
    assert_eq!(results, [2, 3, 0, 0, 0, 0, 0, 0]);
    let keys: Vec<_> = store.dump().iter().filter_map(|(key, _)| StoreKey::decode(key)).collect();
    assert_eq!(
        keys,
        [
            StoreKey::Xattr(Ino(3), name("user.b")),
            StoreKey::Flocks(Ino(3)),
            StoreKey::SliceRef(SliceId(7), 100),
        ]
    );
}

#[tokio::test]
async fn removing_the_last_lock_removes_its_key() {
    let (store, engine) = setup();
    let (ino, sid, owner) = (Ino(3), Sid(1), LockOwner(1));
    commit(&engine, &[Change::PutFlock { ino, sid, owner, kind: LockKind::Write }]).await;
    commit(&engine, &[Change::PutPlock { ino, sid, owner, ranges: Vec::new() }]).await;
    let removed =
        [Change::RemoveFlock { ino, sid, owner }, Change::RemovePlock { ino, sid, owner }];
    commit(&engine, &removed).await;
    assert!(store.dump().is_empty());
}

#[tokio::test]
async fn nothing_is_stored_for_an_empty_list_of_delayed_slices() {
    let (store, engine) = setup();
    let hole = SliceSize { id: SliceId::HOLE, size: 0 };
    commit(&engine, &[Change::PutDelayed { id: SliceId(9), at: 1, slices: vec![hole] }]).await;
    assert!(store.dump().is_empty());
}

#[tokio::test]
async fn a_chunk_without_records_has_no_key() {
    let (store, engine) = setup();
    commit(&engine, &[append(vec![slice(1)])]).await;
    let compacted = Change::ReplaceSlices { ino: Ino(3), index: 0, count: 1, with: Vec::new() };
    commit(&engine, &[compacted]).await;
    assert!(store.dump().is_empty());
}

#[tokio::test]
async fn legacy_sessions_are_listed_and_become_stale() {
    let (store, engine) = setup();
    store.overwrite(StoreKey::SessionHeartbeat(Sid(4)).encode(), 1000_i64.to_be_bytes().to_vec());
    let session = engine.session(Sid(4)).await.expect("reads").expect("exists");
    assert_eq!((session.expire, session.info.as_slice()), (1300, &b""[..]));
    assert_eq!(engine.sessions().await.expect("lists"), [session]);
    assert_eq!(engine.stale_sessions(1300, 10).await.expect("lists"), []);
    assert_eq!(engine.stale_sessions(1301, 10).await.expect("lists"), [Sid(4)]);
    engine.remove_session(Sid(4)).await.expect("removes");
    assert!(store.dump().is_empty());
}

#[tokio::test]
async fn a_removed_directory_gets_no_stat() {
    let (store, engine) = setup();
    engine.put_dir_stat(Ino(2), &DirStat::default()).await.expect("passes");
    assert!(store.dump().is_empty());
}

#[tokio::test]
async fn the_error_of_a_damaged_record_names_it() {
    let (store, engine) = setup();
    store.overwrite(StoreKey::Attr(Ino(5)).encode(), "short");
    let damaged = engine.read(&[Key::Attr(Ino(5))]).await.expect_err("is damaged");
    assert!(damaged.to_string().contains("Attr(Ino(5))"), "{damaged}");
}

#[tokio::test]
async fn a_commit_on_a_damaged_chunk_fails_and_keeps_it() {
    let (store, engine) = setup();
    let raw = chunk::encode(&[slice(1)]).slice(..20);
    store.overwrite(StoreKey::Chunk(Ino(3), 0).encode(), raw.clone());
    let failed = engine.begin().commit(&[append(vec![slice(2)])]).await;
    assert!(matches!(failed, Err(CommitError::Failed(Error::Damaged { .. }))), "{failed:?}");
    assert_eq!(store.dump(), [(StoreKey::Chunk(Ino(3), 0).encode(), raw)]);
}

#[tokio::test]
async fn both_lines_of_one_commit_are_logged() {
    let (_, engine) = setup();
    let line = |text: &str| Change::Log(text.to_owned());
    commit(&engine, &[line("1.0|A()|(1,1)"), line("1.0|B()|(1,1)")]).await;
    let lines = engine.change_log(0, 10).await.expect("reads");
    assert_eq!(
        lines.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>(),
        ["1.0|A()|(1,1)", "1.0|B()|(1,1)"]
    );
}

#[tokio::test]
async fn a_sharded_log_is_read_in_the_order_of_its_commits() {
    let store = MemoryStore::with_log_shards(4);
    let engine = KvEngine::new(store.clone());
    for second in 0..20 {
        commit(&engine, &[Change::Log(format!("{second}.0|A()|(1,1)"))]).await;
    }
    let lines = engine.change_log(0, 100).await.expect("reads");
    let seconds: Vec<String> = (0..20).map(|second| format!("{second}.0|A()|(1,1)")).collect();
    assert_eq!(lines.iter().map(|(_, line)| line.clone()).collect::<Vec<_>>(), seconds);

    engine.trim_change_log(Some(5), Some(12)).await.expect("trims");
    let lines = engine.change_log(0, 3).await.expect("reads");
    assert_eq!(lines.iter().map(|(_, line)| line.clone()).collect::<Vec<_>>(), seconds[8..11]);
}

#[tokio::test]
async fn engines_that_name_the_same_store_share_it() {
    let one = connect("memkv://shared-by-name").await.expect("connects");
    let two = connect("memkv://shared-by-name").await.expect("connects");
    let other = connect("memkv://other").await.expect("connects");
    one.add_counter(Counter::NextInode, 5).await.expect("adds");
    assert_eq!(two.counter(Counter::NextInode).await.expect("reads"), 5);
    assert_eq!(other.counter(Counter::NextInode).await.expect("reads"), 0);
    assert_eq!((one.name(), one.address()), ("memkv", "memkv://shared-by-name"));
}
