//! Counts and durations of operations, kept without locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, exponential_buckets};

/// Names of operations, sorted, and their names in JuiceFS's metrics. Operations that are not
/// listed are this client's background work.
const METHODS: [(&str, &str); 29] = [
    ("access", "Access"),
    ("attach", "Attach"),
    ("clone", "Clone"),
    ("compact", "Compact"),
    ("copy_file_range", "CopyFileRange"),
    ("create", "Mknod"),
    ("fallocate", "Fallocate"),
    ("flock", "Flock"),
    ("getattr", "GetAttr"),
    ("getfacl", "GetFacl"),
    ("getlk", "Getlk"),
    ("getxattr", "GetXattr"),
    ("link", "Link"),
    ("listxattr", "ListXattr"),
    ("lookup", "Lookup"),
    ("open", "Open"),
    ("read", "Read"),
    ("readlink", "ReadLink"),
    ("removexattr", "RemoveXattr"),
    ("rename", "Rename"),
    ("rmdir", "Rmdir"),
    ("setattr", "SetAttr"),
    ("setfacl", "SetFacl"),
    ("setlk", "Setlk"),
    ("setxattr", "SetXattr"),
    ("truncate", "Truncate"),
    ("unlink", "Unlink"),
    ("unlink batch", "BatchUnlink"),
    ("write", "Write"),
];
/// The name of all other operations.
const OTHER: &str = "Other";

/// The counts and durations of one client.
pub struct OpTimes {
    methods: [Cell; METHODS.len()],
    other: Cell,
    /// Whole operations, from start to end.
    pub(in crate::meta::client) ops: Option<Histogram>,
    /// Commits, including the reads before them.
    pub(in crate::meta::client) commits: Option<Histogram>,
}

#[derive(Default)]
struct Cell {
    count: AtomicU64,
    nanos: AtomicU64,
    restarts: AtomicU64,
}

/// The totals of one method.
pub struct OpTime {
    pub method: &'static str,
    pub count: u64,
    pub took: Duration,
    pub restarts: u64,
}

impl Default for OpTimes {
    fn default() -> Self {
        // Names and buckets are valid, so neither is `None`.
        let histogram = |name: &str, help: &str| {
            let buckets = exponential_buckets(0.0001, 1.5, 30).ok()?;
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)).ok()
        };
        Self {
            methods: std::array::from_fn(|_| Cell::default()),
            other: Cell::default(),
            ops: histogram(
                "meta_ops_durations_histogram_seconds",
                "Seconds that operations on metadata took",
            ),
            commits: histogram(
                "transaction_durations_histogram_seconds",
                "Seconds that transactions took",
            ),
        }
    }
}

impl OpTimes {
    /// Records an operation that has ended, successfully or not.
    pub fn ran(&self, name: &str, took: Duration) {
        let cell = self.cell(name);
        cell.count.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        cell.nanos.fetch_add(nanos, Ordering::Relaxed);
        if let Some(ops) = &self.ops {
            ops.observe(took.as_secs_f64());
        }
    }

    /// Records an attempted commit.
    pub fn committed(&self, took: Duration) {
        if let Some(commits) = &self.commits {
            commits.observe(took.as_secs_f64());
        }
    }

    /// Records that an operation must be planned again.
    pub fn restarted(&self, name: &str) {
        self.cell(name).restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// The methods that have run at least once.
    pub fn all(&self) -> impl Iterator<Item = OpTime> {
        let shown = METHODS.iter().map(|(_, shown)| *shown).zip(&self.methods);
        shown.chain([(OTHER, &self.other)]).filter_map(|(method, cell)| {
            let count = cell.count.load(Ordering::Relaxed);
            (count > 0).then(|| OpTime {
                method,
                count,
                took: Duration::from_nanos(cell.nanos.load(Ordering::Relaxed)),
                restarts: cell.restarts.load(Ordering::Relaxed),
            })
        })
    }

    fn cell(&self, name: &str) -> &Cell {
        let at = METHODS.binary_search_by_key(&name, |(name, _)| name);
        at.map_or(&self.other, |at| &self.methods[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_exported_once() {
        assert!(METHODS.is_sorted_by_key(|(name, _)| name));
        let mut shown: Vec<&str> = METHODS.iter().map(|(_, shown)| *shown).collect();
        shown.sort_unstable();
        shown.dedup();
        assert_eq!(shown.len(), METHODS.len());
    }

    #[test]
    fn operations_are_counted_by_method() {
        let times = OpTimes::default();
        times.ran("create", Duration::from_millis(2));
        times.ran("create", Duration::from_millis(3));
        times.ran("drop a slice", Duration::ZERO);
        times.restarted("create");
        let all: Vec<_> =
            times.all().map(|op| (op.method, op.count, op.took, op.restarts)).collect();
        assert_eq!(
            all,
            [("Mknod", 2, Duration::from_millis(5), 1), ("Other", 1, Duration::ZERO, 0)]
        );
    }
}
