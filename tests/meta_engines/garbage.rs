//! Deleted files, sustained files and detached nodes.

use jfs::meta::engine::{Change, DeletedFile, Engine};
use jfs::meta::{Ino, Sid};

use crate::fixtures::*;

fn put(ino: Ino, length: u64, at: i64) -> Change {
    Change::PutDeletedFile { ino, length, at }
}

async fn deleted(engine: &dyn Engine, before: i64) -> Vec<DeletedFile> {
    let mut files = engine.deleted_files(before, 100).await.expect("lists");
    files.sort_by_key(|file| file.ino);
    files
}

on_every_engine! {
    async fn deleted_files_are_listed_once_they_are_old_enough(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[put(FILE, 1 << 40, 1000), put(OTHER, 0, 2000)]).await;
        let old = DeletedFile { ino: FILE, length: 1 << 40, at: 1000 };
        let young = DeletedFile { ino: OTHER, length: 0, at: 2000 };
        assert_eq!(deleted(engine, 999).await, []);
        assert_eq!(deleted(engine, 1000).await, [old]);
        assert_eq!(deleted(engine, 2000).await, [old, young]);
    }

    async fn the_list_of_deleted_files_is_limited(store) {
        let engine = store.engine.as_ref();
        for ino in 10..15 {
            commit(engine, &[put(Ino(ino), 1, 1000)]).await;
        }
        assert_eq!(engine.deleted_files(1000, 3).await.expect("lists").len(), 3);
        assert_eq!(deleted(engine, 1000).await.len(), 5);
    }

    async fn a_deleted_file_can_be_removed_from_the_list(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[put(FILE, 10, 1000), put(OTHER, 20, 1000)]).await;
        let gone = Change::RemoveDeletedFile { ino: FILE, length: 10 };
        commit(engine, std::slice::from_ref(&gone)).await;
        commit(engine, &[gone]).await;
        assert_eq!(deleted(engine, 1000).await, [DeletedFile { ino: OTHER, length: 20, at: 1000 }]);
    }

    async fn sustained_files_are_listed_by_session(store) {
        let engine = store.engine.as_ref();
        let added = [
            Change::AddSustained(Sid(1), OTHER),
            Change::AddSustained(Sid(1), FILE),
            Change::AddSustained(Sid(1), FILE),
            Change::AddSustained(Sid(2), FILE),
        ];
        commit(engine, &added).await;
        let mut inodes = engine.sustained(Sid(1)).await.expect("lists");
        inodes.sort();
        assert_eq!(inodes, [FILE, OTHER]);
        assert!(sustained(engine, Sid(2), FILE).await);
        assert!(!sustained(engine, Sid(2), OTHER).await);

        commit(engine, &[Change::RemoveSustained(Sid(1), FILE)]).await;
        commit(engine, &[Change::RemoveSustained(Sid(1), FILE)]).await;
        assert_eq!(engine.sustained(Sid(1)).await.expect("lists"), [OTHER]);
        assert_eq!(engine.sustained(Sid(2)).await.expect("lists"), [FILE]);
        assert_eq!(engine.sustained(Sid(3)).await.expect("lists"), []);
    }

    async fn detached_nodes_are_listed_once_they_are_old_enough(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::PutDetached(DIR, 1000), Change::PutDetached(OTHER, 2000)]).await;
        assert_eq!(engine.detached(999).await.expect("lists"), []);
        assert_eq!(engine.detached(1000).await.expect("lists"), [DIR]);
        let mut all = engine.detached(2000).await.expect("lists");
        all.sort();
        assert_eq!(all, [DIR, OTHER]);
        commit(engine, &[Change::RemoveDetached(DIR)]).await;
        assert_eq!(engine.detached(2000).await.expect("lists"), [OTHER]);
    }
}
