//! Usage of the whole volume: what the store says, and what this client has yet to tell it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::sync::Mutex;

use super::Meta;
use crate::error::Result;
use crate::meta::record::Counter;

#[derive(Default)]
pub struct Usage {
    space: Tally,
    inodes: Tally,
    /// Whether the store was ever asked.
    known: AtomicBool,
    /// One flush at a time, so that nothing is sent twice.
    flushing: Mutex<()>,
}

#[derive(Default)]
struct Tally {
    stored: AtomicI64,
    unsent: AtomicI64,
}

impl Usage {
    /// Bytes and inodes in use, as far as this client knows.
    pub fn now(&self) -> (i64, i64) {
        (self.space.now(), self.inodes.now())
    }

    /// Whether [`Usage::now`] rests on what the store said.
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// A change that the commit has stored already.
    pub(super) fn committed(&self, space: i64, inodes: i64) {
        self.space.stored.fetch_add(space, Ordering::Relaxed);
        self.inodes.stored.fetch_add(inodes, Ordering::Relaxed);
    }

    /// A change that the store is still to be told.
    pub(super) fn owe(&self, space: i64, inodes: i64) {
        self.space.unsent.fetch_add(space, Ordering::Relaxed);
        self.inodes.unsent.fetch_add(inodes, Ordering::Relaxed);
    }

    pub(super) fn learn(&self, space: i64, inodes: i64) {
        self.space.stored.store(space, Ordering::Relaxed);
        self.inodes.stored.store(inodes, Ordering::Relaxed);
        self.known.store(true, Ordering::Release);
    }
}

impl Tally {
    fn now(&self) -> i64 {
        self.stored.load(Ordering::Relaxed) + self.unsent.load(Ordering::Relaxed)
    }
}

impl Meta {
    /// Tells the store what it was not told yet. What fails stays owed.
    pub async fn flush_usage(&self) -> Result<()> {
        let usage = &self.facts.usage;
        let _turn = usage.flushing.lock().await;
        for (tally, counter) in
            [(&usage.space, Counter::UsedSpace), (&usage.inodes, Counter::TotalInodes)]
        {
            let owed = tally.unsent.load(Ordering::Relaxed);
            if owed != 0 {
                let stored = self.engine.add_counter(counter, owed).await?;
                tally.unsent.fetch_sub(owed, Ordering::Relaxed);
                tally.stored.store(stored, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Asks the store for the volume's usage.
    pub(super) async fn reload_usage(&self) -> Result<()> {
        let (space, inodes) = futures::try_join!(
            self.engine.counter(Counter::UsedSpace),
            self.engine.counter(Counter::TotalInodes)
        )?;
        self.facts.usage.learn(space, inodes);
        Ok(())
    }
}
