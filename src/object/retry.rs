//! Trying again, with a pause that grows, and a limit to how long one try may take.
//!
//! What is not there, or was asked wrongly, is an answer and is not asked again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use tracing::warn;

use super::trouble::Trouble;
use super::{Object, ObjectStore};
use crate::error::{Error, Result};

/// No try begins later than this after the first: whoever waits for it has given up by then.
const GIVE_UP: Duration = Duration::from_mins(10);

pub struct Retry {
    inner: Arc<dyn ObjectStore>,
    retries: u32,
    give_up: Duration,
    trouble: Option<Arc<Trouble>>,
}

impl Retry {
    pub fn new(inner: Arc<dyn ObjectStore>, retries: u32) -> Self {
        Self { inner, retries, give_up: GIVE_UP, trouble: None }
    }

    /// Tells what goes wrong, and when it is over.
    pub fn telling(self, trouble: Option<Arc<Trouble>>) -> Self {
        Self { trouble, ..self }
    }

    async fn attempt<T, F>(&self, what: &str, key: &str, ask: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let begun = Instant::now();
        let mut failures = 0;
        loop {
            let error = match ask().await {
                Err(error) if is_passing(&error) => error,
                outcome => {
                    if let Some(trouble) = &self.trouble {
                        trouble.over();
                    }
                    return outcome;
                }
            };
            if let Some(trouble) = &self.trouble {
                trouble.met(&error);
            }
            failures += 1;
            let pause = pause(failures);
            if failures > self.retries || begun.elapsed() + pause > self.give_up {
                return Err(error);
            }
            warn!(%error, failures, "{what} {key} is tried again in {pause:?}");
            tokio::time::sleep(pause).await;
        }
    }
}

/// Whether another try may end better.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Storage { .. } | Error::Unreachable { .. })
}

/// The square of the number of failures in seconds, give or take a tenth, so that clients which
/// failed together do not all come back together.
fn pause(failures: u32) -> Duration {
    let seconds = failures.saturating_mul(failures);
    Duration::from_secs(u64::from(seconds)).mul_f64(rand::random_range(0.9..=1.1))
}

#[async_trait]
impl ObjectStore for Retry {
    fn place(&self) -> &str {
        self.inner.place()
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        self.attempt("get", key, || self.inner.get(key, range.clone())).await
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        self.attempt("put", key, || self.inner.put(key, body.clone(), tier)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.attempt("delete", key, || self.inner.delete(key)).await
    }

    async fn head(&self, key: &str) -> Result<Object> {
        self.attempt("head", key, || self.inner.head(key)).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        self.attempt("list", prefix, || self.inner.list(prefix, after, limit)).await
    }

    /// Once: whoever makes a bucket is there to see that it failed.
    async fn create(&self) -> Result<()> {
        self.inner.create().await
    }

    fn has_cheap_ranges(&self) -> bool {
        self.inner.has_cheap_ranges()
    }
}

#[cfg(test)]
mod tests {
    use super::super::faulty::{Fault, FaultyStore};
    use super::super::mem::MemStore;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_goes_wrong_is_told_until_it_is_over() {
        let (faulty, retry) = flaky(0);
        let trouble: Arc<Trouble> = Arc::default();
        let retry = retry.telling(Some(Arc::clone(&trouble)));
        faulty.script([Fault::Error]);
        let error = retry.get("a", None).await.unwrap_err();
        assert_eq!(trouble.now(), Some(error.to_string()));
        // That there is no such object is an answer.
        assert!(matches!(retry.get("a", None).await, Err(Error::NotFound)));
        assert_eq!(trouble.now(), None);
    }

    fn flaky(retries: u32) -> (Arc<FaultyStore>, Retry) {
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemStore::default())));
        (faulty.clone(), Retry::new(faulty, retries))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_tried_again_after_pauses_that_grow() {
        let (faulty, store) = flaky(3);
        faulty.script([Fault::Error; 3]);
        let begun = Instant::now();
        store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
        // 1 + 4 + 9 seconds on a clock that only sleeping moves.
        let paused = begun.elapsed().as_secs_f64();
        assert!((12.6..15.5).contains(&paused), "{paused}");
        assert_eq!(faulty.requests(), 4);
        assert_eq!(store.get("a", None).await.unwrap(), "x");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_error_is_told_when_tries_run_out() {
        let (faulty, store) = flaky(2);
        faulty.script([Fault::Error; 9]);
        let error = store.get("a", None).await.unwrap_err();
        assert!(matches!(error, Error::Storage { .. }), "{error}");
        assert_eq!(faulty.requests(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_not_there_is_not_asked_for_again() {
        let (faulty, store) = flaky(5);
        assert!(matches!(store.get("a", None).await, Err(Error::NotFound)));
        assert_eq!(faulty.requests(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_is_made_good_by_asking_again() {
        let (faulty, store) = flaky(1);
        faulty.script([Fault::LostAnswer]);
        store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
        faulty.script([Fault::LostAnswer]);
        store.delete("a").await.unwrap();
        assert!(matches!(store.head("a").await, Err(Error::NotFound)));
    }

    #[tokio::test(start_paused = true)]
    async fn no_try_begins_after_the_time_to_give_up() {
        let (faulty, store) = flaky(1000);
        faulty.script([Fault::Error; 1000]);
        let begun = Instant::now();
        store.get("a", None).await.unwrap_err();
        assert!(begun.elapsed() <= GIVE_UP, "{:?}", begun.elapsed());
        assert!(faulty.requests() > 5);
    }
}
