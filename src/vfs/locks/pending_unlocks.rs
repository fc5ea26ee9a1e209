//! Locks that are being released because their handle was closed.
//!
//! close(2) does not wait for the reply to its release. But the kernel sends the release before
//! close(2) returns, so a request for a lock after that arrives here later than the release. It
//! waits until the releases before it have given up their locks, and for no others.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::meta::Ino;
use crate::sync::{Mutex, MutexGuard};

/// The releases under way, by file.
#[derive(Debug, Default)]
pub struct PendingUnlocks(Mutex<Releases>);

#[derive(Debug, Default)]
struct Releases {
    by_ino: HashMap<Ino, Vec<(u64, watch::Receiver<()>)>>,
    last: u64,
}

/// A release under way. Dropping it ends it.
#[derive(Debug)]
pub struct PendingUnlock {
    all: Arc<PendingUnlocks>,
    ino: Ino,
    number: u64,
    /// Dropping it wakes the waiters.
    _ends: watch::Sender<()>,
}

impl PendingUnlocks {
    pub fn begin(self: &Arc<Self>, ino: Ino) -> PendingUnlock {
        let (ends, ended) = watch::channel(());
        let mut releases = self.lock();
        releases.last += 1;
        let number = releases.last;
        releases.by_ino.entry(ino).or_default().push((number, ended));
        PendingUnlock { all: Arc::clone(self), ino, number, _ends: ends }
    }

    /// Waits until the releases that began before this call have ended.
    pub fn earlier(&self, ino: Ino) -> impl Future<Output = ()> + Send + use<> {
        let releases = self.lock();
        let earlier = releases.by_ino.get(&ino).into_iter().flatten();
        let earlier: Vec<_> = earlier.map(|(_, ended)| ended.clone()).collect();
        async move {
            for mut ended in earlier {
                // Nothing is ever sent: this fails once the sender is dropped.
                let _ = ended.changed().await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Releases> {
        self.0.lock()
    }
}

impl Drop for PendingUnlock {
    fn drop(&mut self) {
        let mut releases = self.all.lock();
        let Some(of_file) = releases.by_ino.get_mut(&self.ino) else { return };
        of_file.retain(|(number, _)| *number != self.number);
        if of_file.is_empty() {
            releases.by_ino.remove(&self.ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_lock_request_waits_for_earlier_releases_of_the_same_file() {
        let pending_unlocks = Arc::new(PendingUnlocks::default());
        let (one, two) = (pending_unlocks.begin(Ino(7)), pending_unlocks.begin(Ino(7)));
        let mut waits = Box::pin(pending_unlocks.earlier(Ino(7)));
        assert!(pending_unlocks.earlier(Ino(8)).now_or_never().is_some(), "another file");
        let _later = pending_unlocks.begin(Ino(7));
        assert!((&mut waits).now_or_never().is_none());
        drop(two);
        assert!((&mut waits).now_or_never().is_none());
        drop(one);
        waits.await;
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_release_that_has_ended() {
        let pending_unlocks = Arc::new(PendingUnlocks::default());
        drop(pending_unlocks.begin(Ino(7)));
        assert!(pending_unlocks.lock().by_ino.is_empty());
        assert!(pending_unlocks.earlier(Ino(7)).now_or_never().is_some());
    }
}
