//! Dir stats.

use jfs::meta::Ino;
use jfs::meta::engine::{Change, Engine};
use jfs::meta::record::DirStat;

use crate::fixtures::*;

fn stat(length: i64, space: i64, inodes: i64) -> DirStat {
    DirStat { length, space, inodes }
}

/// Creates a directory with a stat.
async fn put(engine: &dyn Engine, ino: Ino, stat: DirStat) {
    commit(engine, &[Change::PutAttr(ino, dir()), Change::PutDirStat(ino, stat)]).await;
}

on_every_engine! {
    async fn a_stat_is_written_replaced_and_removed(store) {
        let engine = store.engine.as_ref();
        assert_eq!(dir_stat(engine, DIR).await, None);
        put(engine, DIR, DirStat::default()).await;
        assert_eq!(dir_stat(engine, DIR).await, Some(DirStat::default()));
        engine.put_dir_stat(DIR, &stat(300_004, 311_296, 3)).await.expect("puts");
        assert_eq!(dir_stat(engine, DIR).await, Some(stat(300_004, 311_296, 3)));
        commit(engine, &[Change::RemoveDirStat(DIR)]).await;
        commit(engine, &[Change::RemoveDirStat(DIR)]).await;
        assert_eq!(dir_stat(engine, DIR).await, None);
    }

    async fn deltas_add_up(store) {
        let engine = store.engine.as_ref();
        put(engine, DIR, stat(10, 4096, 1)).await;
        put(engine, OTHER, stat(20, 8192, 2)).await;
        let deltas =
            [(DIR, stat(5, 4096, 1)), (OTHER, stat(-20, -8192, -2)), (DIR, stat(-1, 0, 0))];
        assert_eq!(engine.add_dir_stats(&deltas).await.expect("adds"), []);
        assert_eq!(dir_stat(engine, DIR).await, Some(stat(14, 8192, 2)));
        assert_eq!(dir_stat(engine, OTHER).await, Some(stat(0, 0, 0)));
    }

    async fn stats_that_are_missing_or_would_turn_negative_are_returned(store) {
        let engine = store.engine.as_ref();
        put(engine, DIR, stat(10, 4096, 1)).await;
        put(engine, OTHER, stat(10, 4096, 1)).await;
        let deltas = [(DIR, stat(0, -8192, 0)), (FILE, stat(1, 1, 1)), (OTHER, stat(1, 1, 1))];
        let mut astray = engine.add_dir_stats(&deltas).await.expect("adds");
        astray.sort();
        assert_eq!(astray, [DIR, FILE]);
        assert_eq!(dir_stat(engine, DIR).await, Some(stat(10, 4096, 1)));
        assert_eq!(dir_stat(engine, FILE).await, None);
        assert_eq!(dir_stat(engine, OTHER).await, Some(stat(11, 4097, 2)));
    }

    async fn many_deltas_are_added_at_once(store) {
        let engine = store.engine.as_ref();
        let inodes: Vec<Ino> = (100..200).map(Ino).collect();
        for ino in &inodes {
            put(engine, *ino, stat(1, 1, 1)).await;
        }
        let deltas: Vec<(Ino, DirStat)> = inodes.iter().map(|ino| (*ino, stat(1, 2, 3))).collect();
        assert_eq!(engine.add_dir_stats(&deltas).await.expect("adds"), []);
        for ino in inodes {
            assert_eq!(dir_stat(engine, ino).await, Some(stat(2, 3, 4)));
        }
    }

    async fn a_removed_directory_gets_no_stat(store) {
        let engine = store.engine.as_ref();
        engine.put_dir_stat(DIR, &stat(1, 1, 1)).await.expect("passes");
        assert_eq!(dir_stat(engine, DIR).await, None);
    }

    async fn clearing_removes_all_stats(store) {
        let engine = store.engine.as_ref();
        put(engine, DIR, stat(1, 1, 1)).await;
        put(engine, OTHER, stat(1, 1, 1)).await;
        engine.clear_dir_stats().await.expect("clears");
        assert_eq!(dir_stat(engine, DIR).await, None);
        assert_eq!(dir_stat(engine, OTHER).await, None);
        assert_eq!(attr_of(engine, DIR).await, Some(dir()));
    }
}
