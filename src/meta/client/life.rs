//! The client's life: its tasks, how they end, and whether the volume is still the one it opened.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::RngExt;
use tokio::sync::{Mutex, Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::record::Setting;

/// How long close waits for tasks to come to a good end before it cuts them off.
const GRACE: Duration = Duration::from_secs(10);

pub struct Life {
    /// Tasks take no new turn.
    stop: CancellationToken,
    /// Tasks are dropped where they are.
    abort: CancellationToken,
    tasks: TaskTracker,
    pub(super) phase: Mutex<Phase>,
    lost: AtomicBool,
    why_lost: watch::Sender<Option<Error>>,
    setting: watch::Sender<Arc<Setting>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No session was started.
    Fresh,
    Running,
    Closed,
}

impl Default for Life {
    fn default() -> Self {
        Self {
            stop: CancellationToken::new(),
            abort: CancellationToken::new(),
            tasks: TaskTracker::new(),
            phase: Mutex::new(Phase::Fresh),
            lost: AtomicBool::new(false),
            why_lost: watch::Sender::new(None),
            setting: watch::Sender::new(Arc::default()),
        }
    }
}

impl Drop for Life {
    /// A client dropped without being closed leaves its session to go stale.
    fn drop(&mut self) {
        self.stop.cancel();
        self.abort.cancel();
    }
}

impl Life {
    /// Runs a task of this client. It should look at [`Meta::is_closing`] between its steps: some
    /// seconds later it is dropped wherever it waits.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let abort = self.abort.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = abort.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Ends every task.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            self.abort.cancel();
            self.tasks.wait().await;
        }
    }

    /// The volume is not ours any more: from now on nothing is written.
    pub(super) fn lose(&self, why: Error) {
        self.lost.store(true, Ordering::Release);
        self.why_lost.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(why);
            }
            first
        });
    }

    /// Tells who wants to know that the setting changed.
    pub(super) fn announce(&self, setting: Arc<Setting>) {
        self.setting.send_replace(setting);
    }
}

impl Meta {
    /// Whether tasks should come to an end.
    pub fn is_closing(&self) -> bool {
        self.life.stop.is_cancelled()
    }

    /// Waits until tasks should come to an end.
    pub(super) async fn closing(&self) {
        self.life.stop.cancelled().await;
    }

    /// Refuses once the volume is not ours any more.
    pub(in crate::meta) fn check_ours(&self) -> Result<()> {
        if !self.life.lost.load(Ordering::Acquire) {
            return Ok(());
        }
        let why = self.life.why_lost.borrow().clone();
        Err(why.unwrap_or_else(|| Error::Refused("the volume is gone".to_owned())))
    }

    /// Waits until the volume is not ours any more: its setting is gone, is that of another volume,
    /// or needs a newer client. The owner must unmount then.
    pub async fn lost(&self) -> Error {
        let mut why = self.life.why_lost.subscribe();
        let found = why.wait_for(Option::is_some).await.map(|why| why.clone());
        match found {
            Ok(Some(why)) => why,
            // The sender lives in this client, so it cannot be gone.
            _ => std::future::pending().await,
        }
    }

    /// Changes of the setting that a running client must follow: keys, buckets, limits.
    pub fn setting_changes(&self) -> watch::Receiver<Arc<Setting>> {
        self.life.setting.subscribe()
    }

    /// Does `work` every `period`, more or less, until the client closes.
    pub(super) fn every<F, W>(self: &Arc<Self>, period: Duration, work: W)
    where
        F: Future<Output = ()> + Send,
        W: Fn(Arc<Self>) -> F + Send + 'static,
    {
        let stop = self.life.stop.clone();
        let meta = Arc::downgrade(self);
        self.life.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(jittered(period)) => {}
                }
                let Some(meta) = meta.upgrade() else { return };
                work(meta).await;
            }
        });
    }

    /// Does `work` when the bell rings, until the client closes.
    pub(super) fn whenever<F, W>(self: &Arc<Self>, bell: Arc<Notify>, work: W)
    where
        F: Future<Output = ()> + Send,
        W: Fn(Arc<Self>) -> F + Send + 'static,
    {
        let stop = self.life.stop.clone();
        let meta = Arc::downgrade(self);
        self.life.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = bell.notified() => {}
                }
                let Some(strong) = meta.upgrade() else { return };
                work(strong).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}

/// Between two answers to a bell: enough for others to settle, little enough not to matter.
const PAUSE: Duration = Duration::from_millis(10);

/// Within 5 % of `period`, so that clients started together do not keep step.
pub(super) fn jittered(period: Duration) -> Duration {
    period.mul_f64(rand::rng().random_range(0.95..=1.05))
}
