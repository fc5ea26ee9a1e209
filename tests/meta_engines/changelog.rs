//! The change log: lines in the order of their commits, trimmed from the oldest.

use jfs::meta::engine::{Change, Engine};

use crate::fixtures::*;

fn line(second: u64) -> String {
    format!("{second}.000000001|TEST({second}):%2C|(1,{second})")
}

/// Makes one commit for each second.
async fn log(engine: &dyn Engine, seconds: std::ops::RangeInclusive<u64>) {
    for second in seconds {
        commit(engine, &[Change::Log(line(second))]).await;
    }
}

async fn logged(engine: &dyn Engine) -> Vec<String> {
    let lines = engine.change_log(0, 1000).await.expect("reads");
    lines.into_iter().map(|(_, line)| line).collect()
}

fn lines(seconds: std::ops::RangeInclusive<u64>) -> Vec<String> {
    seconds.map(line).collect()
}

on_every_engine! {
    async fn lines_are_read_in_order_with_increasing_versions(store) {
        let engine = store.engine.as_ref();
        assert_eq!(engine.change_log(0, 10).await.expect("reads"), []);
        log(engine, 1..=5).await;
        let read = engine.change_log(0, 10).await.expect("reads");
        assert!(read.is_sorted_by(|(one, _), (two, _)| one < two), "{read:?}");
        assert_eq!(logged(engine).await, lines(1..=5));
    }

    async fn reading_continues_after_a_version(store) {
        let engine = store.engine.as_ref();
        log(engine, 1..=5).await;
        let first = engine.change_log(0, 2).await.expect("reads");
        assert_eq!(first.len(), 2);
        let rest = engine.change_log(first[1].0, 100).await.expect("reads");
        assert_eq!(rest.iter().map(|(_, line)| line.clone()).collect::<Vec<_>>(), lines(3..=5));
        let end = rest.last().expect("lines").0;
        assert_eq!(engine.change_log(end, 100).await.expect("reads"), []);
    }

    async fn a_commit_with_a_conflict_logs_nothing(store) {
        let engine = store.engine.as_ref();
        let mut tx = engine.begin();
        tx.read(&[jfs::meta::engine::Key::Attr(FILE)]).await.expect("reads");
        commit(engine, &[Change::PutAttr(FILE, file())]).await;
        assert_conflict(&tx.commit(&[Change::Log(line(1))]).await);
        assert!(logged(engine).await.is_empty());
    }

    async fn old_lines_are_trimmed(store) {
        let engine = store.engine.as_ref();
        log(engine, 1..=5).await;
        engine.trim_change_log(Some(3), None).await.expect("trims");
        assert_eq!(logged(engine).await, lines(3..=5));
        engine.trim_change_log(Some(3), None).await.expect("trims");
        assert_eq!(logged(engine).await, lines(3..=5));
    }

    async fn lines_beyond_a_count_are_trimmed(store) {
        let engine = store.engine.as_ref();
        log(engine, 1..=5).await;
        engine.trim_change_log(None, Some(9)).await.expect("trims");
        assert_eq!(logged(engine).await, lines(1..=5));
        engine.trim_change_log(None, Some(2)).await.expect("trims");
        assert_eq!(logged(engine).await, lines(4..=5));
    }

    async fn trimming_by_age_and_count_drops_what_either_would(store) {
        let engine = store.engine.as_ref();
        log(engine, 1..=6).await;
        engine.trim_change_log(Some(2), Some(3)).await.expect("trims");
        assert_eq!(logged(engine).await, lines(4..=6));
        engine.trim_change_log(Some(6), Some(3)).await.expect("trims");
        assert_eq!(logged(engine).await, lines(6..=6));
        engine.trim_change_log(None, None).await.expect("trims nothing");
        assert_eq!(logged(engine).await, lines(6..=6));
    }

    async fn versions_continue_after_everything_was_trimmed(store) {
        let engine = store.engine.as_ref();
        log(engine, 1..=3).await;
        let last = engine.change_log(0, 10).await.expect("reads").last().expect("lines").0;
        engine.trim_change_log(Some(100), None).await.expect("trims");
        assert!(logged(engine).await.is_empty());
        log(engine, 4..=4).await;
        let read = engine.change_log(last, 10).await.expect("reads");
        assert_eq!(read.iter().map(|(_, line)| line.clone()).collect::<Vec<_>>(), lines(4..=4));
    }
}
