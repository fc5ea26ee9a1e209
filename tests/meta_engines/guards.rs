//! Guards: a commit succeeds only if every guarded record is unchanged.

mod cases;

use bytes::Bytes;
use jfs::meta::Timestamp;
use jfs::meta::engine::{Change, Engine, Key};
use jfs::meta::record::{AclRule, FileKind, Quota, QuotaKey};

use crate::fixtures::*;
use cases::{Case, cases};

/// A change that is independent of all cases.
fn unrelated() -> Vec<Change> {
    vec![Change::PutSymlink(jfs::meta::Ino(99), Bytes::from_static(b"done"))]
}

async fn is_applied(engine: &dyn Engine) -> bool {
    symlink(engine, jfs::meta::Ino(99)).await.is_some()
}

/// Empties the store between cases.
async fn clear(engine: &dyn Engine) {
    engine.wipe().await.expect("wipes");
    engine.prepare().await.expect("prepares");
}

fn limits(max_space: i64) -> Quota {
    Quota { max_space, max_inodes: 10, used_space: 0, used_inodes: 0 }
}

on_every_engine! {
    async fn a_changed_guard_is_a_conflict_and_nothing_is_applied(store) {
        let engine = store.engine.as_ref();
        let other = store.second_client().await;
        for Case { key, before, meanwhile } in cases() {
            clear(engine).await;
            commit(engine, &before).await;
            let mut tx = engine.begin();
            tx.read(std::slice::from_ref(&key)).await.expect("reads");
            commit(other.as_ref(), &meanwhile).await;
            let result = tx.commit(&unrelated()).await;
            assert!(
                matches!(result, Err(jfs::meta::engine::CommitError::Conflict)),
                "{key:?} after {before:?} and {meanwhile:?}: {result:?}"
            );
            assert!(!is_applied(engine).await, "{key:?}: a conflict was applied");
        }
    }

    async fn an_unchanged_guard_is_no_conflict(store) {
        let engine = store.engine.as_ref();
        let other = store.second_client().await;
        for Case { key, before, .. } in cases() {
            clear(engine).await;
            commit(engine, &before).await;
            let mut tx = engine.begin();
            tx.read(std::slice::from_ref(&key)).await.expect("reads");
            let elsewhere = jfs::meta::Ino(55);
            let beside = [
                Change::PutAttr(elsewhere, attr(FileKind::File)),
                Change::PutXattr(elsewhere, name("user.k"), Bytes::from_static(b"v")),
                append(elsewhere, 0, vec![slice(9)]),
                append(FILE, 1, vec![slice(9)]),
            ];
            commit(other.as_ref(), &beside).await;
            let result = tx.commit(&unrelated()).await;
            assert!(result.is_ok(), "{key:?} after {before:?}: {result:?}");
            assert!(is_applied(engine).await);
        }
    }

    async fn a_peek_does_not_guard(store) {
        let engine = store.engine.as_ref();
        let other = store.second_client().await;
        for Case { key, before, meanwhile } in cases() {
            clear(engine).await;
            commit(engine, &before).await;
            let mut tx = engine.begin();
            tx.peek(std::slice::from_ref(&key)).await.expect("peeks");
            commit(other.as_ref(), &meanwhile).await;
            let result = tx.commit(&unrelated()).await;
            assert!(result.is_ok(), "{key:?} after {before:?} and {meanwhile:?}: {result:?}");
        }
    }

    async fn a_guard_that_the_commit_itself_writes_is_no_conflict(store) {
        let engine = store.engine.as_ref();
        for Case { key, before, meanwhile } in cases() {
            clear(engine).await;
            commit(engine, &before).await;
            let mut tx = engine.begin();
            tx.read(std::slice::from_ref(&key)).await.expect("reads");
            let result = tx.commit(&meanwhile).await;
            assert!(result.is_ok(), "{key:?} after {before:?} and {meanwhile:?}: {result:?}");
        }
    }

    async fn other_names_may_be_added(store) {
        let engine = store.engine.as_ref();
        let mut tx = engine.begin();
        tx.read(&[Key::Lookup(DIR, name("a")), Key::Entry(DIR, name("b"))]).await.expect("reads");
        commit(engine, &[Change::PutEntry(DIR, name("c"), entry(FILE))]).await;
        tx.commit(&unrelated()).await.expect("another name is no conflict");
    }

    async fn a_directory_that_has_entries_may_get_more(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::PutEntry(DIR, name("b"), entry(FILE))]).await;
        let mut tx = engine.begin();
        tx.read(&[Key::HasEntries(DIR)]).await.expect("reads");
        commit(engine, &[Change::PutEntry(DIR, name("a"), entry(FILE))]).await;
        tx.commit(&unrelated()).await.expect("it still has entries");
    }

    async fn entries_added_to_a_place_are_no_conflict(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::PutAttr(DIR, dir())]).await;
        let mut tx = engine.begin();
        tx.read(&[Key::Place(DIR), Key::Entry(DIR, name("a"))]).await.expect("reads");
        let beside = [
            Change::TouchDir { ino: DIR, links: 1, at: Some(Timestamp::from_secs(1_800_000_000)) },
            Change::PutEntry(DIR, name("b"), entry(OTHER)),
        ];
        commit(engine, &beside).await;
        let mine = [
            Change::TouchDir { ino: DIR, links: 1, at: Some(Timestamp::from_secs(1_700_000_009)) },
            Change::PutEntry(DIR, name("a"), entry(FILE)),
        ];
        tx.commit(&mine).await.expect("other entries are no conflict");
        let dir = attr_of(engine, DIR).await.expect("exists");
        assert_eq!((dir.nlink, dir.mtime.sec), (4, 1_800_000_000));
    }

    async fn touching_a_directory_conflicts_with_a_guard_on_its_attr(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::PutAttr(DIR, dir())]).await;
        let touch = || Change::TouchDir { ino: DIR, links: 1, at: None };
        let mut tx = engine.begin();
        tx.read(&[Key::Attr(DIR)]).await.expect("reads");
        commit(engine, &[touch()]).await;
        assert_conflict(&tx.commit(&unrelated()).await);

        let mut tx = engine.begin();
        tx.read(&[Key::Place(DIR)]).await.expect("reads");
        tx.read(&[Key::Attr(DIR)]).await.expect("reads it again as an attr");
        commit(engine, &[touch()]).await;
        assert_conflict(&tx.commit(&unrelated()).await);
    }

    async fn a_changed_quota_is_a_conflict(store) {
        let engine = store.engine.as_ref();
        for key in [QuotaKey::Dir(DIR), QuotaKey::User(7), QuotaKey::Group(7)] {
            for max_space in [1 << 20, 1 << 30] {
                let mut tx = engine.begin();
                tx.read(&[Key::Quota(key)]).await.expect("reads");
                engine.put_quota(key, &limits(max_space), true).await.expect("puts");
                assert_conflict(&tx.commit(&unrelated()).await);
            }
        }
    }

    async fn a_removed_directory_quota_is_a_conflict(store) {
        let engine = store.engine.as_ref();
        engine.put_quota(QuotaKey::Dir(DIR), &limits(1), true).await.expect("puts");
        let mut tx = engine.begin();
        tx.read(&[Key::Quota(QuotaKey::Dir(DIR))]).await.expect("reads");
        commit(engine, &[Change::RemoveDirQuota(DIR)]).await;
        assert_conflict(&tx.commit(&unrelated()).await);
    }

    async fn a_new_acl_rule_is_a_conflict(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        let rule = AclRule { owner: 7, group: 5, mask: 5, other: 0, users: vec![], groups: vec![] };
        let id = engine.insert_acl(&rule).await.expect("inserts");
        let mut tx = engine.begin();
        tx.read(&[Key::Acl(id + 1)]).await.expect("reads");
        assert_eq!(engine.insert_acl(&rule).await.expect("inserts"), id + 1);
        assert_conflict(&tx.commit(&unrelated()).await);
    }

    async fn one_changed_guard_among_many_is_a_conflict(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::PutAttr(DIR, dir()), Change::PutAttr(FILE, file())]).await;
        let mut tx = engine.begin();
        tx.read(&[Key::Attr(DIR), Key::Entry(DIR, name("a"))]).await.expect("reads");
        tx.read(&[Key::Attr(FILE), Key::Chunk(FILE, 0)]).await.expect("reads more");
        commit(engine, &[Change::PutAttr(FILE, attr(FileKind::File))]).await;
        assert_conflict(&tx.commit(&unrelated()).await);
    }
}
