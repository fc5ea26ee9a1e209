//! Things that several use: opened for the first, closed after the last.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Mutex as AsyncMutex;

use crate::error::Result;
use crate::sync::{Mutex, MutexGuard};

/// Who opens or closes one thing keeps nobody from another.
pub struct Shared<T> {
    slots: Mutex<HashMap<String, Arc<Slot<T>>>>,
}

struct Slot<T> {
    /// None while it is not open. Held while it is being opened or closed.
    thing: AsyncMutex<Option<T>>,
    users: AtomicUsize,
}

/// Somebody who counts as a user until told otherwise.
struct Joining<'a, T> {
    shared: &'a Shared<T>,
    key: &'a str,
    slot: Arc<Slot<T>>,
    stays: bool,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { slots: Mutex::default() }
    }
}

impl<T: Clone> Shared<T> {
    /// The thing of this name, which is opened if nobody uses it. Everyone who joins has to leave.
    pub async fn join<F: Future<Output = Result<T>>>(
        &self,
        key: &str,
        open: impl FnOnce() -> F,
    ) -> Result<T> {
        let mut joining = Joining::new(self, key);
        let slot = Arc::clone(&joining.slot);
        let mut thing = slot.thing.lock().await;
        let found = match &*thing {
            Some(found) => found.clone(),
            None => thing.insert(open().await?).clone(),
        };
        joining.stays = true;
        Ok(found)
    }

    /// One user less; the last one closes it.
    pub async fn leave<F: Future<Output = ()>>(&self, key: &str, close: impl FnOnce(T) -> F) {
        let Some(slot) = self.lock().get(key).cloned() else { return };
        let mut thing = slot.thing.lock().await;
        if slot.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        // Who joins now waits, and opens it anew.
        if let Some(open) = thing.take() {
            close(open).await;
        }
        drop(thing);
        self.forget_unused(key);
    }

    /// Everything that is open.
    pub fn all(&self) -> Vec<T> {
        let slots: Vec<Arc<Slot<T>>> = self.lock().values().cloned().collect();
        slots.iter().filter_map(|slot| slot.thing.try_lock().ok()?.clone()).collect()
    }
}

impl<T> Shared<T> {
    fn forget_unused(&self, key: &str) {
        let mut slots = self.lock();
        if slots.get(key).is_some_and(|slot| slot.users.load(Ordering::Acquire) == 0) {
            slots.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Slot<T>>>> {
        self.slots.lock()
    }
}

impl<'a, T> Joining<'a, T> {
    fn new(shared: &'a Shared<T>, key: &'a str) -> Self {
        let mut slots = shared.lock();
        let slot = slots.entry(key.to_owned()).or_insert_with(|| {
            Arc::new(Slot { thing: AsyncMutex::new(None), users: AtomicUsize::new(0) })
        });
        slot.users.fetch_add(1, Ordering::AcqRel);
        Self { shared, key, slot: Arc::clone(slot), stays: false }
    }
}

impl<T> Drop for Joining<'_, T> {
    fn drop(&mut self) {
        if !self.stays {
            // Never the last user of something open: then it would have stayed.
            self.slot.users.fetch_sub(1, Ordering::AcqRel);
            self.shared.forget_unused(self.key);
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
    async fn it_is_opened_once_and_closed_once() {
        let shared = Shared::default();
        let (opened, closed) = (AtomicU32::new(0), AtomicU32::new(0));
        let open = || async {
            tokio::task::yield_now().await;
            Ok(opened.fetch_add(1, Ordering::Relaxed))
        };
        let all = join_all((0..5).map(|_| shared.join("a", open))).await;
        assert!(all.into_iter().all(|found| found.unwrap() == 0));
        for left in (0..5).rev() {
            shared
                .leave("a", |_| async {
                    closed.fetch_add(1, Ordering::Relaxed);
                })
                .await;
            assert_eq!(closed.load(Ordering::Relaxed), u32::from(left == 0));
        }
        assert_eq!(shared.join("a", open).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn who_fails_or_gives_up_leaves_nothing_behind() {
        let shared: Shared<u32> = Shared::default();
        assert!(shared.join("a", || async { Err(Error::NotFound) }).await.is_err());
        {
            let mut hanging = Box::pin(shared.join("a", std::future::pending));
            assert!(futures::poll!(&mut hanging).is_pending());
        }
        assert!(shared.lock().is_empty());
        assert_eq!(shared.join("a", || async { Ok(7) }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn one_that_hangs_keeps_nobody_from_another() {
        let shared: Shared<u32> = Shared::default();
        let mut hanging = Box::pin(shared.join("a", std::future::pending));
        assert!(futures::poll!(&mut hanging).is_pending());
        assert_eq!(shared.join("b", || async { Ok(1) }).await.unwrap(), 1);
    }
}
