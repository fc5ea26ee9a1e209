//! Retries with growing delays, up to a total time.
//!
//! A missing object or an invalid request is a valid outcome and is not retried.

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

/// No attempt begins later than this after the first: the caller has given up by then.
const TIME_LIMIT: Duration = Duration::from_mins(10);

pub struct Retry {
    inner: Arc<dyn ObjectStore>,
    retries: u32,
    time_limit: Duration,
    tokens: RetryTokens,
    health: Arc<StoreHealth>,
}

impl Retry {
    /// Makes at least `retries` retries, over the same total time as the Go client.
    pub fn new(inner: Arc<dyn ObjectStore>, retries: u32) -> Self {
        // A caller that wants no retries, such as a storage test, reports errors itself.
        let health = if retries == 0 { StoreHealth::quiet() } else { StoreHealth::default() };
        let health = Arc::new(health);
        Self { inner, retries, time_limit: TIME_LIMIT, tokens: RetryTokens::new(), health }
    }

    /// Reports failures and successes to `health`.
    pub fn reporting_to(self, health: Option<Arc<StoreHealth>>) -> Self {
        let health = health.unwrap_or_else(|| Arc::clone(&self.health));
        Self { health, ..self }
    }

    async fn attempt<T, F>(&self, what: &str, key: &str, request: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let begun = Instant::now();
        let mut backoff = Backoff::new(self.retries);
        loop {
            let error = match request().await {
                Err(error) if is_retryable(&error) => error,
                // No request was sent: the host now resolves to an address that the policy forbids.
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
            let left = self.time_limit.saturating_sub(begun.elapsed());
            let Some(delay) = backoff.next(&self.tokens, left) else {
                self.health.gave_up(&error);
                return Err(error);
            };
            self.health.failed(&error);
            debug!(%error, "retrying {what} {key} in {delay:?}");
            tokio::time::sleep(delay).await;
        }
    }
}

/// Whether a retry may succeed. Keys are changed on the server as well as here, so denied keys may
/// work in a moment.
fn is_retryable(error: &Error) -> bool {
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

    /// Not retried: whoever creates a bucket sees the failure.
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
    async fn failures_are_reported_until_a_request_succeeds() {
        let (faulty, retry) = flaky(0);
        let health: Arc<StoreHealth> = Arc::default();
        let retry = retry.reporting_to(Some(Arc::clone(&health)));
        faulty.script([Fault::Error]);
        let error = retry.get("a", GetRequest::whole()).await.unwrap_err();
        assert_eq!(health.last_failure(), Some(error.to_string()));
        // A missing object is a valid outcome.
        assert!(matches!(retry.get("a", GetRequest::whole()).await, Err(Error::NotFound)));
        assert_eq!(health.last_failure(), None);
    }

    fn flaky(retries: u32) -> (Arc<FaultyStore>, Retry) {
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemStore::default())));
        (faulty.clone(), Retry::new(faulty, retries))
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_request_is_retried_after_milliseconds() {
        let (faulty, store) = flaky(3);
        faulty.script([Fault::Error; 3]);
        let begun = Instant::now();
        store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
        // On a paused clock, which only sleeping advances.
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
        // The sum of ten squares of seconds, and about eleven attempts each.
        assert!(begun.elapsed() >= Duration::from_secs(385), "{:?}", begun.elapsed());
        assert!(faulty.requests() < 200 * 11 * 3 / 2, "{}", faulty.requests());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_error_is_returned_when_the_retries_are_used_up() {
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
    async fn a_missing_object_is_not_retried() {
        let (faulty, store) = flaky(5);
        assert!(matches!(store.get("a", GetRequest::whole()).await, Err(Error::NotFound)));
        assert_eq!(faulty.requests(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_recovers_from_a_lost_response() {
        let (faulty, store) = flaky(1);
        faulty.script([Fault::LostResponse]);
        store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
        faulty.script([Fault::LostResponse]);
        store.delete("a").await.unwrap();
        assert!(matches!(store.head("a").await, Err(Error::NotFound)));
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_begins_after_the_time_limit() {
        let (faulty, store) = flaky(1000);
        faulty.set_rates(FaultRates { error: 1.0, ..FaultRates::default() });
        let begun = Instant::now();
        store.get("a", GetRequest::whole()).await.unwrap_err();
        assert!(begun.elapsed() <= TIME_LIMIT, "{:?}", begun.elapsed());
        assert!(faulty.requests() > 5);
    }
}
