//! Requests that are cancelled, or whose session is closed, while they wait.

use std::time::Duration;

use jfs::Error;
use jfs::meta::LockOwner;
use jfs::meta::record::LockKind::{Read, Write};

use super::{
    END, ONE, TWO, flock, flocks, granted, let_tasks_block, plock, plocks, ranges, unflock,
    unplock, wait_for_pending_locks, waiting_flock, waiting_plock,
};
use crate::support::volume::{Volume, setting_with_acls_and_log};

async fn a_cancelled_wait_leaves_no_lock(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&there, ONE, Write).await.unwrap();
    plock(&there, ONE, Write, 0, 9).await.unwrap();
    let waiters = [waiting_flock(&here, ONE, Write), waiting_plock(&here, ONE, Write, 0, 0)];
    let_tasks_block().await;
    assert!(here.pending_locks() >= 2);
    for waiter in waiters {
        waiter.abort();
    }
    wait_for_pending_locks(&here).await;
    unflock(&there, ONE).await;
    unplock(&there, ONE, 0, 9).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(flocks(&here).await.is_empty());
    assert!(plocks(&here).await.is_empty());
}

async fn a_wait_cancelled_while_the_lock_is_taken_leaves_no_lock(volume: Volume) {
    let meta = volume.client().await;
    for round in 0..90u64 {
        flock(&meta, ONE, Write).await.unwrap();
        plock(&meta, ONE, Write, 0, 9).await.unwrap();
        let flock = waiting_flock(&meta, TWO, Write);
        let plock = waiting_plock(&meta, TWO, Write, 5, 20);
        tokio::task::yield_now().await;
        unflock(&meta, ONE).await;
        unplock(&meta, ONE, 0, 9).await;
        // Before, during or after the lock is taken.
        tokio::time::sleep(Duration::from_micros(round % 30 * 200)).await;
        flock.abort();
        plock.abort();
        let taken = (matches!(flock.await, Ok(Ok(()))), matches!(plock.await, Ok(Ok(()))));
        wait_for_pending_locks(&meta).await;
        assert_eq!(!flocks(&meta).await.is_empty(), taken.0, "round {round}");
        assert_eq!(!plocks(&meta).await.is_empty(), taken.1, "round {round}");
        unflock(&meta, TWO).await;
        unplock(&meta, TWO, 0, END).await;
    }
}

async fn a_cancelled_upgrade_keeps_the_held_lock(volume: Volume) {
    let meta = volume.client().await;
    for round in 0..60u64 {
        flock(&meta, ONE, Read).await.unwrap();
        flock(&meta, TWO, Read).await.unwrap();
        plock(&meta, ONE, Read, 0, 9).await.unwrap();
        plock(&meta, TWO, Read, 5, 14).await.unwrap();
        let flock = waiting_flock(&meta, TWO, Write);
        let plock = waiting_plock(&meta, TWO, Write, 0, 19);
        tokio::task::yield_now().await;
        unflock(&meta, ONE).await;
        unplock(&meta, ONE, 0, 9).await;
        tokio::time::sleep(Duration::from_micros(round % 30 * 200)).await;
        flock.abort();
        plock.abort();
        let taken = (matches!(flock.await, Ok(Ok(()))), matches!(plock.await, Ok(Ok(()))));
        wait_for_pending_locks(&meta).await;
        let kind = if taken.0 { Write } else { Read };
        assert_eq!(flocks(&meta).await[0].kind, kind, "round {round}");
        let range = if taken.1 { (Write, 0, 19) } else { (Read, 5, 14) };
        assert_eq!(ranges(&meta, TWO).await, [range], "round {round}");
        unflock(&meta, TWO).await;
        unplock(&meta, TWO, 0, END).await;
    }
}

async fn a_waiting_request_ends_with_the_session(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&there, ONE, Write).await.unwrap();
    let waiter = waiting_flock(&here, ONE, Write);
    let_tasks_block().await;
    here.close().await.unwrap();
    assert!(matches!(waiter.await.unwrap(), Err(Error::Interrupted)));
    unflock(&there, ONE).await;
    assert!(flocks(&there).await.is_empty());
}

async fn a_session_closed_while_a_lock_is_taken_leaves_no_lock(volume: Volume) {
    let there = volume.client().await;
    for round in 0..15u64 {
        let here = volume.client().await;
        flock(&here, ONE, Write).await.unwrap();
        let waiter = waiting_flock(&here, TWO, Write);
        let_tasks_block().await;
        unflock(&here, ONE).await;
        tokio::time::sleep(Duration::from_micros(round * 300)).await;
        here.close().await.unwrap();
        let _ = waiter.await.unwrap();
        assert!(flocks(&there).await.is_empty(), "round {round}");
    }
}

async fn a_cancelled_waiter_lets_the_next_one_in(volume: Volume) {
    let meta = volume.client().await;
    for _ in 0..50 {
        flock(&meta, ONE, Write).await.unwrap();
        let first = waiting_flock(&meta, TWO, Write);
        tokio::task::yield_now().await;
        let second = waiting_flock(&meta, LockOwner(3), Write);
        tokio::task::yield_now().await;
        unflock(&meta, ONE).await;
        first.abort();
        let first_has_it = matches!(first.await, Ok(Ok(())));
        if first_has_it {
            unflock(&meta, TWO).await;
        }
        granted(second).await;
        unflock(&meta, LockOwner(3)).await;
    }
}

on_every_engine_and_a_slow_one! {
    a_cancelled_wait_leaves_no_lock,
    a_wait_cancelled_while_the_lock_is_taken_leaves_no_lock,
    a_cancelled_upgrade_keeps_the_held_lock,
    a_waiting_request_ends_with_the_session,
    a_session_closed_while_a_lock_is_taken_leaves_no_lock,
    a_cancelled_waiter_lets_the_next_one_in,
}
