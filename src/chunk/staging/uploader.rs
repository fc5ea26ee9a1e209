//! The uploader of staged blocks: one task that starts uploads as blocks become due.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, warn};

use super::Staging;
use crate::chunk::bucket::UploadPermit;
use crate::chunk::{BlockKey, Reserved, Store};
use crate::error::Error;

/// How often to check whether the upload hours have begun.
const HOURS_CHECK: Duration = Duration::from_mins(1);

/// A block in memory with its reservation.
pub struct LoadedBlock {
    pub body: Bytes,
    pub tier: u8,
    pub reserved: Option<Reserved>,
}

impl Staging {
    /// Uploads blocks as they become due, as long as the store exists. Starts with those that an
    /// earlier run left.
    pub(in crate::chunk) async fn run(self: Arc<Self>, store: Weak<Store>) {
        for (block, _) in self.cache.staged().await {
            self.queue.add_leftover(block);
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
                    store.start_upload(&self, block).await;
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
    /// memory if that can start at once; otherwise its memory is released.
    pub(in crate::chunk) fn take_over(
        self: &Arc<Self>,
        store: &Arc<Store>,
        block: BlockKey,
        loaded: LoadedBlock,
    ) {
        let at_once = self.rules.as_ref().is_some_and(|rules| rules.delay.is_zero());
        let permit =
            if at_once && self.may_upload() { store.bucket.try_upload_permit() } else { None };
        if let Some(permit) = permit {
            self.queue.add_uploading(block);
            let (staging, own) = (Arc::clone(self), Arc::clone(store));
            store.spawn(async move { own.upload_staged(&staging, block, loaded, permit).await });
        } else {
            self.queue.add(block);
            self.changed.notify_waiters();
        }
    }

    /// Returns the next block to upload, and when.
    fn due(&self) -> Option<(Instant, BlockKey)> {
        let (due, block) = self.queue.first()?;
        let due = if self.may_upload() { due } else { due.max(Instant::now() + HOURS_CHECK) };
        Some((due, block))
    }
}

impl Store {
    /// Loads a staged block and starts its upload as soon as there is a permit.
    ///
    /// Memory is reserved before the permit, as for every upload: a holder of a permit never waits
    /// for memory, so permits are always returned, and with them the memory of waiting uploads.
    async fn start_upload(self: &Arc<Self>, staging: &Arc<Staging>, block: BlockKey) {
        let reserved = self.budget.reserve(block.size as usize).await;
        let permit = self.bucket.upload_permit().await;
        // The block may have been discarded during the wait.
        let Some(since) = staging.queue.start_upload(block) else { return };
        staging.add_delay(since);
        let (staging, own) = (Arc::clone(staging), Arc::clone(self));
        self.spawn(async move {
            match staging.cache.read_staged(block).await {
                Ok((body, tier)) => {
                    let loaded = LoadedBlock { body, tier, reserved: Some(reserved) };
                    own.upload_staged(&staging, block, loaded, permit).await;
                }
                Err(Error::NotFound) => own.handle_missing(&staging, block).await,
                Err(error) => staging.retry_later(block, &error),
            }
        });
    }

    async fn upload_staged(
        &self,
        staging: &Staging,
        block: BlockKey,
        loaded: LoadedBlock,
        permit: UploadPermit,
    ) {
        let outcome = self.bucket.put(&permit, block, loaded.body, loaded.tier).await;
        drop((permit, loaded.reserved));
        match outcome {
            Err(error) => staging.retry_later(block, &error),
            Ok(()) if staging.contains(block) => {
                staging.cache.unstage(block).await;
                staging.forget(block);
            }
            // Discarded meanwhile, perhaps before its object existed.
            Ok(()) => {
                if let Err(error) = self.bucket.delete(block).await {
                    warn!(slice = block.slice.0, %error, "cannot delete the object of a discarded block");
                }
            }
        }
    }

    /// Handles a block that was staged and is no longer on disk: another process with the same
    /// cache may have uploaded it.
    async fn handle_missing(&self, staging: &Staging, block: BlockKey) {
        match self.bucket.contains(block).await {
            Ok(true) => staging.forget(block),
            Ok(false) => {
                let key = self.layout().key(block);
                error!(key, "a staged block is lost: it is neither on disk nor in the bucket");
                staging.forget(block);
            }
            Err(error) => staging.retry_later(block, &error),
        }
    }
}

impl Staging {
    fn retry_later(&self, block: BlockKey, error: &Error) {
        if self.queue.failed(block) {
            warn!(slice = block.slice.0, index = block.index, %error, "cannot upload a staged block; will retry");
        } else {
            debug!(slice = block.slice.0, index = block.index, %error, "cannot upload a staged block; will retry");
        }
        self.changed.notify_waiters();
    }
}
