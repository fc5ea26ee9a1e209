//! Staged blocks that a crash of the machine may still take, and syncing them in groups.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::warn;

use super::{STAGE_TIMEOUT, Staging};
use crate::chunk::BlockKey;
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// How long blocks wait for others to be synced with, if nothing asks for them earlier. Most are in
/// the bucket by then.
const SYNC_DELAY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Unsynced {
    /// With whether syncing failed: then the kernel may have dropped the data, and a later success
    /// would mean nothing. Such a block is safe only in the bucket.
    blocks: Mutex<HashMap<BlockKey, SyncState>>,
    added: Notify,
    /// One sync at a time: those who wait for it are served together by the next.
    syncing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncState {
    Waiting,
    Failed,
}

impl Unsynced {
    pub fn add(&self, block: BlockKey) {
        self.blocks.lock().insert(block, SyncState::Waiting);
        self.added.notify_one();
    }

    /// Removes a block that is in the bucket or no longer needed.
    pub fn remove(&self, block: BlockKey) {
        self.blocks.lock().remove(&block);
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.lock().is_empty()
    }

    fn waiting(&self) -> Vec<BlockKey> {
        let blocks = self.blocks.lock();
        let waiting = blocks.iter().filter(|(_, state)| **state == SyncState::Waiting);
        waiting.map(|(block, _)| *block).collect()
    }

    fn failed(&self) -> usize {
        self.blocks.lock().values().filter(|state| **state == SyncState::Failed).count()
    }

    /// Blocks that were uploaded meanwhile stay away.
    fn mark_failed(&self, failed: &[BlockKey]) {
        let mut blocks = self.blocks.lock();
        for block in failed {
            if let Some(state) = blocks.get_mut(block) {
                *state = SyncState::Failed;
            }
        }
    }
}

impl Staging {
    /// Returns when everything staged before survives a crash of the machine. Concurrent calls share
    /// the work.
    pub async fn sync(&self) -> Result<()> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        let _syncing = self.unsynced.syncing.lock().await;
        let blocks = self.unsynced.waiting();
        if !blocks.is_empty() {
            let synced = self.cache.sync_staged(blocks.clone());
            let synced = tokio::time::timeout(STAGE_TIMEOUT, synced).await;
            match synced.unwrap_or_else(|_| Err(sync_error("the disk does not respond"))) {
                Ok(()) => blocks.iter().for_each(|block| self.unsynced.remove(*block)),
                Err(error) => {
                    warn!(%error, blocks = blocks.len(), "staged blocks are not safe until they are uploaded");
                    self.unsynced.mark_failed(&blocks);
                }
            }
        }
        match self.unsynced.failed() {
            0 => Ok(()),
            _ => Err(sync_error("blocks are neither safe on the disk nor in the bucket")),
        }
    }

    /// Syncs what nothing has asked for, as long as the store exists.
    pub(in crate::chunk) async fn sync_in_background(&self) {
        loop {
            self.unsynced.added.notified().await;
            tokio::time::sleep(SYNC_DELAY).await;
            // A failure is logged, and returned to those who sync.
            let _ = self.sync().await;
        }
    }
}

fn sync_error(cause: &str) -> Error {
    Error::Storage {
        place: "cache".to_owned(),
        action: "sync",
        key: "staged blocks".to_owned(),
        cause: cause.to_owned(),
    }
}
