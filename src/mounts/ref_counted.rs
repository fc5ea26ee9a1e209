//! Values with several users: opened for the first, closed by the last.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Mutex as AsyncMutex;

use crate::error::Result;
use crate::sync::{Mutex, MutexGuard};

/// Values by key. Opening or closing one does not block others.
pub struct RefCountedMap<T> {
    entries: Mutex<HashMap<String, Arc<Entry<T>>>>,
}

struct Entry<T> {
    /// `None` while it is not open. Locked while it is being opened or closed.
    value: AsyncMutex<Option<T>>,
    users: AtomicUsize,
}

/// A user that is removed again unless opening succeeds.
struct PendingUser<'a, T> {
    map: &'a RefCountedMap<T>,
    key: &'a str,
    entry: Arc<Entry<T>>,
    succeeded: bool,
}

impl<T> Default for RefCountedMap<T> {
    fn default() -> Self {
        Self { entries: Mutex::default() }
    }
}

impl<T: Clone> RefCountedMap<T> {
    /// Returns the value, opening it for its first user. Every user must call
    /// [`RefCountedMap::release`].
    pub async fn acquire<F: Future<Output = Result<T>>>(
        &self,
        key: &str,
        open: impl FnOnce() -> F,
    ) -> Result<T> {
        let mut pending = PendingUser::new(self, key);
        let entry = Arc::clone(&pending.entry);
        let mut value = entry.value.lock().await;
        let found = match &*value {
            Some(found) => found.clone(),
            None => value.insert(open().await?).clone(),
        };
        pending.succeeded = true;
        Ok(found)
    }

    /// Removes a user. The last one closes the value.
    pub async fn release<F: Future<Output = ()>>(&self, key: &str, close: impl FnOnce(T) -> F) {
        let Some(entry) = self.lock().get(key).cloned() else { return };
        let mut value = entry.value.lock().await;
        if entry.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        // New users wait, and open it again.
        if let Some(open) = value.take() {
            close(open).await;
        }
        drop(value);
        self.forget_unused(key);
    }

    /// Returns all open values.
    pub fn all(&self) -> Vec<T> {
        let entries: Vec<Arc<Entry<T>>> = self.lock().values().cloned().collect();
        entries.iter().filter_map(|entry| entry.value.try_lock().ok()?.clone()).collect()
    }
}

impl<T> RefCountedMap<T> {
    fn forget_unused(&self, key: &str) {
        let mut entries = self.lock();
        if entries.get(key).is_some_and(|entry| entry.users.load(Ordering::Acquire) == 0) {
            entries.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry<T>>>> {
        self.entries.lock()
    }
}

impl<'a, T> PendingUser<'a, T> {
    fn new(map: &'a RefCountedMap<T>, key: &'a str) -> Self {
        let mut entries = map.lock();
        let entry = entries.entry(key.to_owned()).or_insert_with(|| {
            Arc::new(Entry { value: AsyncMutex::new(None), users: AtomicUsize::new(0) })
        });
        entry.users.fetch_add(1, Ordering::AcqRel);
        Self { map, key, entry: Arc::clone(entry), succeeded: false }
    }
}

impl<T> Drop for PendingUser<'_, T> {
    fn drop(&mut self) {
        if !self.succeeded {
            // Never the last user of an open value: then opening would have succeeded.
            self.entry.users.fetch_sub(1, Ordering::AcqRel);
            self.map.forget_unused(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use futures::future::join_all;

    use super::*;
    use crate::error::Error;

    #[tokio::test]
    async fn a_value_is_opened_once_and_closed_once() {
        let map = RefCountedMap::default();
        let (opened, closed) = (AtomicU32::new(0), AtomicU32::new(0));
        let open = || async {
            tokio::task::yield_now().await;
            Ok(opened.fetch_add(1, Ordering::Relaxed))
        };
        let all = join_all((0..5).map(|_| map.acquire("a", open))).await;
        assert!(all.into_iter().all(|found| found.unwrap() == 0));
        for left in (0..5).rev() {
            map.release("a", |_| async {
                closed.fetch_add(1, Ordering::Relaxed);
            })
            .await;
            assert_eq!(closed.load(Ordering::Relaxed), u32::from(left == 0));
        }
        assert_eq!(map.acquire("a", open).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn failed_and_cancelled_users_leave_nothing_behind() {
        let map: RefCountedMap<u32> = RefCountedMap::default();
        assert!(map.acquire("a", || async { Err(Error::NotFound) }).await.is_err());
        {
            let mut hanging = Box::pin(map.acquire("a", std::future::pending));
            assert!(futures::poll!(&mut hanging).is_pending());
        }
        assert!(map.lock().is_empty());
        assert_eq!(map.acquire("a", || async { Ok(7) }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn opening_one_value_does_not_block_another() {
        let map: RefCountedMap<u32> = RefCountedMap::default();
        let mut hanging = Box::pin(map.acquire("a", std::future::pending));
        assert!(futures::poll!(&mut hanging).is_pending());
        assert_eq!(map.acquire("b", || async { Ok(1) }).await.unwrap(), 1);
    }
}
