//! Metrics of requests, under the names that JuiceFS uses.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use prometheus::core::Collector;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    exponential_buckets,
};

use super::retry::health::StoreHealth;
use crate::object::tier::Tiers;

use crate::error::{Error, Result};
use crate::object::{GetRequest, Object, ObjectStore};

const LABELS: [&str; 2] = ["method", "storage_class"];

/// The metrics of a volume's requests. Clones share their counters.
#[derive(Clone, Debug)]
pub struct Metrics {
    durations: HistogramVec,
    bytes: IntCounterVec,
    errors: IntCounter,
    uploading: IntGauge,
    health: Arc<StoreHealth>,
}

impl Metrics {
    /// Creates the metrics and registers them.
    pub fn register(registry: &Registry) -> Result<Self> {
        Self::build(registry).map_err(|error| Error::BadInput(format!("metrics: {error}")))
    }

    /// Returns the health of the store.
    pub fn health(&self) -> &Arc<StoreHealth> {
        &self.health
    }

    fn build(registry: &Registry) -> prometheus::Result<Self> {
        let durations = HistogramOpts::new(
            "object_request_durations_histogram_seconds",
            "Seconds that requests to the object store took",
        );
        let durations = durations.buckets(exponential_buckets(0.01, 1.5, 25)?);
        let bytes = Opts::new("object_request_data_bytes", "Bytes of the bodies of requests");
        let metrics = Self {
            durations: HistogramVec::new(durations, &LABELS)?,
            bytes: IntCounterVec::new(bytes, &LABELS)?,
            errors: IntCounter::new("object_request_errors", "Requests that failed")?,
            uploading: IntGauge::new("object_request_uploading", "Uploads under way")?,
            health: Arc::default(),
        };
        let all: [Box<dyn Collector>; 4] = [
            Box::new(metrics.durations.clone()),
            Box::new(metrics.bytes.clone()),
            Box::new(metrics.errors.clone()),
            Box::new(metrics.uploading.clone()),
        ];
        for one in all {
            registry.register(one)?;
        }
        Ok(metrics)
    }
}

/// A store whose requests are counted, each attempt on its own.
pub struct Measured {
    inner: Arc<dyn ObjectStore>,
    metrics: Metrics,
    tiers: Tiers,
}

impl Measured {
    pub fn new(inner: Arc<dyn ObjectStore>, metrics: Metrics, tiers: Tiers) -> Self {
        Self { inner, metrics, tiers }
    }

    async fn measure<T>(
        &self,
        method: &str,
        class: &str,
        size: impl Fn(&T) -> usize,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let begun = Instant::now();
        let outcome = request.await;
        let labels = [method, class];
        let took = begun.elapsed().as_secs_f64();
        self.metrics.durations.with_label_values(&labels).observe(took);
        match &outcome {
            Ok(output) => {
                let bytes = self.metrics.bytes.with_label_values(&labels);
                bytes.inc_by(size(output) as u64);
            }
            Err(Error::NotFound) => {}
            Err(_) => self.metrics.errors.inc(),
        }
        outcome
    }
}

#[async_trait]
impl ObjectStore for Measured {
    fn place(&self) -> &str {
        self.inner.place()
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        self.measure("GET", "", Bytes::len, self.inner.get(key, request)).await
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        let (size, class) = (body.len(), self.tiers.tier(tier).class.as_deref());
        let _uploading = Uploading::begin(&self.metrics.uploading);
        let request = self.inner.put(key, body, tier);
        self.measure("PUT", class.unwrap_or_default(), |()| size, request).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.measure("DELETE", "", |()| 0, self.inner.delete(key)).await
    }

    async fn head(&self, key: &str) -> Result<Object> {
        self.measure("HEAD", "", |_| 0, self.inner.head(key)).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        self.measure("LIST", "", |_| 0, self.inner.list(prefix, after, limit)).await
    }

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

/// Counts an upload until it ends, even if it is cancelled.
struct Uploading<'a>(&'a IntGauge);

impl<'a> Uploading<'a> {
    fn begin(gauge: &'a IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Uploading<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::object::fault_injection::{Fault, FaultyStore};
    use crate::object::mem::MemStore;
    use crate::object::spec::Tier;

    #[tokio::test]
    async fn requests_are_counted_by_method_and_class() {
        let tiers = BTreeMap::from([(1, Tier { class: "COLD".to_owned(), tag: String::new() })]);
        let registry = Registry::new();
        let faulty = Arc::new(FaultyStore::new(Arc::new(MemStore::default())));
        let store = Measured::new(
            faulty.clone(),
            Metrics::register(&registry).unwrap(),
            Tiers::new(&tiers).unwrap(),
        );
        store.put("a", Bytes::from_static(b"12345"), 1).await.unwrap();
        store.get("a", GetRequest::range(1..4)).await.unwrap();
        store.get("b", GetRequest::whole()).await.unwrap_err();
        faulty.script([Fault::Error]);
        store.delete("a").await.unwrap_err();

        let shown = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            r#"object_request_data_bytes{method="PUT",storage_class="COLD"} 5"#,
            r#"object_request_data_bytes{method="GET",storage_class=""} 3"#,
            r#"object_request_durations_histogram_seconds_count{method="GET",storage_class=""} 2"#,
            r"object_request_errors 1",
            r"object_request_uploading 0",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
        }
    }
}
