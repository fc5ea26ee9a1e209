//! Usage and counters of a volume's cache, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, exponential_buckets};

/// A snapshot of a volume's part of the cache. The names are those of JuiceFS's metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// Cached blocks: on disk, staged, and waiting to be written.
    pub blocks: u64,
    pub bytes: u64,
    pub hits: u64,
    pub hit_bytes: u64,
    pub miss: u64,
    pub miss_bytes: u64,
    /// Blocks dropped because the disk was too slow or too full.
    pub drops: u64,
    pub evicts: u64,
    pub writes: u64,
    pub write_bytes: u64,
    /// Blocks staged and not uploaded.
    pub staging_blocks: u64,
    pub staging_block_bytes: u64,
    pub staging_write_bytes: u64,
    /// Blocks being staged right now.
    pub staging_writing_blocks: u64,
    /// Bytes in memory: waiting to be written, or cached there.
    pub memory_bytes: u64,
    /// Whether staged blocks take room that is needed, so that they should be uploaded soon.
    pub is_short: bool,
}

/// Counters of all events so far.
#[derive(Debug, Default)]
pub struct Counters {
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    miss: AtomicU64,
    miss_bytes: AtomicU64,
    drops: AtomicU64,
    evicts: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    staging_write_bytes: AtomicU64,
    staging_writing_blocks: AtomicU64,
    latencies: Latencies,
}

/// Histograms of the duration of reads and writes.
#[derive(Debug)]
pub struct Latencies {
    pub reads: Option<Histogram>,
    pub writes: Option<Histogram>,
}

impl Default for Latencies {
    fn default() -> Self {
        // Cannot fail: the names and the buckets are valid.
        let histogram = |name: &str, help: &str| {
            let buckets = exponential_buckets(0.000_01, 2.0, 20).ok()?;
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)).ok()
        };
        Self {
            reads: histogram("blockcache_read_hist_seconds", "Seconds of reads from the cache"),
            writes: histogram("blockcache_write_hist_seconds", "Seconds of writes to the cache"),
        }
    }
}

impl Counters {
    pub fn hit(&self, bytes: usize, took: Duration) {
        add(&self.hits, 1);
        add(&self.hit_bytes, bytes as u64);
        observe(self.latencies.reads.as_ref(), took);
    }

    pub fn miss(&self, bytes: u32) {
        add(&self.miss, 1);
        add(&self.miss_bytes, u64::from(bytes));
    }

    pub fn dropped(&self) {
        add(&self.drops, 1);
    }

    pub fn evicted(&self, blocks: usize) {
        add(&self.evicts, blocks as u64);
    }

    pub fn written(&self, bytes: usize, took: Duration) {
        add(&self.writes, 1);
        add(&self.write_bytes, bytes as u64);
        observe(self.latencies.writes.as_ref(), took);
    }

    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Counts a block as being staged until the returned guard is dropped.
    pub fn staging(&self) -> impl Drop {
        add(&self.staging_writing_blocks, 1);
        StagingGuard(self)
    }

    pub fn staged(&self, bytes: usize) {
        add(&self.staging_write_bytes, bytes as u64);
    }

    /// Returns all counters; the caller fills in the rest.
    pub fn usage(&self) -> CacheUsage {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheUsage {
            hits: load(&self.hits),
            hit_bytes: load(&self.hit_bytes),
            miss: load(&self.miss),
            miss_bytes: load(&self.miss_bytes),
            drops: load(&self.drops),
            evicts: load(&self.evicts),
            writes: load(&self.writes),
            write_bytes: load(&self.write_bytes),
            staging_write_bytes: load(&self.staging_write_bytes),
            staging_writing_blocks: load(&self.staging_writing_blocks),
            ..CacheUsage::default()
        }
    }
}

struct StagingGuard<'a>(&'a Counters);

impl Drop for StagingGuard<'_> {
    fn drop(&mut self) {
        self.0.staging_writing_blocks.fetch_sub(1, Ordering::Relaxed);
    }
}

fn observe(histogram: Option<&Histogram>, took: Duration) {
    if let Some(histogram) = histogram {
        histogram.observe(took.as_secs_f64());
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
