//! Requests that wait for a lock.

use std::sync::Arc;
use std::time::Duration;

use jfs::meta::record::LockKind::{Read, Write};
use jfs::meta::{LockOwner, Meta};

use super::{
    END, INO, ONE, TWO, flock, flocks, granted, let_tasks_block, plock, ranges, unflock, unplock,
    wait_for_pending_locks, waiting_flock, waiting_plock,
};
use crate::support::volume::{Volume, setting_with_acls_and_log};

async fn a_local_release_wakes_a_waiter_at_once(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Write).await.unwrap();
    let waiter = waiting_flock(&meta, TWO, Write);
    // Long enough for the waiter to read the store only rarely.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = meta.counts().plans();
    unflock(&meta, ONE).await;
    granted(waiter).await;
    // The release and the waiter's attempt. Time is not a reliable measure on a busy machine.
    let plans = meta.counts().plans() - before;
    assert!(plans <= 4, "{plans} plans");
}

async fn a_release_by_another_client_is_noticed(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&there, ONE, Write).await.unwrap();
    plock(&there, ONE, Read, 0, 9).await.unwrap();
    let flock = waiting_flock(&here, ONE, Read);
    let plock = waiting_plock(&here, ONE, Write, 9, 20);
    tokio::time::sleep(Duration::from_millis(600)).await;
    unflock(&there, ONE).await;
    unplock(&there, ONE, 0, END).await;
    granted(flock).await;
    granted(plock).await;
}

async fn waiting_requests_rarely_read_the_store(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&there, ONE, Write).await.unwrap();
    let waiters: Vec<_> = (0..50).map(|n| waiting_flock(&here, LockOwner(n), Write)).collect();
    let_tasks_block().await;
    let before = here.counts().plans();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let plans = here.counts().plans() - before;
    assert!(plans <= 40, "{plans} plans in a second by 50 requests");

    unflock(&there, ONE).await;
    for waiter in waiters {
        waiter.abort();
    }
    wait_for_pending_locks(&here).await;
    assert!(flocks(&here).await.is_empty());
}

async fn waiting_for_a_local_lock_does_not_read_the_store(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Write).await.unwrap();
    let waiter = waiting_flock(&meta, TWO, Write);
    let_tasks_block().await;
    let before = meta.counts().plans();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(meta.counts().plans(), before);
    unflock(&meta, ONE).await;
    granted(waiter).await;
}

async fn every_waiter_gets_the_lock(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&here, ONE, Write).await.unwrap();
    let waiter = |meta: &Arc<Meta>, n: u64| {
        let meta = Arc::clone(meta);
        tokio::spawn(async move {
            let kind = if n.is_multiple_of(3) { Read } else { Write };
            meta.flock(INO, LockOwner(n), Some(kind), true).await?;
            let held = flocks(&meta).await;
            assert!(held.len() == 1 || held.iter().all(|lock| lock.kind == Read), "{held:?}");
            meta.flock(INO, LockOwner(n), None, false).await
        })
    };
    let waiters: Vec<_> = (100..140).flat_map(|n| [waiter(&here, n), waiter(&there, n)]).collect();
    let_tasks_block().await;
    unflock(&here, ONE).await;
    for waiter in waiters {
        granted(waiter).await;
    }
    assert!(flocks(&here).await.is_empty());
}

async fn a_handover_among_many_waiters_costs_few_reads(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Write).await.unwrap();
    let waiters: Vec<_> = (0..40u64)
        .map(|n| {
            let meta = Arc::clone(&meta);
            tokio::spawn(async move {
                meta.flock(INO, LockOwner(n), Some(Write), true).await?;
                meta.flock(INO, LockOwner(n), None, false).await
            })
        })
        .collect();
    let_tasks_block().await;
    let before = meta.counts().plans();
    unflock(&meta, ONE).await;
    for waiter in waiters {
        granted(waiter).await;
    }
    // Each waiter takes the lock and releases it.
    let plans = meta.counts().plans() - before;
    assert!(plans <= 1 + 2 * 40 + 10, "{plans} plans");
}

async fn waiting_ranges_are_granted_when_they_become_free(volume: Volume) {
    let meta = volume.client().await;
    plock(&meta, ONE, Write, 0, 99).await.unwrap();
    let left = waiting_plock(&meta, TWO, Write, 0, 9);
    let right = waiting_plock(&meta, LockOwner(3), Write, 90, 99);
    let_tasks_block().await;
    unplock(&meta, ONE, 90, 99).await;
    granted(right).await;
    assert!(!left.is_finished());
    unplock(&meta, ONE, 0, 9).await;
    granted(left).await;
    assert_eq!(ranges(&meta, ONE).await, [(Write, 10, 89)]);
}

async fn a_reader_overtakes_a_waiting_writer(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Read).await.unwrap();
    let writer = waiting_flock(&meta, TWO, Write);
    let_tasks_block().await;
    // The holder may depend on the reader: making it wait for the writer could deadlock.
    granted(waiting_flock(&meta, LockOwner(3), Read)).await;
    unflock(&meta, ONE).await;
    unflock(&meta, LockOwner(3)).await;
    granted(writer).await;
}

on_every_engine_and_a_slow_one! {
    a_local_release_wakes_a_waiter_at_once,
    a_release_by_another_client_is_noticed,
    waiting_requests_rarely_read_the_store,
    waiting_for_a_local_lock_does_not_read_the_store,
    every_waiter_gets_the_lock,
    a_handover_among_many_waiters_costs_few_reads,
    waiting_ranges_are_granted_when_they_become_free,
    a_reader_overtakes_a_waiting_writer,
}
