//! The works of one long job, some of them beside each other.

use std::sync::OnceLock;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::Semaphore;

use super::Progress;
use crate::error::{Error, Result};

/// Who does a job whose works beget more works. Once one fails or the job is given up, nothing more
/// is begun; what was begun comes to its end, as a commit must.
pub struct Crew<'a> {
    progress: &'a Progress,
    /// Works that run beside others. One that gets no turn is done by itself, so that nobody waits
    /// for a turn while holding one.
    turns: Semaphore,
    failure: OnceLock<Error>,
}

impl<'a> Crew<'a> {
    pub fn new(at_once: usize, progress: &'a Progress) -> Self {
        let turns = Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS));
        Self { progress, turns, failure: OnceLock::new() }
    }

    pub fn progress(&self) -> &Progress {
        self.progress
    }

    /// Asked before each step.
    pub fn check(&self) -> Result<()> {
        match self.failure.get() {
            Some(error) => Err(error.clone()),
            None => self.progress.check(),
        }
    }

    /// Does the work of each.
    pub async fn run<'w, T>(
        &self,
        items: Vec<T>,
        work: impl Fn(T) -> BoxFuture<'w, Result<()>>,
    ) -> Result<()> {
        let mut running = FuturesUnordered::new();
        for item in items {
            if self.check().is_err() {
                break;
            }
            let turn = self.turns.try_acquire().ok();
            let is_alone = turn.is_none();
            let work = work(item);
            running.push(async move {
                let _turn = turn;
                if let Err(error) = work.await {
                    // The first counts: the others are likely its echoes.
                    let _ = self.failure.set(error);
                }
            });
            if is_alone {
                running.next().await;
            }
        }
        while running.next().await.is_some() {}
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use tokio::task::yield_now;

    use super::*;

    /// A tree of works, each of which begets three, down to a depth.
    fn grow<'a>(
        crew: &'a Crew<'_>,
        depth: usize,
        at: &'a [AtomicUsize; 2],
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let now = at[0].fetch_add(1, Ordering::Relaxed) + 1;
            at[1].fetch_max(now, Ordering::Relaxed);
            yield_now().await;
            crew.progress().did(1);
            if depth > 0 {
                crew.run(vec![(); 3], |()| grow(crew, depth - 1, at)).await?;
            }
            at[0].fetch_sub(1, Ordering::Relaxed);
            Ok(())
        }
        .boxed()
    }

    #[tokio::test]
    async fn every_work_is_done_and_few_at_once() {
        let progress = Progress::default();
        let crew = Crew::new(2, &progress);
        let at = [AtomicUsize::new(0), AtomicUsize::new(0)];
        grow(&crew, 5, &at).await.unwrap();
        assert_eq!(progress.done(), (0..=5).map(|depth| 3u64.pow(depth)).sum::<u64>());
        // Each with a turn, and the one without, has one below it at each level.
        assert!(at[1].load(Ordering::Relaxed) <= 3 * 6, "{at:?}");
    }

    #[tokio::test]
    async fn after_a_failure_nothing_is_begun_and_what_was_begun_ends() {
        let progress = Progress::default();
        let crew = Crew::new(8, &progress);
        let work = |number| {
            let progress = &progress;
            let work = async move {
                if number == 1 {
                    return Err(Error::NotEmpty);
                }
                yield_now().await;
                progress.did(1);
                Ok(())
            };
            work.boxed()
        };
        assert!(matches!(crew.run((0..6).collect(), work).await, Err(Error::NotEmpty)));
        // All six had begun.
        assert_eq!(progress.done(), 5);
        assert!(matches!(crew.run(vec![7], work).await, Err(Error::NotEmpty)));
        assert_eq!(progress.done(), 5);
    }

    #[tokio::test]
    async fn what_is_given_up_is_not_begun() {
        let progress = Progress::default();
        let crew = Crew::new(8, &progress);
        progress.give_up();
        let work = |()| async { progress.did(1) }.map(Ok).boxed();
        assert!(matches!(crew.run(vec![()], work).await, Err(Error::Interrupted)));
        assert_eq!(progress.done(), 0);
    }
}
