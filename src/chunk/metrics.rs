//! What a store counts, under the names that JuiceFS gave.
//!
//! Nothing is counted twice: most figures are kept where they arise, and read when they are asked
//! for.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, Metric, MetricFamily, MetricType};
use prometheus::{Histogram, HistogramOpts, Registry, exponential_buckets};

use super::Store;
use crate::error::{Error, Result};

/// A figure of a store: its name, what it says, whether it only grows, and how it is read.
struct Figure {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    read: fn(&Figures) -> f64,
}

/// What the figures are read from.
struct Figures {
    cache: super::CacheUsage,
    used: usize,
    hot: usize,
    staging_errors: u64,
    staging_delay: f64,
}

const COUNTER: MetricType = MetricType::COUNTER;
const GAUGE: MetricType = MetricType::GAUGE;

const FIGURES: &[Figure] = &[
    figure("blockcache_blocks", "Cached blocks", GAUGE, |all| all.cache.blocks as f64),
    figure("blockcache_bytes", "Cached bytes", GAUGE, |all| all.cache.bytes as f64),
    figure("blockcache_hits", "Reads from the cache", COUNTER, |all| all.cache.hits as f64),
    figure("blockcache_hit_bytes", "Bytes read from the cache", COUNTER, |all| {
        all.cache.hit_bytes as f64
    }),
    figure("blockcache_miss", "Reads that were not in the cache", COUNTER, |all| {
        all.cache.miss as f64
    }),
    figure("blockcache_miss_bytes", "Bytes that were not in the cache", COUNTER, |all| {
        all.cache.miss_bytes as f64
    }),
    figure("blockcache_drops", "Blocks that the cache could not take", COUNTER, |all| {
        all.cache.drops as f64
    }),
    figure("blockcache_evicts", "Blocks that went to make room", COUNTER, |all| {
        all.cache.evicts as f64
    }),
    figure("blockcache_writes", "Blocks written to the cache", COUNTER, |all| {
        all.cache.writes as f64
    }),
    figure("blockcache_write_bytes", "Bytes written to the cache", COUNTER, |all| {
        all.cache.write_bytes as f64
    }),
    figure("staging_blocks", "Blocks staged and not uploaded", GAUGE, |all| {
        all.cache.staging_blocks as f64
    }),
    figure("staging_block_bytes", "Bytes staged and not uploaded", GAUGE, |all| {
        all.cache.staging_block_bytes as f64
    }),
    figure("staging_write_bytes", "Bytes staged so far", COUNTER, |all| {
        all.cache.staging_write_bytes as f64
    }),
    figure("staging_writing_blocks", "Blocks being staged", GAUGE, |all| {
        all.cache.staging_writing_blocks as f64
    }),
    figure("staging_block_delay_seconds", "Time that blocks were staged", COUNTER, |all| {
        all.staging_delay
    }),
    figure("staging_block_errors", "Blocks that could not be staged", COUNTER, |all| {
        all.staging_errors as f64
    }),
    figure("used_buffer_size_bytes", "Bytes of data in memory", GAUGE, |all| all.used as f64),
    figure("used_read_buffer_size_bytes", "Bytes of blocks in memory", GAUGE, |all| all.hot as f64),
    figure("store_cache_size_bytes", "Bytes of the cache in memory", GAUGE, |all| {
        all.cache.memory_bytes as f64
    }),
];

const fn figure(
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    read: fn(&Figures) -> f64,
) -> Figure {
    Figure { name, help, kind, read }
}

/// The figures of one store, as a registry asks for them.
struct Collected {
    store: Weak<Store>,
    descriptions: Vec<Desc>,
}

/// The sizes of rewritten slices.
pub fn rewritten_sizes() -> prometheus::Result<Histogram> {
    let help = "Bytes of slices that were rewritten";
    let options = HistogramOpts::new("compact_size_histogram_bytes", help);
    Histogram::with_opts(options.buckets(exponential_buckets(1024.0, 2.0, 16)?))
}

impl Store {
    /// Shows what this store counts in a registry; it is to be that of this volume alone.
    pub fn register(self: &Arc<Self>, registry: &Registry) -> Result<()> {
        self.try_register(registry).map_err(|error| Error::BadInput(format!("metrics: {error}")))
    }

    fn try_register(self: &Arc<Self>, registry: &Registry) -> prometheus::Result<()> {
        let descriptions = FIGURES.iter().map(Figure::description).collect::<Result<_, _>>()?;
        registry.register(Box::new(Collected { store: Arc::downgrade(self), descriptions }))?;
        let times = self.cache.as_ref().map(|cache| cache.times());
        let (reads, writes) = times.map_or((&None, &None), |times| (&times.reads, &times.writes));
        for histogram in [&self.rewritten, reads, writes].into_iter().flatten() {
            registry.register(Box::new(histogram.clone()))?;
        }
        Ok(())
    }

    fn figures(&self) -> Figures {
        let staging = self.staging.as_ref();
        Figures {
            cache: self.cache.as_ref().map(|cache| cache.usage()).unwrap_or_default(),
            used: self.budget.used(),
            hot: self.hot.bytes(),
            staging_errors: staging.map_or(0, |staging| staging.errors()),
            staging_delay: staging.map_or(0.0, |staging| staging.delayed().as_secs_f64()),
        }
    }
}

impl Figure {
    fn description(&self) -> prometheus::Result<Desc> {
        Desc::new(self.name.to_owned(), self.help.to_owned(), Vec::new(), HashMap::new())
    }

    fn family(&self, figures: &Figures) -> MetricFamily {
        let (mut metric, value) = (Metric::default(), (self.read)(figures));
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

impl Collector for Collected {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(store) = self.store.upgrade() else { return Vec::new() };
        let figures = store.figures();
        FIGURES.iter().map(|figure| figure.family(&figures)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{BLOCK, LAYOUT, Probe, slice};
    use crate::chunk::{Compression, Fragment};
    use crate::slice::SliceId;

    fn figure(registry: &Registry, name: &str) -> MetricFamily {
        let found = registry.gather().into_iter().find(|family| family.name() == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    }

    #[tokio::test]
    async fn a_registry_shows_what_the_store_holds_and_did() {
        let one = slice(1, BLOCK);
        let store = Store::new(Probe::with(one).await, LAYOUT, Compression::None);
        let registry = Registry::new_custom(Some("juicefs".to_owned()), None).unwrap();
        store.register(&registry).unwrap();
        store.read(one, 0..1).await.unwrap();
        let fragments = [Fragment { slice: one, off: 0, len: 2000 }];
        store.rewrite(&fragments, SliceId(2), 0).await.unwrap();

        let used = figure(&registry, "juicefs_used_buffer_size_bytes");
        assert!((used.get_metric()[0].get_gauge().get_value() - f64::from(BLOCK)).abs() < 0.5);
        let sizes = figure(&registry, "juicefs_compact_size_histogram_bytes");
        assert!((sizes.get_metric()[0].get_histogram().get_sample_sum() - 2000.0).abs() < 0.5);
        assert_eq!(figure(&registry, "juicefs_blockcache_hits").get_field_type(), COUNTER);
    }

    #[tokio::test]
    async fn the_figures_go_with_the_store() {
        let registry = Registry::new();
        let store = Store::new(Probe::new(), LAYOUT, Compression::None);
        store.register(&registry).unwrap();
        assert!(store.register(&registry).is_err());
        drop(store);
        assert!(registry.gather().iter().all(|family| family.name().starts_with("compact_")));
    }
}
