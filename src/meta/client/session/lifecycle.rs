//! The lifecycle of the client: its tasks, how they end, and whether the volume was lost.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::RngExt;
use tokio::sync::{Mutex, Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::record::Setting;

/// How long `close` waits for tasks to finish before it aborts them.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Lifecycle {
    /// Tasks start no new round.
    stop: CancellationToken,
    /// Tasks are dropped at their next await.
    abort: CancellationToken,
    tasks: TaskTracker,
    pub(in crate::meta::client) phase: Mutex<Phase>,
    lost: AtomicBool,
    why_lost: watch::Sender<Option<Error>>,
    setting: watch::Sender<Arc<Setting>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No session was started yet.
    New,
    Running,
    Closed,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            stop: CancellationToken::new(),
            abort: CancellationToken::new(),
            tasks: TaskTracker::new(),
            phase: Mutex::new(Phase::New),
            lost: AtomicBool::new(false),
            why_lost: watch::Sender::new(None),
            setting: watch::Sender::new(Arc::default()),
        }
    }
}

impl Drop for Lifecycle {
    /// Stops the tasks of a client that was dropped without being closed. Its session becomes
    /// stale.
    fn drop(&mut self) {
        self.stop.cancel();
        self.abort.cancel();
    }
}

impl Lifecycle {
    /// Spawns a task of this client. It should check [`Meta::is_closing`] between its steps: some
    /// seconds later it is dropped wherever it waits.
    pub(in crate::meta::client) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let abort = self.abort.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = abort.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Stops all tasks.
    pub(in crate::meta::client) async fn stop_tasks(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(STOP_TIMEOUT, self.tasks.wait()).await.is_err() {
            self.abort.cancel();
            self.tasks.wait().await;
        }
    }

    /// Marks the volume as lost: from now on nothing is written.
    pub(in crate::meta::client) fn mark_lost(&self, why: Error) {
        self.lost.store(true, Ordering::Release);
        self.why_lost.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(why);
            }
            first
        });
    }

    /// Publishes a changed setting to the subscribers.
    pub(in crate::meta::client) fn publish_setting(&self, setting: Arc<Setting>) {
        self.setting.send_replace(setting);
    }
}

impl Meta {
    /// Whether tasks should stop.
    pub fn is_closing(&self) -> bool {
        self.lifecycle.stop.is_cancelled()
    }

    /// Waits until tasks should stop.
    pub(in crate::meta::client) async fn closing(&self) {
        self.lifecycle.stop.cancelled().await;
    }

    /// Fails if the volume is lost.
    pub(in crate::meta::client) fn check_not_lost(&self) -> Result<()> {
        if !self.lifecycle.lost.load(Ordering::Acquire) {
            return Ok(());
        }
        let why = self.lifecycle.why_lost.borrow().clone();
        Err(why.unwrap_or_else(|| Error::Refused("the volume is gone".to_owned())))
    }

    /// Waits until the volume is lost: its setting is gone, belongs to another volume, or requires
    /// a newer client. The owner must unmount then.
    pub async fn lost(&self) -> Error {
        let mut why = self.lifecycle.why_lost.subscribe();
        let found = why.wait_for(Option::is_some).await.map(|why| why.clone());
        match found {
            Ok(Some(why)) => why,
            // The sender lives in this client, so it cannot be dropped.
            _ => std::future::pending().await,
        }
    }

    /// Changes of the setting that a running client must follow: keys, buckets, limits.
    pub fn setting_changes(&self) -> watch::Receiver<Arc<Setting>> {
        self.lifecycle.setting.subscribe()
    }

    /// Runs `work` about every `period` until the client closes.
    pub(in crate::meta::client) fn run_every<F, W>(self: &Arc<Self>, period: Duration, work: W)
    where
        F: Future<Output = ()> + Send,
        W: Fn(Arc<Self>) -> F + Send + 'static,
    {
        let stop = self.lifecycle.stop.clone();
        let meta = Arc::downgrade(self);
        self.lifecycle.spawn(async move {
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

    /// Runs `work` after each notification until the client closes.
    pub(in crate::meta::client) fn run_on_notify<F, W>(
        self: &Arc<Self>,
        notify: Arc<Notify>,
        work: W,
    ) where
        F: Future<Output = ()> + Send,
        W: Fn(Arc<Self>) -> F + Send + 'static,
    {
        let stop = self.lifecycle.stop.clone();
        let meta = Arc::downgrade(self);
        self.lifecycle.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = notify.notified() => {}
                }
                let Some(strong) = meta.upgrade() else { return };
                work(strong).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}

/// The pause after each run: long enough for further notifications to accumulate, short enough not
/// to matter.
const PAUSE: Duration = Duration::from_millis(10);

/// Within 5 % of `period`, so that clients started together do not stay synchronized.
pub(in crate::meta::client) fn jittered(period: Duration) -> Duration {
    period.mul_f64(rand::rng().random_range(0.95..=1.05))
}
