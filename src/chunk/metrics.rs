//! Metrics of a store, under the names that JuiceFS uses.
//!
//! Most values live where they arise and are read when the registry collects them, so nothing is
//! counted twice.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, Metric, MetricFamily, MetricType};
use prometheus::{Histogram, HistogramOpts, Registry, exponential_buckets};

use super::Store;
use crate::error::{Error, Result};

/// A metric: its name, its description, its type, and how it is read from a snapshot.
struct StoreMetric {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    read: fn(&Snapshot) -> f64,
}

/// The values that all metrics of a store are read from.
struct Snapshot {
    cache: super::CacheUsage,
    used: usize,
    block_cache: usize,
    staging_errors: u64,
    staging_delay: f64,
}

const COUNTER: MetricType = MetricType::COUNTER;
const GAUGE: MetricType = MetricType::GAUGE;

const METRICS: &[StoreMetric] = &[
    metric("blockcache_blocks", "Cached blocks", GAUGE, |all| all.cache.blocks as f64),
    metric("blockcache_bytes", "Cached bytes", GAUGE, |all| all.cache.bytes as f64),
    metric("blockcache_hits", "Reads from the cache", COUNTER, |all| all.cache.hits as f64),
    metric("blockcache_hit_bytes", "Bytes read from the cache", COUNTER, |all| {
        all.cache.hit_bytes as f64
    }),
    metric("blockcache_miss", "Reads that missed the cache", COUNTER, |all| all.cache.miss as f64),
    metric("blockcache_miss_bytes", "Bytes of reads that missed the cache", COUNTER, |all| {
        all.cache.miss_bytes as f64
    }),
    metric("blockcache_drops", "Blocks that the cache could not store", COUNTER, |all| {
        all.cache.drops as f64
    }),
    metric("blockcache_evicts", "Blocks evicted from the cache", COUNTER, |all| {
        all.cache.evicts as f64
    }),
    metric("blockcache_writes", "Blocks written to the cache", COUNTER, |all| {
        all.cache.writes as f64
    }),
    metric("blockcache_write_bytes", "Bytes written to the cache", COUNTER, |all| {
        all.cache.write_bytes as f64
    }),
    metric("staging_blocks", "Blocks staged and not uploaded", GAUGE, |all| {
        all.cache.staging_blocks as f64
    }),
    metric("staging_block_bytes", "Bytes staged and not uploaded", GAUGE, |all| {
        all.cache.staging_block_bytes as f64
    }),
    metric("staging_write_bytes", "Bytes staged so far", COUNTER, |all| {
        all.cache.staging_write_bytes as f64
    }),
    metric("staging_writing_blocks", "Blocks being staged", GAUGE, |all| {
        all.cache.staging_writing_blocks as f64
    }),
    metric("staging_block_delay_seconds", "Seconds that blocks were staged", COUNTER, |all| {
        all.staging_delay
    }),
    metric("staging_block_errors", "Blocks that could not be staged", COUNTER, |all| {
        all.staging_errors as f64
    }),
    metric("used_buffer_size_bytes", "Bytes of data in memory", GAUGE, |all| all.used as f64),
    metric("used_read_buffer_size_bytes", "Bytes of blocks in memory", GAUGE, |all| {
        all.block_cache as f64
    }),
    metric("store_cache_size_bytes", "Bytes of the cache in memory", GAUGE, |all| {
        all.cache.memory_bytes as f64
    }),
];

const fn metric(
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    read: fn(&Snapshot) -> f64,
) -> StoreMetric {
    StoreMetric { name, help, kind, read }
}

/// Collects the metrics of one store for a registry.
struct StoreCollector {
    store: Weak<Store>,
    descriptions: Vec<Desc>,
}

/// Creates the histogram of the sizes of compacted slices.
pub fn compacted_sizes() -> prometheus::Result<Histogram> {
    let help = "Sizes of compacted slices in bytes";
    let options = HistogramOpts::new("compact_size_histogram_bytes", help);
    Histogram::with_opts(options.buckets(exponential_buckets(1024.0, 2.0, 16)?))
}

impl Store {
    /// Registers the metrics of this store. The registry must belong to this volume alone.
    pub fn register(self: &Arc<Self>, registry: &Registry) -> Result<()> {
        self.try_register(registry).map_err(|error| Error::BadInput(format!("metrics: {error}")))
    }

    fn try_register(self: &Arc<Self>, registry: &Registry) -> prometheus::Result<()> {
        let descriptions =
            METRICS.iter().map(StoreMetric::description).collect::<Result<_, _>>()?;
        registry
            .register(Box::new(StoreCollector { store: Arc::downgrade(self), descriptions }))?;
        let latencies = self.cache.as_ref().map(|cache| cache.latencies());
        let (reads, writes) =
            latencies.map_or((&None, &None), |latencies| (&latencies.reads, &latencies.writes));
        for histogram in [&self.compacted_sizes, reads, writes].into_iter().flatten() {
            registry.register(Box::new(histogram.clone()))?;
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let staging = self.staging.as_ref();
        Snapshot {
            cache: self.cache.as_ref().map(|cache| cache.usage()).unwrap_or_default(),
            used: self.budget.used(),
            block_cache: self.block_cache.bytes(),
            staging_errors: staging.map_or(0, |staging| staging.errors()),
            staging_delay: staging.map_or(0.0, |staging| staging.total_delay().as_secs_f64()),
        }
    }
}

impl StoreMetric {
    fn description(&self) -> prometheus::Result<Desc> {
        Desc::new(self.name.to_owned(), self.help.to_owned(), Vec::new(), HashMap::new())
    }

    fn family(&self, snapshot: &Snapshot) -> MetricFamily {
        let (mut metric, value) = (Metric::default(), (self.read)(snapshot));
        if self.kind == COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(self.kind);
        family.set_metric(vec![metric]);
        family
    }
}

impl Collector for StoreCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(store) = self.store.upgrade() else { return Vec::new() };
        let snapshot = store.snapshot();
        METRICS.iter().map(|metric| metric.family(&snapshot)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{BLOCK, LAYOUT, TestBucket, slice};
    use crate::chunk::{Compression, SliceRange};
    use crate::slice::SliceId;

    fn metric(registry: &Registry, name: &str) -> MetricFamily {
        let found = registry.gather().into_iter().find(|family| family.name() == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    }

    #[tokio::test]
    async fn a_registry_shows_the_state_and_the_counters_of_a_store() {
        let one = slice(1, BLOCK);
        let store = Store::new(TestBucket::with(one).await, LAYOUT, Compression::None);
        let registry = Registry::new_custom(Some("juicefs".to_owned()), None).unwrap();
        store.register(&registry).unwrap();
        store.read(one, 0..1).await.unwrap();
        let ranges = [SliceRange { slice: one, range: 0..2000 }];
        store.compact(&ranges, SliceId(2), 0).await.unwrap();

        let used = metric(&registry, "juicefs_used_buffer_size_bytes");
        assert!((used.get_metric()[0].get_gauge().get_value() - f64::from(BLOCK)).abs() < 0.5);
        let sizes = metric(&registry, "juicefs_compact_size_histogram_bytes");
        assert!((sizes.get_metric()[0].get_histogram().get_sample_sum() - 2000.0).abs() < 0.5);
        assert_eq!(metric(&registry, "juicefs_blockcache_hits").get_field_type(), COUNTER);
    }

    #[tokio::test]
    async fn metrics_disappear_with_their_store() {
        let registry = Registry::new();
        let store = Store::new(TestBucket::new(), LAYOUT, Compression::None);
        store.register(&registry).unwrap();
        assert!(store.register(&registry).is_err());
        drop(store);
        assert!(registry.gather().iter().all(|family| family.name().starts_with("compact_")));
    }
}
