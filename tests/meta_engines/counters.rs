//! Counters, and claiming periodic jobs.

use jfs::meta::record::Counter;

const ADDED: [Counter; 7] = [
    Counter::UsedSpace,
    Counter::TotalInodes,
    Counter::NextInode,
    Counter::NextChunk,
    Counter::NextSession,
    Counter::NextTrash,
    Counter::AclMaxId,
];

const ELECTIONS: [Counter; 5] = [
    Counter::LastCleanupSessions,
    Counter::LastCleanupFiles,
    Counter::NextCleanupSlices,
    Counter::LastCleanupTrash,
    Counter::LastCleanupChangelog,
];

on_every_engine! {
    async fn counters_add_up(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        for counter in ADDED {
            let start = engine.counter(counter).await.expect("reads");
            assert_eq!(engine.add_counter(counter, 1024).await.expect("adds"), start + 1024);
            assert_eq!(engine.add_counter(counter, 3).await.expect("adds"), start + 1027);
            assert_eq!(engine.counter(counter).await.expect("reads"), start + 1027, "{counter:?}");
        }
    }

    async fn usage_counters_can_become_negative(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        for counter in [Counter::UsedSpace, Counter::TotalInodes] {
            engine.add_counter(counter, 10).await.expect("adds");
            assert_eq!(engine.add_counter(counter, -30).await.expect("adds"), -20);
            assert_eq!(engine.counter(counter).await.expect("reads"), -20, "{counter:?}");
        }
    }

    async fn adding_zero_returns_the_value(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        assert_eq!(engine.add_counter(Counter::NextSession, 0).await.expect("reads"), 0);
        engine.add_counter(Counter::NextSession, 4).await.expect("adds");
        assert_eq!(engine.add_counter(Counter::NextSession, 0).await.expect("reads"), 4);
    }

    async fn the_first_session_id_is_one(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        assert_eq!(engine.add_counter(Counter::NextSession, 1).await.expect("adds"), 1);
        assert_eq!(engine.add_counter(Counter::NextTrash, 1).await.expect("adds"), 1);
    }

    async fn a_job_is_claimed_once_per_gap(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        let now = 1_700_000_000;
        for counter in ELECTIONS {
            assert!(engine.claim(counter, now, 100).await.expect("claims"), "{counter:?}");
            assert_eq!(engine.counter(counter).await.expect("reads"), now, "{counter:?}");
            assert!(!engine.claim(counter, now, 100).await.expect("claims"));
            assert!(!engine.claim(counter, now + 99, 100).await.expect("claims"));
            assert!(engine.claim(counter, now + 100, 100).await.expect("claims"));
            assert!(!engine.claim(counter, now + 100, 100).await.expect("claims"));
        }
    }
}
