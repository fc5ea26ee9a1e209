//! Guards: a commit goes through only if everything read is as it was.

mod cases;

use bytes::Bytes;
use jfs::meta::Timestamp;
use jfs::meta::engine::{Change, Engine, Key};
use jfs::meta::record::{AclRule, FileKind, Quota, QuotaKey};

use crate::fixtures::*;
use cases::{Case, cases};

/// A change that touches nothing of the cases.
fn unrelated() -> Vec<Change> {
    vec![Change::PutSymlink(jfs::meta::Ino(99), Bytes::from_static(b"done"))]
}

async fn is_done(engine: &dyn Engine) -> bool {
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
    async fn what_was_read_and_changed_is_a_conflict_and_nothing_is_applied(store) {
        let engine = store.engine.as_ref();
        let other = store.another().await;
        for Case { key, before, meanwhile } in cases() {
            clear(engine).await;
            commit(engine, &before).await;
            let mut tx = engine.begin();
            tx.read(std::slice::from_ref(&key)).await.expect("reads");
            commit(other.as_ref(), &meanwhile).await;
            let answer = tx.commit(&unrelated()).await;
            assert!(
                matches!(answer, Err(jfs::meta::engine::CommitError::Conflict)),
                "{key:?} after {before:?} and {meanwhile:?}: {answer:?}"
            );
            assert!(!is_done(engine).await, "{key:?}: a conflict was applied");
        }
    }

    async fn what_was_read_and_not_changed_is_no_conflict(store) {
        let engine = store.engine.as_ref();
        let other = store.another().await;
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
            let answer = tx.commit(&unrelated()).await;
            assert!(answer.is_ok(), "{key:?} after {before:?}: {answer:?}");
            assert!(is_done(engine).await);
        }
    }

    async fn what_was_only_peeked_at_is_no_guard(store) {
        let engine = store.engine.as_ref();
        let other = store.another().await;
        for Case { key, before, meanwhile } in cases() {
            clear(engine).await;
            commit(engine, &before).await;
            let mut tx = engine.begin();
            tx.peek(std::slice::from_ref(&key)).await.expect("peeks");
            commit(other.as_ref(), &meanwhile).await;
            let answer = tx.commit(&unrelated()).await;
            assert!(answer.is_ok(), "{key:?} after {before:?} and {meanwhile:?}: {answer:?}");
        }
    }

    async fn a_key_read_and_then_written_by_the_plan_itself_is_no_conflict(store) {
        let engine = store.engine.as_ref();
        for Case { key, before, meanwhile } in cases() {
            clear(engine).await;
            commit(engine, &before).await;
            let mut tx = engine.begin();
            tx.read(std::slice::from_ref(&key)).await.expect("reads");
            let answer = tx.commit(&meanwhile).await;
            assert!(answer.is_ok(), "{key:?} after {before:?} and {meanwhile:?}: {answer:?}");
        }
    }

    async fn a_name_beside_the_one_read_may_come_and_go(store) {
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

    async fn what_comes_and_goes_in_a_place_is_no_conflict(store) {
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
        tx.commit(&mine).await.expect("entries of others are no conflict");
        let dir = attr_of(engine, DIR).await.expect("is there");
        assert_eq!((dir.nlink, dir.mtime.sec), (4, 1_800_000_000));
    }

    async fn an_attr_that_was_touched_is_a_conflict_for_who_read_all_of_it(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::PutAttr(DIR, dir())]).await;
        let touch = || Change::TouchDir { ino: DIR, links: 1, at: None };
        let mut tx = engine.begin();
        tx.read(&[Key::Attr(DIR)]).await.expect("reads");
        commit(engine, &[touch()]).await;
        assert_conflict(&tx.commit(&unrelated()).await);

        let mut tx = engine.begin();
        tx.read(&[Key::Place(DIR)]).await.expect("reads");
        tx.read(&[Key::Attr(DIR)]).await.expect("reads it once more, as a whole");
        commit(engine, &[touch()]).await;
        assert_conflict(&tx.commit(&unrelated()).await);
    }

    async fn a_quota_that_changed_is_a_conflict(store) {
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

    async fn a_directory_quota_that_went_is_a_conflict(store) {
        let engine = store.engine.as_ref();
        engine.put_quota(QuotaKey::Dir(DIR), &limits(1), true).await.expect("puts");
        let mut tx = engine.begin();
        tx.read(&[Key::Quota(QuotaKey::Dir(DIR))]).await.expect("reads");
        commit(engine, &[Change::RemoveDirQuota(DIR)]).await;
        assert_conflict(&tx.commit(&unrelated()).await);
    }

    async fn an_acl_rule_that_came_is_a_conflict(store) {
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
