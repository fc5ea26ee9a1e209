//! Trying again, with a pause that grows, and a limit to how long one try may take.
//!
//! What is not there, or was asked wrongly, is an answer and is not asked again.

mod backoff;
pub mod health;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use tracing::debug;

use self::backoff::{Backoff, RetryTokens};
use self::health::StoreHealth;

use crate::error::{Error, Result};
use crate::object::{GetRequest, Object, ObjectStore};

/// No try begins later than this after the first: whoever waits for it has given up by then.
const GIVE_UP: Duration = Duration::from_mins(10);

pub struct Retry {
    inner: Arc<dyn ObjectStore>,
    retries: u32,
    give_up: Duration,
    tokens: RetryTokens,
    health: Arc<StoreHealth>,
}

impl Retry {
    /// At least so many retries, for as long as the Go client makes them.
    pub fn new(inner: Arc<dyn ObjectStore>, retries: u32) -> Self {
        // Who wants no retries is there to be told, as those who test a store are.
        let health = if retries == 0 { StoreHealth::quiet() } else { StoreHealth::default() };
        let health = Arc::new(health);
        Self { inner, retries, give_up: GIVE_UP, tokens: RetryTokens::new(), health }
    }

    /// Tells what goes wrong, and when it is over.
    pub fn reporting_to(self, health: Option<Arc<StoreHealth>>) -> Self {
        let health = health.unwrap_or_else(|| Arc::clone(&self.health));
        Self { health, ..self }
    }

    async fn attempt<T, F>(&self, what: &str, key: &str, ask: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let begun = Instant::now();
        let mut backoff = Backoff::new(self.retries);
        loop {
            let error = match ask().await {
                Err(error) if is_passing(&error) => error,
                // Nothing was asked: the name of the place has an address now that is not allowed.
                Err(error @ Error::Forbidden(_)) => {
                    self.health.gave_up(&error);
                    return Err(error);
                }
                outcome => {
                    self.tokens.earn();
                    self.health.succeeded(self.inner.place());
                    return outcome;
                }
            };
            let left = self.give_up.saturating_sub(begun.elapsed());
            let Some(pause) = backoff.next(&self.tokens, left) else {
                self.health.gave_up(&error);
                return Err(error);
            };
            self.health.failed(&error);
            debug!(%error, "{what} {key} is tried again in {pause:?}");
            tokio::time::sleep(pause).await;
        }
    }
}

/// Whether another try may end better. Keys are changed on the server as well as here, so those that are
/// denied may work in a moment.
fn is_passing(error: &Error) -> bool {
    matches!(
        error,
        Error::Storage { .. }
            | Error::Denied { .. }
            | Error::Unreachable { .. }
            | Error::NoMemory(_)
    )
}

#[async_trait]
impl ObjectStore for Retry {
    fn place(&self) -> &str {
        self.inner.place()
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        self.attempt("get", key, || self.inner.get(key, request.clone())).await
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

    fn verifies_whole(&self) -> bool {
        self.inner.verifies_whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::fault_injection::{Fault, FaultRates, FaultyStore};
    use crate::object::mem::MemStore;

    #[tokio::test(start_paused = true)]
    async fn what_goes_wrong_is_told_until_it_is_over() {
        let (faulty, retry) = flaky(0);
        let health: Arc<StoreHealth> = Arc::default();
        let retry = retry.reporting_to(Some(Arc::clone(&health)));
        faulty.script([Fault::Error]);
        let error = retry.get("a", GetRequest::whole()).await.unwrap_err();
        assert_eq!(health.last_failure(), Some(error.to_string()));
        // That there is no such object is an answer.
        assert!(matches!(retry.get("a", GetRequest::whole()).await, Err(Error::NotFound)));
        assert_eq!(health.last_failure(), None);
    }

    fn flaky(retries: u32) -> (Arc<FaultyStore>, Retry) {
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemStore::default())));
        (faulty.clone(), Retry::new(faulty, retries))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_tried_again_after_moments() {
        let (faulty, store) = flaky(3);
        faulty.script([Fault::Error; 3]);
        let begun = Instant::now();
        store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
        // On a clock that only sleeping moves.
        assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
        assert_eq!(faulty.requests(), 4);
        assert_eq!(store.get("a", GetRequest::whole()).await.unwrap(), "x");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_fails_three_times_in_ten_is_hardly_slower() {
        let bucket: Arc<dyn ObjectStore> = Arc::new(MemStore::default());
        let rates = FaultRates { error: 0.3, ..FaultRates::default() };
        let store = Retry::new(Arc::new(FaultyStore::seeded(bucket, rates, 1)), 10);
        let begun = Instant::now();
        for _ in 0..540 {
            store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_does_not_multiply_requests() {
        let (faulty, store) = flaky(10);
        faulty.set_rates(FaultRates { error: 1.0, ..FaultRates::default() });
        let begun = Instant::now();
        let all = futures::future::join_all((0..200).map(|_| store.head("a"))).await;
        assert!(all.iter().all(Result::is_err));
        // Ten squares of seconds, as before; and eleven tries each, give or take.
        assert!(begun.elapsed() >= Duration::from_secs(385), "{:?}", begun.elapsed());
        assert!(faulty.requests() < 200 * 11 * 3 / 2, "{}", faulty.requests());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_error_is_told_when_patience_is_at_its_end() {
        let (faulty, store) = flaky(2);
        faulty.set_rates(FaultRates { error: 1.0, ..FaultRates::default() });
        let begun = Instant::now();
        let error = store.get("a", GetRequest::whole()).await.unwrap_err();
        assert!(matches!(error, Error::Storage { .. }), "{error}");
        assert!(faulty.requests() >= 3);
        assert!(begun.elapsed() >= Duration::from_secs(5), "{:?}", begun.elapsed());
        let (faulty, store) = flaky(0);
        faulty.set_rates(FaultRates { error: 1.0, ..FaultRates::default() });
        store.get("a", GetRequest::whole()).await.unwrap_err();
        assert_eq!(faulty.requests(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_not_there_is_not_asked_for_again() {
        let (faulty, store) = flaky(5);
        assert!(matches!(store.get("a", GetRequest::whole()).await, Err(Error::NotFound)));
        assert_eq!(faulty.requests(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_is_made_good_by_asking_again() {
        let (faulty, store) = flaky(1);
        faulty.script([Fault::LostResponse]);
        store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
        faulty.script([Fault::LostResponse]);
        store.delete("a").await.unwrap();
        assert!(matches!(store.head("a").await, Err(Error::NotFound)));
    }

    #[tokio::test(start_paused = true)]
    async fn no_try_begins_after_the_time_to_give_up() {
        let (faulty, store) = flaky(1000);
        faulty.set_rates(FaultRates { error: 1.0, ..FaultRates::default() });
        let begun = Instant::now();
        store.get("a", GetRequest::whole()).await.unwrap_err();
        assert!(begun.elapsed() <= GIVE_UP, "{:?}", begun.elapsed());
        assert!(faulty.requests() > 5);
    }
}
