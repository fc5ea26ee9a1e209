//! Open block files, so that a block that is read in several ranges is opened once.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use crate::chunk::BlockKey;
use crate::chunk::cache::accounting::AccountId;
use crate::chunk::cache::block_file::BlockFile;
use crate::descriptors;
use crate::sync::{Mutex, MutexGuard};

type Open = LruCache<(AccountId, BlockKey), Arc<BlockFile>>;

pub struct OpenFiles {
    open: Mutex<Open>,
}

impl OpenFiles {
    pub fn new() -> Self {
        let most = NonZeroUsize::new(descriptors::cache_files()).unwrap_or(NonZeroUsize::MIN);
        Self { open: Mutex::new(LruCache::new(most)) }
    }

    pub fn find(&self, id: AccountId, block: BlockKey) -> Option<Arc<BlockFile>> {
        self.lock().get(&(id, block)).map(Arc::clone)
    }

    /// Keeps a file for the next reader, unless it has been removed. A remover calls
    /// [`OpenFiles::forget`] after it removed the file, so either it sees this entry or this sees
    /// the removal.
    pub fn keep(&self, id: AccountId, block: BlockKey, file: &Arc<BlockFile>) {
        let replaced = self.lock().push((id, block), Arc::clone(file));
        // Closing takes time, so it happens outside the lock.
        drop(replaced);
        if !file.is_linked() {
            self.forget(id, block);
        }
    }

    /// Closes a file. Must be called after the file is removed.
    pub fn forget(&self, id: AccountId, block: BlockKey) {
        let forgotten = self.lock().pop(&(id, block));
        drop(forgotten);
    }

    /// Closes files that others have removed, so that their space becomes free.
    pub fn close_removed(&self) {
        let open: Vec<_> = self.lock().iter().map(|(key, file)| (*key, Arc::clone(file))).collect();
        for ((id, block), file) in open {
            if !file.is_linked() {
                self.forget(id, block);
            }
        }
    }

    /// Closes all files of a volume.
    pub fn close_volume(&self, id: AccountId) {
        let keys: Vec<_> =
            self.lock().iter().map(|(key, _)| *key).filter(|(of, _)| *of == id).collect();
        for (id, block) in keys {
            self.forget(id, block);
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
