//! The setting, new volumes and wiping them.

use jfs::meta::Ino;
use jfs::meta::engine::{Change, Cursor};
use jfs::meta::record::{Counter, FileKind};

use crate::fixtures::*;

on_every_engine! {
    async fn a_store_without_a_volume_has_no_setting(store) {
        assert_eq!(store.engine.load_setting().await.expect("loads"), None);
    }

    async fn a_new_volume_has_a_setting_a_root_and_a_trash(store) {
        let engine = store.engine.as_ref();
        let json = "{\n\"Name\": \"t\u{e4}st\"\n}".as_bytes();
        let trash = attr(FileKind::Dir);
        engine.store_setting(json, &dir(), Some(&trash)).await.expect("stores");
        assert_eq!(engine.load_setting().await.expect("loads"), Some(json.to_vec()));
        assert_eq!(attr_of(engine, Ino::ROOT).await, Some(dir()));
        assert_eq!(attr_of(engine, Ino::TRASH).await, Some(trash));
    }

    async fn inodes_of_a_new_volume_start_at_two_and_slices_at_one(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        // A batch ends below the returned value. Redis starts one lower, at an inode that is
        // skipped.
        let inodes = engine.add_counter(Counter::NextInode, 1024).await.expect("adds");
        assert!([1025, 1026].contains(&inodes), "{inodes}");
        assert_eq!(
            engine.add_counter(Counter::NextInode, 1024).await.expect("adds"),
            inodes + 1024
        );
        assert_eq!(engine.add_counter(Counter::NextChunk, 4096).await.expect("adds"), 4097);
        for counter in [Counter::UsedSpace, Counter::TotalInodes, Counter::NextSession] {
            assert_eq!(engine.counter(counter).await.expect("reads"), 0, "{counter:?}");
        }
    }

    async fn a_setting_stored_again_leaves_root_trash_and_counters_alone(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        let used = engine.add_counter(Counter::NextInode, 1024).await.expect("adds");
        commit(engine, &[Change::PutAttr(Ino::ROOT, attr(FileKind::Dir))]).await;
        let other = attr(FileKind::Dir);
        engine.store_setting(b"{\"a\":1}", &other, Some(&other)).await.expect("stores");
        assert_eq!(engine.load_setting().await.expect("loads"), Some(b"{\"a\":1}".to_vec()));
        assert_eq!(attr_of(engine, Ino::ROOT).await, Some(attr(FileKind::Dir)));
        assert_eq!(attr_of(engine, Ino::TRASH).await, Some(dir()));
        assert_eq!(engine.counter(Counter::NextInode).await.expect("reads"), used);
    }

    async fn the_trash_is_created_when_it_is_first_given(store) {
        let engine = store.engine.as_ref();
        engine.store_setting(b"{}", &dir(), None).await.expect("stores");
        assert_eq!(attr_of(engine, Ino::TRASH).await, None);
        engine.store_setting(b"{}", &dir(), Some(&dir())).await.expect("stores");
        assert_eq!(attr_of(engine, Ino::TRASH).await, Some(dir()));
    }

    async fn preparing_again_changes_nothing(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        engine.prepare().await.expect("prepares");
        assert_eq!(engine.load_setting().await.expect("loads"), Some(b"{}".to_vec()));
        assert_eq!(attr_of(engine, Ino::ROOT).await, Some(dir()));
    }

    async fn a_wiped_store_can_hold_a_new_volume(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        let there = [
            Change::PutAttr(FILE, file()),
            Change::PutEntry(Ino::ROOT, name("a"), entry(FILE)),
            append(FILE, 0, vec![slice(1)]),
            Change::Log("1.0|A()|(1,1)".to_owned()),
        ];
        commit(engine, &there).await;
        engine.put_session(jfs::meta::Sid(1), 1000, b"{}").await.expect("puts");
        engine.add_counter(Counter::NextInode, 5000).await.expect("adds");
        engine.wipe().await.expect("wipes");

        engine.prepare().await.expect("prepares");
        assert_eq!(engine.load_setting().await.expect("loads"), None);
        store.format().await;
        assert_eq!(attr_of(engine, FILE).await, None);
        assert_eq!(chunk(engine, FILE, 0).await, []);
        assert_eq!(engine.sessions().await.expect("lists"), []);
        assert_eq!(engine.change_log(0, 10).await.expect("reads"), []);
        assert_eq!(engine.counter(Counter::NextChunk).await.expect("reads"), 1);
        let page = engine.list(Ino::ROOT, &Cursor::Start, 10).await.expect("lists");
        assert_eq!(page.entries, []);
    }

    async fn an_engine_has_a_name_and_an_address(store) {
        let engine = store.engine.as_ref();
        assert!(
            ["memkv", "redis", "sqlite3", "tikv"].contains(&engine.name()),
            "{}",
            engine.name()
        );
        assert!(!engine.address().is_empty());
        assert!(engine.properties().batch > 0);
    }

    async fn a_client_that_closes_leaves_the_others_working(store) {
        let other = store.second_client().await;
        store.format().await;
        assert_eq!(other.load_setting().await.expect("loads"), Some(b"{}".to_vec()));
        other.close().await.expect("closes");
        assert_eq!(store.engine.load_setting().await.expect("loads"), Some(b"{}".to_vec()));
    }
}
