//! Fault injection: a store that fails on purpose, for tests and benches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::error::{Error, Result};
use crate::object::{GetRequest, Object, ObjectStore};
use crate::sync::Mutex;

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The request fails without an effect.
    Error,
    /// The request takes effect, but is reported as failed.
    LostResponse,
    /// The request takes effect after a delay.
    Delay(Duration),
    /// The request never returns and has no effect.
    Hang,
    /// A body that is read ends after this many bytes, without an error.
    Short(usize),
    /// One bit of a body that is read is wrong.
    WrongByte,
}

/// The probability of each fault, from 0 to 1; at most 1 in total.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FaultRates {
    pub error: f64,
    pub lost_response: f64,
    pub wrong_byte: f64,
    /// Probability of a delay of up to `max_delay`.
    pub delay: f64,
    pub max_delay: Duration,
}

/// Wraps a store and injects faults: first those of a script, in order, then random ones.
pub struct FaultyStore {
    inner: Arc<dyn ObjectStore>,
    plan: Mutex<Plan>,
    requests: AtomicU64,
}

struct Plan {
    script: VecDeque<Fault>,
    rates: FaultRates,
    random: StdRng,
}

impl FaultyStore {
    /// Creates a store without faults.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self::seeded(inner, FaultRates::default(), 0)
    }

    /// Creates a store with random faults: the same ones for the same seed and order of requests.
    pub fn seeded(inner: Arc<dyn ObjectStore>, rates: FaultRates, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        let plan = Mutex::new(Plan { script: VecDeque::new(), rates, random });
        Self { inner, plan, requests: AtomicU64::new(0) }
    }

    /// Adds faults for the next requests, one per request.
    pub fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        self.plan().script.extend(faults);
    }

    /// Sets the probabilities of random faults.
    pub fn set_rates(&self, rates: FaultRates) {
        self.plan().rates = rates;
    }

    /// Returns the number of requests so far, including failed ones.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn plan(&self) -> crate::sync::MutexGuard<'_, Plan> {
        self.plan.lock()
    }

    fn next(&self) -> Fault {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.plan().next()
    }

    async fn disturb<T>(
        &self,
        action: &'static str,
        key: &str,
        request: impl Future<Output = Result<T>>,
        spoil: impl FnOnce(T, Fault) -> T,
    ) -> Result<T> {
        let failed = |cause: &str| Error::Storage {
            place: self.inner.place().to_owned(),
            action,
            key: key.to_owned(),
            cause: cause.to_owned(),
        };
        match self.next() {
            Fault::Error => Err(failed("injected failure")),
            Fault::LostResponse => request.await.and(Err(failed("injected loss of the response"))),
            Fault::Hang => std::future::pending().await,
            Fault::Delay(pause) => {
                tokio::time::sleep(pause).await;
                request.await
            }
            fault => request.await.map(|output| spoil(output, fault)),
        }
    }
}

impl Plan {
    fn next(&mut self) -> Fault {
        if let Some(fault) = self.script.pop_front() {
            return fault;
        }
        let rates = self.rates;
        let mut dice: f64 = self.random.random();
        for (chance, fault) in [
            (rates.error, Fault::Error),
            (rates.lost_response, Fault::LostResponse),
            (rates.wrong_byte, Fault::WrongByte),
            (rates.delay, Fault::Delay(Duration::ZERO)),
        ] {
            if dice < chance {
                return match fault {
                    Fault::Delay(_) => Fault::Delay(rates.max_delay.mul_f64(self.random.random())),
                    other => other,
                };
            }
            dice -= chance;
        }
        Fault::None
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    fn place(&self) -> &str {
        self.inner.place()
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        self.disturb("get", key, self.inner.get(key, request), damaged).await
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        self.disturb("put", key, self.inner.put(key, body, tier), |done, _| done).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.disturb("delete", key, self.inner.delete(key), |done, _| done).await
    }

    async fn head(&self, key: &str) -> Result<Object> {
        self.disturb("head", key, self.inner.head(key), |found, _| found).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        let request = self.inner.list(prefix, after, limit);
        self.disturb("list", prefix, request, |found, _| found).await
    }

    async fn create(&self) -> Result<()> {
        self.disturb("create", "", self.inner.create(), |done, _| done).await
    }

    fn has_cheap_ranges(&self) -> bool {
        self.inner.has_cheap_ranges()
    }

    fn verifies_whole(&self) -> bool {
        self.inner.verifies_whole()
    }
}

fn damaged(mut body: Bytes, fault: Fault) -> Bytes {
    match fault {
        Fault::Short(length) => body.truncate(length),
        Fault::WrongByte if !body.is_empty() => {
            let mut bytes = body.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            body = bytes.into();
        }
        _ => {}
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::mem::MemStore;

    #[tokio::test]
    async fn a_script_runs_in_order() {
        let store = FaultyStore::new(Arc::new(MemStore::default()));
        store.script([Fault::LostResponse, Fault::Short(2), Fault::WrongByte, Fault::Error]);
        store.put("a", Bytes::from_static(b"1234"), 0).await.unwrap_err();
        assert_eq!(store.get("a", GetRequest::whole()).await.unwrap(), "12");
        assert_eq!(store.get("a", GetRequest::whole()).await.unwrap(), "1224");
        store.delete("a").await.unwrap_err();
        assert_eq!(store.get("a", GetRequest::whole()).await.unwrap(), "1234");
        assert_eq!(store.requests(), 5);
    }

    #[tokio::test]
    async fn the_same_seed_gives_the_same_faults() {
        let outcomes = |seed: u64| async move {
            let rates = FaultRates { error: 0.5, ..FaultRates::default() };
            let store = FaultyStore::seeded(Arc::new(MemStore::default()), rates, seed);
            let mut outcomes = Vec::new();
            for _ in 0..64 {
                outcomes.push(store.delete("a").await.is_ok());
            }
            outcomes
        };
        let first = outcomes(7).await;
        assert_eq!(first, outcomes(7).await);
        assert_ne!(first, outcomes(8).await);
        assert!(first.contains(&true) && first.contains(&false));
    }
}
