//! Metrics of a mount's operations, with JuiceFS's names.
//!
//! Counting takes a few atomic additions: no lock, no allocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Histogram, HistogramOpts, IntGauge, Registry, exponential_buckets, linear_buckets,
};

use crate::error::{Error, Result};
use crate::metric_families::FamilyDesc;

/// The names of the operations that are counted separately, sorted.
const METHODS: [&str; 42] = [
    "access",
    "chflags",
    "copy_file_range",
    "create",
    "fallocate",
    "flock",
    "flush",
    "forget",
    "fsync",
    "fsyncdir",
    "getattr",
    "getlk",
    "getxattr",
    "ioctl",
    "link",
    "listxattr",
    "lookup",
    "lseek",
    "mkdir",
    "mknod",
    "open",
    "opendir",
    "poll",
    "read",
    "readdir",
    "readdirplus",
    "readlink",
    "release",
    "releasedir",
    "removexattr",
    "rename",
    "resolve",
    "rmdir",
    "setattr",
    "setlk",
    "setxattr",
    "statfs",
    "statx",
    "symlink",
    "truncate",
    "unlink",
    "write",
];
/// The name for all other operations.
const OTHER: &str = "other";
/// Linux has no errno above this.
const ERRNOS: usize = 134;

/// The counters of one mount.
pub struct OpMetrics {
    counts: Arc<OpCounts>,
    durations: Histogram,
    read: Histogram,
    written: Histogram,
    handles: IntGauge,
}

/// Counts by method and by errno.
struct OpCounts {
    methods: [MethodCount; METHODS.len()],
    other: MethodCount,
    errors: [AtomicU64; ERRNOS],
}

#[derive(Default)]
struct MethodCount {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl OpMetrics {
    /// Creates the counters and registers them in `registry`.
    pub fn register(registry: &Registry) -> Result<Self> {
        Self::build(registry).map_err(|error| Error::BadInput(format!("metrics: {error}")))
    }

    /// Counts an operation that has ended.
    pub fn done(&self, method: &'static str, took: Duration) {
        let entry = self.counts.method(method);
        entry.count.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        entry.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.durations.observe(took.as_secs_f64());
    }

    /// Counts an operation that failed with this errno.
    pub fn io_error(&self, errno: Errno) {
        if let Some(count) =
            usize::try_from(errno as i32).ok().and_then(|n| self.counts.errors.get(n))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn read(&self, bytes: usize) {
        self.read.observe(bytes as f64);
    }

    pub fn wrote(&self, bytes: usize) {
        self.written.observe(bytes as f64);
    }

    /// Counts a file or directory that was opened.
    pub fn opened(&self) {
        self.handles.inc();
    }

    pub fn closed(&self) {
        self.handles.dec();
    }

    fn build(registry: &Registry) -> prometheus::Result<Self> {
        let durations = HistogramOpts::new(
            "fuse_ops_durations_histogram_seconds",
            "Seconds that operations took",
        );
        let read = HistogramOpts::new("fuse_read_size_bytes", "Bytes returned by a read");
        let written = HistogramOpts::new("fuse_written_size_bytes", "Bytes of a write");
        let sizes = linear_buckets(4096.0, 4096.0, 32)?;
        let metrics = Self {
            counts: Arc::new(OpCounts::default()),
            durations: Histogram::with_opts(
                durations.buckets(exponential_buckets(0.000_01, 1.8, 29)?),
            )?,
            read: Histogram::with_opts(read.buckets(sizes.clone()))?,
            written: Histogram::with_opts(written.buckets(sizes))?,
            handles: IntGauge::new("fuse_open_handlers", "Open files and directories")?,
        };
        let all: [Box<dyn Collector>; 5] = [
            Box::new(OpCountsCollector::new(Arc::clone(&metrics.counts))?),
            Box::new(metrics.durations.clone()),
            Box::new(metrics.read.clone()),
            Box::new(metrics.written.clone()),
            Box::new(metrics.handles.clone()),
        ];
        all.into_iter().try_for_each(|one| registry.register(one))?;
        Ok(metrics)
    }
}

impl OpCounts {
    fn method(&self, method: &str) -> &MethodCount {
        METHODS.binary_search(&method).map_or(&self.other, |at| &self.methods[at])
    }
}

impl Default for OpCounts {
    fn default() -> Self {
        Self {
            methods: std::array::from_fn(|_| MethodCount::default()),
            other: MethodCount::default(),
            errors: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// Exposes the counts to a registry.
struct OpCountsCollector {
    counts: Arc<OpCounts>,
    total: FamilyDesc,
    seconds: FamilyDesc,
    errors: FamilyDesc,
}

impl OpCountsCollector {
    fn new(counts: Arc<OpCounts>) -> prometheus::Result<Self> {
        let by_method = |name: &str, help: &str| FamilyDesc::counter_by("method", name, help);
        Ok(Self {
            counts,
            total: by_method("fuse_ops_total", "Operations")?,
            seconds: by_method("fuse_ops_durations_seconds", "Seconds of operations")?,
            errors: FamilyDesc::counter_by(
                "errno",
                "fuse_ops_io_errors",
                "Operations that failed",
            )?,
        })
    }

    /// Returns the methods that were called, with counts and seconds.
    fn called(&self) -> impl Iterator<Item = (&'static str, u64, f64)> {
        let others = [(&OTHER, &self.counts.other)];
        METHODS.iter().zip(&self.counts.methods).chain(others).filter_map(|(name, entry)| {
            let count = entry.count.load(Ordering::Relaxed);
            let seconds = Duration::from_nanos(entry.nanos.load(Ordering::Relaxed)).as_secs_f64();
            (count > 0).then_some((*name, count, seconds))
        })
    }

    fn failed(&self) -> impl Iterator<Item = (String, f64)> {
        self.counts.errors.iter().zip(0..).filter_map(|(count, number)| {
            let count = count.load(Ordering::Relaxed);
            (count > 0).then(|| (format!("{:?}", Errno::from_raw(number)), count as f64))
        })
    }
}

impl Collector for OpCountsCollector {
    fn desc(&self) -> Vec<&Desc> {
        [&self.total, &self.seconds, &self.errors].map(FamilyDesc::desc).into()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let called: Vec<_> = self.called().collect();
        vec![
            self.total.with_values(called.iter().map(|(name, count, _)| (*name, *count as f64))),
            self.seconds.with_values(called.iter().map(|(name, _, seconds)| (*name, *seconds))),
            self.errors.with_values(self.failed()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn methods_are_sorted() {
        assert!(METHODS.is_sorted());
    }

    #[test]
    fn a_registry_shows_what_was_counted() {
        let registry = Registry::new_custom(Some("juicefs".to_owned()), None).unwrap();
        let metrics = OpMetrics::register(&registry).unwrap();
        metrics.done("lookup", Duration::from_millis(250));
        metrics.done("lookup", Duration::from_millis(250));
        metrics.done("unheard_of", Duration::ZERO);
        metrics.io_error(Errno::ENOENT);
        metrics.read(100);
        metrics.wrote(5000);
        metrics.opened();

        let shown = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            r#"juicefs_fuse_ops_total{method="lookup"} 2"#,
            r#"juicefs_fuse_ops_total{method="other"} 1"#,
            r#"juicefs_fuse_ops_durations_seconds{method="lookup"} 0.5"#,
            r#"juicefs_fuse_ops_io_errors{errno="ENOENT"} 1"#,
            "juicefs_fuse_ops_durations_histogram_seconds_count 3",
            "juicefs_fuse_read_size_bytes_sum 100",
            "juicefs_fuse_written_size_bytes_sum 5000",
            "juicefs_fuse_open_handlers 1",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
        }
    }
}
