//! The client's life: its tasks, and how they end.

use std::future::Future;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Meta;

#[derive(Default)]
pub struct Life {
    /// Tasks take no new turn.
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Life {
    /// Runs a task of this client. It should look at [`Meta::is_closing`] between its steps.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }
}

impl Meta {
    /// Whether tasks should come to an end.
    pub fn is_closing(&self) -> bool {
        self.life.stop.is_cancelled()
    }
}
