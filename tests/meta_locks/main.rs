//! Locks: who excludes whom, across owners and clients, and how requests wait.
#![cfg(test)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jfs::Error;
use jfs::meta::engine::{Key, Record};
use jfs::meta::record::LockKind::{self, Read, Write};
use jfs::meta::record::{Flock, Plock, PlockRange};
use jfs::meta::{Ino, LockOwner, Meta, Options};
use support::records::{log, stored};
use support::volume::{Volume, setting_with_acls_and_log};
use tokio::task::JoinHandle;

const INO: Ino = Ino(77);
const ONE: LockOwner = LockOwner(0x1111);
const TWO: LockOwner = LockOwner(0xFFFF_2222_0000_0002);
const END: u64 = PlockRange::OPEN_END;

/// Longer than any wait that is no hang.
const PATIENCE: Duration = Duration::from_secs(10);

type Answer = Result<(), Error>;

async fn flock(meta: &Arc<Meta>, owner: LockOwner, kind: LockKind) -> Answer {
    meta.flock(INO, owner, Some(kind), false).await
}

async fn unflock(meta: &Arc<Meta>, owner: LockOwner) {
    meta.flock(INO, owner, None, false).await.unwrap();
}

async fn plock(meta: &Arc<Meta>, owner: LockOwner, kind: LockKind, start: u64, end: u64) -> Answer {
    meta.set_plock(INO, owner, Some(kind), start..=end, 42, false).await
}

async fn unplock(meta: &Arc<Meta>, owner: LockOwner, start: u64, end: u64) {
    meta.set_plock(INO, owner, None, start..=end, 42, false).await.unwrap();
}

fn waiting_flock(meta: &Arc<Meta>, owner: LockOwner, kind: LockKind) -> JoinHandle<Answer> {
    let meta = Arc::clone(meta);
    tokio::spawn(async move { meta.flock(INO, owner, Some(kind), true).await })
}

fn waiting_plock(
    meta: &Arc<Meta>,
    owner: LockOwner,
    kind: LockKind,
    start: u64,
    end: u64,
) -> JoinHandle<Answer> {
    let meta = Arc::clone(meta);
    tokio::spawn(async move { meta.set_plock(INO, owner, Some(kind), start..=end, 42, true).await })
}

async fn finished(task: JoinHandle<Answer>) {
    tokio::time::timeout(PATIENCE, task).await.expect("waits for ever").unwrap().unwrap();
}

/// Lets abandoned requests come to their end: nothing waits, tries or is undone any more.
async fn forgotten(meta: &Meta) {
    let started = Instant::now();
    while meta.pending_locks() > 0 {
        assert!(started.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn would_block(answer: &Answer) -> bool {
    matches!(answer, Err(Error::WouldBlock))
}

/// Lets tasks run until they wait for something.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(30)).await;
}

async fn flocks(meta: &Meta) -> Vec<Flock> {
    match stored(meta, Key::Flocks(INO)).await {
        Record::Flocks(locks) => locks,
        other => panic!("{other:?}"),
    }
}

async fn plocks(meta: &Meta) -> Vec<Plock> {
    match stored(meta, Key::Plocks(INO)).await {
        Record::Plocks(locks) => locks,
        other => panic!("{other:?}"),
    }
}

/// The ranges of one owner, as (kind, start, end).
async fn ranges(meta: &Meta, owner: LockOwner) -> Vec<(LockKind, u64, u64)> {
    let locks = plocks(meta).await;
    let own = locks.into_iter().filter(|lock| lock.sid == meta.facts().sid());
    own.filter(|lock| lock.owner == owner)
        .flat_map(|lock| lock.ranges)
        .map(|range| (range.kind, range.start, range.end))
        .collect()
}

// Flocks.

async fn readers_share_a_flock(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&here, ONE, Read).await.unwrap();
    flock(&here, TWO, Read).await.unwrap();
    flock(&there, ONE, Read).await.unwrap();
    assert_eq!(flocks(&here).await.len(), 3);
    assert!(would_block(&flock(&here, ONE, Write).await));
    assert_eq!(flocks(&here).await.len(), 3);
}

async fn a_writer_excludes_every_other_owner(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&here, ONE, Write).await.unwrap();
    for kind in [Read, Write] {
        assert!(would_block(&flock(&here, TWO, kind).await));
        // The same owner number in another session is another owner.
        assert!(would_block(&flock(&there, ONE, kind).await));
    }
    unflock(&here, ONE).await;
    flock(&there, ONE, Write).await.unwrap();
}

async fn a_flock_changes_its_kind_in_place(volume: Volume) {
    let meta = volume.client().await;
    let sid = meta.facts().sid();
    for kind in [Read, Write, Write, Read, Read] {
        flock(&meta, ONE, kind).await.unwrap();
        assert_eq!(flocks(&meta).await, [Flock { sid, owner: ONE, kind }]);
    }
}

async fn a_refused_upgrade_keeps_the_lock(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Read).await.unwrap();
    flock(&meta, TWO, Read).await.unwrap();
    assert!(would_block(&flock(&meta, ONE, Write).await));
    unflock(&meta, TWO).await;
    assert!(would_block(&flock(&meta, TWO, Write).await));
    flock(&meta, ONE, Write).await.unwrap();
}

async fn a_downgrade_lets_readers_in(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Write).await.unwrap();
    let reader = waiting_flock(&meta, TWO, Read);
    settle().await;
    flock(&meta, ONE, Read).await.unwrap();
    finished(reader).await;
}

async fn the_last_release_removes_the_record(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Read).await.unwrap();
    flock(&meta, TWO, Read).await.unwrap();
    unflock(&meta, ONE).await;
    unflock(&meta, TWO).await;
    unflock(&meta, TWO).await;
    assert!(flocks(&meta).await.is_empty());
    let sid = meta.facts().sid();
    assert!(meta.engine().locks_of(sid).await.unwrap().is_empty());
}

async fn a_client_without_a_session_takes_no_locks(volume: Volume) {
    let meta = volume.visitor().await;
    assert!(matches!(flock(&meta, ONE, Read).await, Err(Error::NotSupported)));
    assert!(matches!(plock(&meta, ONE, Read, 0, 9).await, Err(Error::NotSupported)));
    unflock(&meta, ONE).await;
    unplock(&meta, ONE, 0, END).await;
}

async fn a_read_only_client_takes_no_locks(volume: Volume) {
    let meta = volume.client_with(Options { read_only: true, ..Options::default() }).await;
    assert!(matches!(flock(&meta, ONE, Read).await, Err(Error::ReadOnly)));
    assert!(matches!(meta.flock(INO, ONE, Some(Write), true).await, Err(Error::ReadOnly)));
    unflock(&meta, ONE).await;
}

async fn closing_a_session_drops_its_locks(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&here, ONE, Write).await.unwrap();
    plock(&here, ONE, Write, 0, 9).await.unwrap();
    let flock = waiting_flock(&there, ONE, Write);
    let plock = waiting_plock(&there, ONE, Write, 5, 5);
    settle().await;
    here.close().await.unwrap();
    finished(flock).await;
    finished(plock).await;
}

// Record locks.

async fn ranges_clash_only_where_they_overlap(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    plock(&here, ONE, Write, 10, 19).await.unwrap();
    plock(&here, TWO, Write, 0, 9).await.unwrap();
    plock(&there, ONE, Write, 20, END).await.unwrap();
    assert!(would_block(&plock(&here, TWO, Read, 0, 10).await));
    assert!(would_block(&plock(&there, TWO, Read, 19, 19).await));
    assert!(would_block(&plock(&here, ONE, Write, 19, 20).await));
    assert_eq!(ranges(&here, ONE).await, [(Write, 10, 19)]);
}

async fn readers_share_a_range(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    plock(&here, ONE, Read, 0, 99).await.unwrap();
    plock(&there, ONE, Read, 50, 60).await.unwrap();
    assert!(would_block(&plock(&here, ONE, Write, 55, 55).await));
    plock(&here, ONE, Write, 61, 70).await.unwrap();
    assert_eq!(ranges(&here, ONE).await, [(Read, 0, 60), (Write, 61, 70), (Read, 71, 99)]);
}

async fn a_release_inside_a_range_splits_it(volume: Volume) {
    let meta = volume.client().await;
    plock(&meta, ONE, Write, 0, END).await.unwrap();
    unplock(&meta, ONE, 10, 19).await;
    assert_eq!(ranges(&meta, ONE).await, [(Write, 0, 9), (Write, 20, END)]);
    plock(&meta, TWO, Write, 10, 19).await.unwrap();
    assert!(would_block(&plock(&meta, TWO, Write, 9, 9).await));

    plock(&meta, ONE, Read, 0, 9).await.unwrap();
    unplock(&meta, TWO, 0, END).await;
    plock(&meta, ONE, Write, 5, 25).await.unwrap();
    assert_eq!(ranges(&meta, ONE).await, [(Read, 0, 4), (Write, 5, END)]);
}

async fn releasing_everything_removes_the_record(volume: Volume) {
    let meta = volume.client().await;
    unplock(&meta, ONE, 0, END).await;
    plock(&meta, ONE, Write, 3, 9).await.unwrap();
    plock(&meta, ONE, Read, 20, 29).await.unwrap();
    unplock(&meta, ONE, 0, 10).await;
    unplock(&meta, ONE, 12, 15).await;
    assert_eq!(ranges(&meta, ONE).await, [(Read, 20, 29)]);
    unplock(&meta, ONE, 0, END).await;
    assert!(plocks(&meta).await.is_empty());
    let sid = meta.facts().sid();
    assert!(meta.engine().locks_of(sid).await.unwrap().is_empty());
}

async fn flocks_and_ranges_know_nothing_of_each_other(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Write).await.unwrap();
    plock(&meta, TWO, Write, 0, END).await.unwrap();
}

async fn an_empty_range_is_invalid(volume: Volume) {
    let meta = volume.client().await;
    assert!(matches!(plock(&meta, ONE, Read, 5, 4).await, Err(Error::Invalid)));
    let beyond = meta.set_plock(INO, ONE, None, END + 1..=u64::MAX, 1, false).await;
    assert!(matches!(beyond, Err(Error::Invalid)));
    plock(&meta, ONE, Read, 5, u64::MAX).await.unwrap();
    assert_eq!(ranges(&meta, ONE).await, [(Read, 5, END)]);
}

async fn the_first_range_in_the_way_is_found(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    assert_eq!(here.plock(INO, ONE, Write, 0..=END).await.unwrap(), None);
    plock(&here, ONE, Read, 50, 59).await.unwrap();
    plock(&here, TWO, Write, 10, 19).await.unwrap();

    let found = here.plock(INO, ONE, Write, 0..=END).await.unwrap();
    assert_eq!(found, Some(PlockRange { kind: Write, pid: 42, start: 10, end: 19 }));
    // Processes of another client mean nothing here.
    let found = there.plock(INO, ONE, Read, 0..=END).await.unwrap();
    assert_eq!(found, Some(PlockRange { kind: Write, pid: 0, start: 10, end: 19 }));
    assert_eq!(there.plock(INO, ONE, Read, 20..=END).await.unwrap(), None);
    let found = there.plock(INO, ONE, Write, 20..=END).await.unwrap();
    assert_eq!(found, Some(PlockRange { kind: Read, pid: 0, start: 50, end: 59 }));
    assert_eq!(here.plock(INO, ONE, Write, 20..=END).await.unwrap(), None);
}

// Waiting.

async fn a_local_release_wakes_at_once(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Write).await.unwrap();
    let waiter = waiting_flock(&meta, TWO, Write);
    // Long enough for looks at the store to have become rare.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = meta.counts().plans();
    unflock(&meta, ONE).await;
    finished(waiter).await;
    // The release and the waiter's try; time is no measure on a busy machine.
    let looks = meta.counts().plans() - before;
    assert!(looks <= 4, "{looks} looks");
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
    finished(flock).await;
    finished(plock).await;
}

async fn waiting_hardly_reads(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&there, ONE, Write).await.unwrap();
    let waiters: Vec<_> = (0..50).map(|n| waiting_flock(&here, LockOwner(n), Write)).collect();
    settle().await;
    let before = here.counts().plans();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let looks = here.counts().plans() - before;
    assert!(looks <= 40, "{looks} looks in a second by 50 requests");

    unflock(&there, ONE).await;
    for waiter in waiters {
        waiter.abort();
    }
    forgotten(&here).await;
    assert!(flocks(&here).await.is_empty());
}

async fn waiting_for_our_own_lock_does_not_look(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Write).await.unwrap();
    let waiter = waiting_flock(&meta, TWO, Write);
    settle().await;
    let before = meta.counts().plans();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(meta.counts().plans(), before);
    unflock(&meta, ONE).await;
    finished(waiter).await;
}

async fn every_waiter_gets_its_turn(volume: Volume) {
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
    settle().await;
    unflock(&here, ONE).await;
    for waiter in waiters {
        finished(waiter).await;
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
    settle().await;
    let before = meta.counts().plans();
    unflock(&meta, ONE).await;
    for waiter in waiters {
        finished(waiter).await;
    }
    // One to take it and one to release it, each.
    let plans = meta.counts().plans() - before;
    assert!(plans <= 1 + 2 * 40 + 10, "{plans} plans");
}

async fn waiting_ranges_are_granted_as_they_come_free(volume: Volume) {
    let meta = volume.client().await;
    plock(&meta, ONE, Write, 0, 99).await.unwrap();
    let left = waiting_plock(&meta, TWO, Write, 0, 9);
    let right = waiting_plock(&meta, LockOwner(3), Write, 90, 99);
    settle().await;
    unplock(&meta, ONE, 90, 99).await;
    finished(right).await;
    assert!(!left.is_finished());
    unplock(&meta, ONE, 0, 9).await;
    finished(left).await;
    assert_eq!(ranges(&meta, ONE).await, [(Write, 10, 89)]);
}

async fn a_reader_passes_a_waiting_writer(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Read).await.unwrap();
    let writer = waiting_flock(&meta, TWO, Write);
    settle().await;
    // Holders may depend on it: making it wait for the writer could last for ever.
    finished(waiting_flock(&meta, LockOwner(3), Read)).await;
    unflock(&meta, ONE).await;
    unflock(&meta, LockOwner(3)).await;
    finished(writer).await;
}

// Cancelling.

async fn a_cancelled_wait_leaves_nothing(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&there, ONE, Write).await.unwrap();
    plock(&there, ONE, Write, 0, 9).await.unwrap();
    let waiters = [waiting_flock(&here, ONE, Write), waiting_plock(&here, ONE, Write, 0, 0)];
    settle().await;
    assert!(here.pending_locks() >= 2);
    for waiter in waiters {
        waiter.abort();
    }
    forgotten(&here).await;
    unflock(&there, ONE).await;
    unplock(&there, ONE, 0, 9).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(flocks(&here).await.is_empty());
    assert!(plocks(&here).await.is_empty());
}

async fn a_wait_cancelled_while_the_lock_is_taken_leaves_nothing(volume: Volume) {
    let meta = volume.client().await;
    for round in 0..90u64 {
        flock(&meta, ONE, Write).await.unwrap();
        plock(&meta, ONE, Write, 0, 9).await.unwrap();
        let flock = waiting_flock(&meta, TWO, Write);
        let plock = waiting_plock(&meta, TWO, Write, 5, 20);
        tokio::task::yield_now().await;
        unflock(&meta, ONE).await;
        unplock(&meta, ONE, 0, 9).await;
        // Somewhere between too early and too late.
        tokio::time::sleep(Duration::from_micros(round % 30 * 200)).await;
        flock.abort();
        plock.abort();
        let taken = (matches!(flock.await, Ok(Ok(()))), matches!(plock.await, Ok(Ok(()))));
        forgotten(&meta).await;
        assert_eq!(!flocks(&meta).await.is_empty(), taken.0, "round {round}");
        assert_eq!(!plocks(&meta).await.is_empty(), taken.1, "round {round}");
        unflock(&meta, TWO).await;
        unplock(&meta, TWO, 0, END).await;
    }
}

async fn a_cancelled_upgrade_keeps_what_was_held(volume: Volume) {
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
        forgotten(&meta).await;
        let kind = if taken.0 { Write } else { Read };
        assert_eq!(flocks(&meta).await[0].kind, kind, "round {round}");
        let range = if taken.1 { (Write, 0, 19) } else { (Read, 5, 14) };
        assert_eq!(ranges(&meta, TWO).await, [range], "round {round}");
        unflock(&meta, TWO).await;
        unplock(&meta, TWO, 0, END).await;
    }
}

async fn a_request_that_waits_ends_with_the_session(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&there, ONE, Write).await.unwrap();
    let waiter = waiting_flock(&here, ONE, Write);
    settle().await;
    here.close().await.unwrap();
    assert!(matches!(waiter.await.unwrap(), Err(Error::Interrupted)));
    unflock(&there, ONE).await;
    assert!(flocks(&there).await.is_empty());
}

async fn a_session_closed_while_a_lock_is_taken_leaves_nothing(volume: Volume) {
    let there = volume.client().await;
    for round in 0..15u64 {
        let here = volume.client().await;
        flock(&here, ONE, Write).await.unwrap();
        let waiter = waiting_flock(&here, TWO, Write);
        settle().await;
        unflock(&here, ONE).await;
        tokio::time::sleep(Duration::from_micros(round * 300)).await;
        here.close().await.unwrap();
        let _ = waiter.await.unwrap();
        assert!(flocks(&there).await.is_empty(), "round {round}");
    }
}

async fn a_cancelled_waiter_passes_its_turn_on(volume: Volume) {
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
        finished(second).await;
        unflock(&meta, LockOwner(3)).await;
    }
}

async fn changes_are_logged(volume: Volume) {
    let meta = volume.client().await;
    let lines_before = log(&meta).await.len();
    flock(&meta, ONE, Read).await.unwrap();
    flock(&meta, ONE, Write).await.unwrap();
    assert!(would_block(&flock(&meta, TWO, Read).await));
    unflock(&meta, TWO).await;
    unflock(&meta, ONE).await;
    plock(&meta, TWO, Write, 0, 9).await.unwrap();
    unplock(&meta, TWO, 5, END).await;
    unplock(&meta, TWO, 5, END).await;
    assert_eq!(
        log(&meta).await[lines_before..],
        [
            "FLOCK(77,4369,R)",
            "FLOCK(77,4369,W)",
            "FLOCK(77,4369,U)",
            "SETLK(77,18446500128157073410,W,0,9,42)",
            "SETLK(77,18446500128157073410,U,5,9223372036854775807,42)",
        ]
    );
}

/// With the latency of a network as well: it opens the windows in which requests cross.
macro_rules! on_every_engine_and_a_slow_one {
    ($($body:ident),* $(,)?) => {
        on_every_engine! { super::setting_with_acls_and_log(); $($body),* }
        on_every_engine! { @engine slow, slow_with, super::setting_with_acls_and_log(); $($body),* }
    };
}

on_every_engine_and_a_slow_one! {
    changes_are_logged,
    readers_share_a_flock,
    a_writer_excludes_every_other_owner,
    a_flock_changes_its_kind_in_place,
    a_refused_upgrade_keeps_the_lock,
    a_downgrade_lets_readers_in,
    the_last_release_removes_the_record,
    a_client_without_a_session_takes_no_locks,
    a_read_only_client_takes_no_locks,
    closing_a_session_drops_its_locks,
    ranges_clash_only_where_they_overlap,
    readers_share_a_range,
    a_release_inside_a_range_splits_it,
    releasing_everything_removes_the_record,
    flocks_and_ranges_know_nothing_of_each_other,
    an_empty_range_is_invalid,
    the_first_range_in_the_way_is_found,
    a_local_release_wakes_at_once,
    a_release_by_another_client_is_noticed,
    waiting_hardly_reads,
    waiting_for_our_own_lock_does_not_look,
    every_waiter_gets_its_turn,
    a_handover_among_many_waiters_costs_few_reads,
    waiting_ranges_are_granted_as_they_come_free,
    a_reader_passes_a_waiting_writer,
    a_cancelled_wait_leaves_nothing,
    a_wait_cancelled_while_the_lock_is_taken_leaves_nothing,
    a_cancelled_upgrade_keeps_what_was_held,
    a_cancelled_waiter_passes_its_turn_on,
    a_request_that_waits_ends_with_the_session,
    a_session_closed_while_a_lock_is_taken_leaves_nothing,
}
