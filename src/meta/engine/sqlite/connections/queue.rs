//! A bounded queue from async callers to threads.
//!
//! Callers wait for room without blocking their thread; threads block while they wait for jobs.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::sync::{Condvar, Mutex, MutexGuard};

pub struct Queue<J> {
    state: Mutex<State<J>>,
    ready: Condvar,
    room: Semaphore,
}

struct State<J> {
    jobs: VecDeque<J>,
    open: bool,
    /// How many jobs must be queued before a thread is woken up.
    wake_at: usize,
}

/// The queue accepts no more jobs.
#[derive(Debug)]
pub struct Closed;

impl<J> Queue<J> {
    pub fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::new(State { jobs: VecDeque::new(), open: true, wake_at: 1 }),
            ready: Condvar::new(),
            room: Semaphore::new(capacity),
        }
    }

    pub async fn push(&self, job: J) -> Result<(), Closed> {
        self.room.acquire().await.map_err(|_| Closed)?.forget();
        let mut state = self.lock();
        if !state.open {
            return Err(Closed);
        }
        state.jobs.push_back(job);
        let wake = state.jobs.len() >= state.wake_at;
        drop(state);
        if wake {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Blocks until there is a job. Returns `None` once the queue is closed and empty.
    pub fn pop(&self) -> Option<J> {
        let job = self.wait().jobs.pop_front();
        self.room.add_permits(usize::from(job.is_some()));
        job
    }

    /// Blocks until there is a job, and returns all queued jobs, at most `max`. Returns none once
    /// the queue is closed and empty.
    pub fn pop_all(&self, max: usize) -> Vec<J> {
        let mut state = self.wait();
        let count = state.jobs.len().min(max);
        let jobs: Vec<J> = state.jobs.drain(..count).collect();
        drop(state);
        self.room.add_permits(jobs.len());
        jobs
    }

    /// Blocks until `count` jobs are queued, the queue is closed, or `timeout` has passed. For a
    /// queue with one thread.
    pub fn gather(&self, count: usize, timeout: Duration) {
        let mut state = self.lock();
        state.wake_at = count;
        let mut state = self
            .ready
            .wait_timeout_while(state, timeout, |state| state.open && state.jobs.len() < count);
        state.wake_at = 1;
    }

    /// Accepts no more jobs. Those already queued are still returned.
    pub fn close(&self) {
        self.room.close();
        self.lock().open = false;
        self.ready.notify_all();
    }

    /// Closes the queue and drops the queued jobs, so that their callers get an error.
    pub fn abandon(&self) {
        self.close();
        let dropped = std::mem::take(&mut self.lock().jobs);
        drop(dropped);
    }

    fn wait(&self) -> MutexGuard<'_, State<J>> {
        let state = self.lock();
        self.ready.wait_while(state, |state| state.open && state.jobs.is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock()
    }
}

/// Held by a thread that takes jobs from a queue. If the thread panics, callers get errors instead
/// of waiting forever.
pub struct AbandonOnPanic<'a, J>(pub &'a Queue<J>);

impl<J> Drop for AbandonOnPanic<'_, J> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_full_queue_makes_callers_wait() {
        let queue = Arc::new(Queue::new(1));
        queue.push(1).await.unwrap();
        let second = tokio::time::timeout(Duration::from_millis(20), queue.push(2)).await;
        assert!(second.is_err());
        assert_eq!(queue.pop(), Some(1));
        queue.push(3).await.unwrap();
        assert_eq!(queue.pop_all(10), [3]);
    }

    #[tokio::test]
    async fn a_closed_queue_returns_what_is_queued_and_accepts_no_more() {
        let queue = Queue::new(10);
        queue.push(1).await.unwrap();
        queue.push(2).await.unwrap();
        queue.close();
        assert!(queue.push(3).await.is_err());
        assert_eq!(queue.pop_all(1), [1]);
        assert_eq!(queue.pop(), Some(2));
        assert_eq!(queue.pop(), None);
        assert!(queue.pop_all(10).is_empty());
    }

    #[tokio::test]
    async fn an_abandoned_queue_drops_what_is_queued() {
        let queue = Queue::new(10);
        let job = Arc::new(());
        queue.push(Arc::clone(&job)).await.unwrap();
        queue.abandon();
        assert_eq!(Arc::strong_count(&job), 1);
    }

    #[tokio::test]
    async fn gathering_ends_with_enough_jobs_or_at_the_timeout() {
        let queue = Queue::new(10);
        queue.push(1).await.unwrap();
        queue.gather(1, Duration::from_mins(1));
        let start = std::time::Instant::now();
        queue.gather(2, Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert_eq!(queue.pop(), Some(1));
    }
}
