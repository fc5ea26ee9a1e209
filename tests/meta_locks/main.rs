//! Locks: conflicts between owners and clients, and waiting for locks.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jfs::Error;
use jfs::meta::engine::{Key, Record};
use jfs::meta::record::LockKind;
use jfs::meta::record::{Flock, Plock, PlockRange};
use jfs::meta::{Ino, LockOwner, Meta};
use support::records::stored;
use tokio::task::JoinHandle;

const INO: Ino = Ino(77);
const ONE: LockOwner = LockOwner(0x1111);
const TWO: LockOwner = LockOwner(0xFFFF_2222_0000_0002);
const END: u64 = PlockRange::OPEN_END;

/// Longer than any wait unless something hangs.
const TIMEOUT: Duration = Duration::from_secs(10);

type LockResult = Result<(), Error>;

async fn flock(meta: &Arc<Meta>, owner: LockOwner, kind: LockKind) -> LockResult {
    meta.flock(INO, owner, Some(kind), false).await
}

async fn unflock(meta: &Arc<Meta>, owner: LockOwner) {
    meta.flock(INO, owner, None, false).await.unwrap();
}

async fn plock(
    meta: &Arc<Meta>,
    owner: LockOwner,
    kind: LockKind,
    start: u64,
    end: u64,
) -> LockResult {
    meta.set_plock(INO, owner, Some(kind), start..=end, 42, false).await
}

async fn unplock(meta: &Arc<Meta>, owner: LockOwner, start: u64, end: u64) {
    meta.set_plock(INO, owner, None, start..=end, 42, false).await.unwrap();
}

fn waiting_flock(meta: &Arc<Meta>, owner: LockOwner, kind: LockKind) -> JoinHandle<LockResult> {
    let meta = Arc::clone(meta);
    tokio::spawn(async move { meta.flock(INO, owner, Some(kind), true).await })
}

fn waiting_plock(
    meta: &Arc<Meta>,
    owner: LockOwner,
    kind: LockKind,
    start: u64,
    end: u64,
) -> JoinHandle<LockResult> {
    let meta = Arc::clone(meta);
    tokio::spawn(async move { meta.set_plock(INO, owner, Some(kind), start..=end, 42, true).await })
}

async fn granted(task: JoinHandle<LockResult>) {
    tokio::time::timeout(TIMEOUT, task).await.expect("waits forever").unwrap().unwrap();
}

/// Waits until all cancelled requests have ended and undone what they did.
async fn wait_for_pending_locks(meta: &Meta) {
    let started = Instant::now();
    while meta.pending_locks() > 0 {
        assert!(started.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn would_block(result: &LockResult) -> bool {
    matches!(result, Err(Error::WouldBlock))
}

/// Lets tasks run until they wait for something.
async fn let_tasks_block() {
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
    let own = locks.into_iter().filter(|lock| lock.sid == meta.context().sid());
    own.filter(|lock| lock.owner == owner)
        .flat_map(|lock| lock.ranges)
        .map(|range| (range.kind, range.start, range.end))
        .collect()
}

/// Also runs each body on a store with the latency of a network, where requests overlap more often.
macro_rules! on_every_engine_and_a_slow_one {
    ($($body:ident),* $(,)?) => {
        $crate::on_every_engine! { super::setting_with_acls_and_log(); $($body),* }
        $crate::on_every_engine! {
            @engine slow, slow_with, super::setting_with_acls_and_log(); $($body),*
        }
    };
}

mod cancelling;
mod flocks;
mod ranges;
mod waiting;
