//! Files that are open already, so that a block that is read piece by piece is opened once.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use super::file::BlockFile;
use super::ledger::AreaId;
use crate::chunk::BlockKey;
use crate::descriptors;
use crate::sync::{Mutex, MutexGuard};

type Open = LruCache<(AreaId, BlockKey), Arc<BlockFile>>;

pub struct OpenFiles {
    open: Mutex<Open>,
}

impl OpenFiles {
    pub fn new() -> Self {
        let most = NonZeroUsize::new(descriptors::cache_files()).unwrap_or(NonZeroUsize::MIN);
        Self { open: Mutex::new(LruCache::new(most)) }
    }

    pub fn find(&self, area: AreaId, block: BlockKey) -> Option<Arc<BlockFile>> {
        self.lock().get(&(area, block)).map(Arc::clone)
    }

    /// Keeps a file for the next reader, unless it is removed already: who removes one comes here
    /// after, so either they see it or this does.
    pub fn keep(&self, area: AreaId, block: BlockKey, file: &Arc<BlockFile>) {
        let replaced = self.lock().push((area, block), Arc::clone(file));
        // Closing takes time; not under the lock.
        drop(replaced);
        if !file.is_linked() {
            self.forget(area, block);
        }
    }

    /// To be called after the file is removed.
    pub fn forget(&self, area: AreaId, block: BlockKey) {
        let forgotten = self.lock().pop(&(area, block));
        drop(forgotten);
    }

    /// Closes what others have removed, so that its room is free.
    pub fn close_removed(&self) {
        let open: Vec<_> = self.lock().iter().map(|(key, file)| (*key, Arc::clone(file))).collect();
        for ((area, block), file) in open {
            if !file.is_linked() {
                self.forget(area, block);
            }
        }
    }

    /// Closes all files of a volume.
    pub fn close_area(&self, area: AreaId) {
        let keys: Vec<_> =
            self.lock().iter().map(|(key, _)| *key).filter(|(of, _)| *of == area).collect();
        for (area, block) in keys {
            self.forget(area, block);
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }
}
