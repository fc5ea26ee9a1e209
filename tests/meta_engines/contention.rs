//! Many clients at once: no update is lost, and nothing is counted twice.

use std::sync::Arc;

use jfs::meta::engine::{Change, CommitError, Engine, Key, Record};
use jfs::meta::record::{Counter, DirStat, QuotaKey};

use crate::fixtures::*;
use crate::stores::TestStore;

const CLIENTS: u64 = 4;
const ROUNDS: u64 = 15;

/// Runs `work` as several clients at once, each for several rounds.
async fn run_concurrently<F: Future<Output = ()> + Send + 'static>(
    store: &TestStore,
    work: impl Fn(Arc<dyn Engine>, u64) -> F,
) {
    let mut running = Vec::new();
    for client in 0..CLIENTS {
        let engine = store.second_client().await;
        running.push(tokio::spawn(work(engine, client)));
    }
    for task in running {
        task.await.expect("no client fails");
    }
}

/// Commits, again after each conflict.
async fn commit_with_retries(engine: &dyn Engine, changes: &[Change]) -> Vec<i64> {
    loop {
        match engine.begin().commit(changes).await {
            Ok(results) => return results,
            Err(CommitError::Conflict) => tokio::task::yield_now().await,
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Adds a link as an operation would: read, compute and commit, again after each conflict.
async fn add_link(engine: &dyn Engine) {
    loop {
        let mut tx = engine.begin();
        let records = tx.read(&[Key::Attr(FILE)]).await.expect("reads");
        let [Record::Attr(Some(attr))] = records.as_slice() else { panic!("{records:?}") };
        let mut more = attr.clone();
        more.nlink += 1;
        match tx.commit(&[Change::PutAttr(FILE, more)]).await {
            Ok(_) => return,
            Err(CommitError::Conflict) => tokio::task::yield_now().await,
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Creates the name if it does not exist. Returns whether it did.
async fn create(engine: &dyn Engine, ino: jfs::meta::Ino, text: String) -> bool {
    loop {
        let mut tx = engine.begin();
        let key = Key::Lookup(DIR, name(&text));
        let records = tx.read(&[key]).await.expect("reads");
        let [Record::Lookup(None)] = records.as_slice() else { return false };
        let changes =
            [Change::PutAttr(ino, file()), Change::PutEntry(DIR, name(&text), entry(ino))];
        match tx.commit(&changes).await {
            Ok(_) => return true,
            Err(CommitError::Conflict) => tokio::task::yield_now().await,
            Err(other) => panic!("{other:?}"),
        }
    }
}

on_every_engine! {
    async fn guarded_updates_are_not_lost(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::PutAttr(FILE, file())]).await;
        run_concurrently(store, |engine, _| async move {
            for _ in 0..ROUNDS {
                add_link(engine.as_ref()).await;
            }
        })
        .await;
        let nlink = u64::from(attr_of(engine, FILE).await.expect("exists").nlink);
        assert_eq!(nlink, 1 + CLIENTS * ROUNDS);
    }

    async fn appends_and_references_are_not_lost(store) {
        let engine = store.engine.as_ref();
        commit(engine, &written(OTHER, 1)).await;
        run_concurrently(store, |engine, client| async move {
            for round in 0..ROUNDS {
                let id = 10 + client * ROUNDS + round;
                let changes = [
                    append(FILE, 0, vec![slice(id)]),
                    Change::AddSliceRef { slice: sized(1), by: 1 },
                    Change::AddParent { ino: FILE, parent: DIR, count: 1 },
                ];
                commit_with_retries(engine.as_ref(), &changes).await;
            }
        })
        .await;
        let mut ids: Vec<u64> = chunk(engine, FILE, 0).await.iter().map(|s| s.id.0).collect();
        ids.sort_unstable();
        assert_eq!(ids, (10..10 + CLIENTS * ROUNDS).collect::<Vec<_>>());
        let refs = slice_refs(engine, sized(1).id, sized(1).size).await;
        assert_eq!(refs, 1 + (CLIENTS * ROUNDS).cast_signed());
    }

    async fn a_name_is_created_by_one_client_only(store) {
        let engine = store.engine.as_ref();
        let wins = Arc::new(std::sync::atomic::AtomicU64::new(0));
        run_concurrently(store, |engine, client| {
            let wins = wins.clone();
            async move {
                for round in 0..ROUNDS {
                    let ino = jfs::meta::Ino(1000 + client * ROUNDS + round);
                    if create(engine.as_ref(), ino, format!("name-{round}")).await {
                        wins.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            }
        })
        .await;
        assert_eq!(wins.load(std::sync::atomic::Ordering::Relaxed), ROUNDS);
        for round in 0..ROUNDS {
            let found = lookup(engine, DIR, name(format!("name-{round}"))).await.expect("exists");
            assert!(found.attr.is_some());
        }
    }

    async fn counters_return_every_number_once(store) {
        let engine = store.engine.as_ref();
        store.format().await;
        let first = engine.counter(Counter::NextChunk).await.expect("reads");
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        run_concurrently(store, |engine, _| {
            let seen = seen.clone();
            async move {
                for _ in 0..ROUNDS {
                    let value = engine.add_counter(Counter::NextChunk, 1).await.expect("adds");
                    seen.lock().expect("no panic").push(value);
                }
            }
        })
        .await;
        let mut seen = std::mem::take(&mut *seen.lock().expect("no panic"));
        seen.sort_unstable();
        let all = (CLIENTS * ROUNDS).cast_signed();
        assert_eq!(seen, (first + 1..=first + all).collect::<Vec<_>>());
    }

    async fn a_job_is_claimed_by_one_client(store) {
        store.format().await;
        let wins = Arc::new(std::sync::atomic::AtomicU64::new(0));
        run_concurrently(store, |engine, _| {
            let wins = wins.clone();
            async move {
                for round in 1..=ROUNDS.cast_signed() {
                    let now = 1_700_000_000 + round * 100;
                    let won = engine.claim(Counter::LastCleanupTrash, now, 100).await;
                    if won.expect("claims") {
                        wins.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            }
        })
        .await;
        let wins = wins.load(std::sync::atomic::Ordering::Relaxed);
        assert!((1..=ROUNDS).contains(&wins), "{wins} winners of {ROUNDS} elections");
    }

    async fn usage_adds_up(store) {
        let engine = store.engine.as_ref();
        let start = DirStat { length: 0, space: 0, inodes: 0 };
        commit(engine, &[Change::PutAttr(DIR, dir()), Change::PutDirStat(DIR, start)]).await;
        run_concurrently(store, |engine, _| async move {
            for _ in 0..ROUNDS {
                let delta = DirStat { length: 1, space: 2, inodes: 3 };
                let astray = engine.add_dir_stats(&[(DIR, delta)]).await.expect("adds");
                assert_eq!(astray, []);
                engine.add_quota_usage(&[(QuotaKey::User(7), 4096, 1)]).await.expect("adds");
            }
        })
        .await;
        let all = (CLIENTS * ROUNDS).cast_signed();
        let stat = DirStat { length: all, space: 2 * all, inodes: 3 * all };
        assert_eq!(dir_stat(engine, DIR).await, Some(stat));
        let used = quota(engine, QuotaKey::User(7)).await.expect("exists");
        assert_eq!((used.used_space, used.used_inodes), (4096 * all, all));
    }
}
