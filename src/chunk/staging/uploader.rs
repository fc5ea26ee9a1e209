//! The uploader of staged blocks: one task that hands out turns as blocks become due.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, warn};

use super::Staging;
use crate::chunk::bucket::UploadTurn;
use crate::chunk::{BlockKey, Reserved, Store};
use crate::error::Error;

/// How often it looks whether the hours of uploading have begun.
const HOURS_CHECK: Duration = Duration::from_mins(1);

/// A block in memory and what it takes there.
pub struct Loaded {
    pub body: Bytes,
    pub tier: u8,
    pub reserved: Option<Reserved>,
}

impl Staging {
    /// Uploads what is due, for as long as the store lives. Starts with what an earlier run has left.
    pub(in crate::chunk) async fn run(self: Arc<Self>, store: Weak<Store>) {
        for (block, _) in self.cache.staged().await {
            self.list.add_leftover(block);
        }
        self.is_listed.store(true, Ordering::Release);
        self.changed.notify_waiters();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.due() {
                Some((due, block)) if due <= Instant::now() => {
                    let Some(store) = store.upgrade() else { return };
                    store.begin_staged(&self, block).await;
                }
                Some((due, _)) => tokio::select! {
                    () = sleep_until(due) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    /// Takes over a block that has just been staged and is still in memory. It is uploaded from
    /// there if that can begin at once; otherwise its memory is not held any longer.
    pub(in crate::chunk) fn admit(
        self: &Arc<Self>,
        store: &Arc<Store>,
        block: BlockKey,
        loaded: Loaded,
    ) {
        let at_once = self.rules.as_ref().is_some_and(|rules| rules.delay.is_zero());
        let turn = if at_once && self.is_open() { store.bucket.try_upload_turn() } else { None };
        if let Some(turn) = turn {
            self.list.add_begun(block);
            let (staging, own) = (Arc::clone(self), Arc::clone(store));
            store.work(async move { own.upload_staged(&staging, block, loaded, turn).await });
        } else {
            self.list.add(block);
            self.changed.notify_waiters();
        }
    }

    /// What is to be done next, and when.
    fn due(&self) -> Option<(Instant, BlockKey)> {
        let (due, block) = self.list.first()?;
        let due = if self.is_open() { due } else { due.max(Instant::now() + HOURS_CHECK) };
        Some((due, block))
    }
}

impl Store {
    /// Loads a staged block and starts its upload as soon as there is a turn.
    ///
    /// Memory comes before the turn, as with every upload: who has a turn never waits for memory, so
    /// turns always end, and with them what is waiting in memory.
    async fn begin_staged(self: &Arc<Self>, staging: &Arc<Staging>, block: BlockKey) {
        let reserved = self.budget.reserve(block.size as usize).await;
        let turn = self.bucket.upload_turn().await;
        // It may have been removed while this waited.
        let Some(since) = staging.list.begin(block) else { return };
        staging.began(since);
        let (staging, own) = (Arc::clone(staging), Arc::clone(self));
        self.work(async move {
            match staging.cache.read_staged(block).await {
                Ok((body, tier)) => {
                    let loaded = Loaded { body, tier, reserved: Some(reserved) };
                    own.upload_staged(&staging, block, loaded, turn).await;
                }
                Err(Error::NotFound) => own.settle_vanished(&staging, block).await,
                Err(error) => staging.put_back(block, &error),
            }
        });
    }

    async fn upload_staged(
        &self,
        staging: &Staging,
        block: BlockKey,
        loaded: Loaded,
        turn: UploadTurn,
    ) {
        let outcome = self.bucket.put(&turn, block, loaded.body, loaded.tier).await;
        drop((turn, loaded.reserved));
        match outcome {
            Err(error) => staging.put_back(block, &error),
            Ok(()) if staging.contains(block) => {
                staging.cache.unstage(block).await;
                staging.forget(block);
            }
            // Removed meanwhile, perhaps before its object was there to be deleted.
            Ok(()) => {
                if let Err(error) = self.bucket.delete(block).await {
                    warn!(slice = block.slice.0, %error, "the object of a removed block stays");
                }
            }
        }
    }

    /// A block that was staged and is not there: another process with the same cache may have
    /// uploaded it.
    async fn settle_vanished(&self, staging: &Staging, block: BlockKey) {
        match self.bucket.contains(block).await {
            Ok(true) => staging.forget(block),
            Ok(false) => {
                let key = self.layout().key(block);
                error!(key, "a staged block is gone from the disk and is not in the bucket");
                staging.forget(block);
            }
            Err(error) => staging.put_back(block, &error),
        }
    }
}

impl Staging {
    fn put_back(&self, block: BlockKey, error: &Error) {
        if self.list.failed(block) {
            warn!(slice = block.slice.0, index = block.index, %error, "a staged block has to wait");
        } else {
            debug!(slice = block.slice.0, index = block.index, %error, "a staged block has to wait");
        }
        self.changed.notify_waiters();
    }
}
