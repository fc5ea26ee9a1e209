//! Locks that are being given up because their handle was closed.
//!
//! Closing a file does not wait for the answer to its release. But the kernel sends the release
//! before close(2) returns, so whoever asks for a lock after that comes behind it here. They wait
//! until the releases that came before them have given their locks up, and for no others.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::meta::Ino;
use crate::sync::{Mutex, MutexGuard};

/// The releases under way, by file.
#[derive(Debug, Default)]
pub struct Unlocks(Mutex<UnderWay>);

#[derive(Debug, Default)]
struct UnderWay {
    by_ino: HashMap<Ino, Vec<(u64, watch::Receiver<()>)>>,
    last: u64,
}

/// A release under way; dropping it ends it.
#[derive(Debug)]
pub struct Unlock {
    all: Arc<Unlocks>,
    ino: Ino,
    number: u64,
    /// Whoever waits hears that it is gone.
    _ends: watch::Sender<()>,
}

impl Unlocks {
    pub fn begin(self: &Arc<Self>, ino: Ino) -> Unlock {
        let (ends, ended) = watch::channel(());
        let mut under_way = self.lock();
        under_way.last += 1;
        let number = under_way.last;
        under_way.by_ino.entry(ino).or_default().push((number, ended));
        Unlock { all: Arc::clone(self), ino, number, _ends: ends }
    }

    /// Waits until those that have begun before this call have ended.
    pub fn earlier(&self, ino: Ino) -> impl Future<Output = ()> + Send + use<> {
        let under_way = self.lock();
        let earlier = under_way.by_ino.get(&ino).into_iter().flatten();
        let earlier: Vec<_> = earlier.map(|(_, ended)| ended.clone()).collect();
        async move {
            for mut ended in earlier {
                // Nothing is ever sent: it fails once the sender is gone.
                let _ = ended.changed().await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.0.lock()
    }
}

impl Drop for Unlock {
    fn drop(&mut self) {
        let mut under_way = self.all.lock();
        let Some(releases) = under_way.by_ino.get_mut(&self.ino) else { return };
        releases.retain(|(number, _)| *number != self.number);
        if releases.is_empty() {
            under_way.by_ino.remove(&self.ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn who_comes_later_waits_for_the_releases_of_the_same_file() {
        let unlocks = Arc::new(Unlocks::default());
        let (one, two) = (unlocks.begin(Ino(7)), unlocks.begin(Ino(7)));
        let mut waits = Box::pin(unlocks.earlier(Ino(7)));
        assert!(unlocks.earlier(Ino(8)).now_or_never().is_some(), "another file");
        let _later = unlocks.begin(Ino(7));
        assert!((&mut waits).now_or_never().is_none());
        drop(two);
        assert!((&mut waits).now_or_never().is_none());
        drop(one);
        waits.await;
    }

    #[tokio::test]
    async fn nothing_is_kept_of_what_has_ended() {
        let unlocks = Arc::new(Unlocks::default());
        drop(unlocks.begin(Ino(7)));
        assert!(unlocks.lock().by_ino.is_empty());
        assert!(unlocks.earlier(Ino(7)).now_or_never().is_some());
    }
}
