//! How often operations ran and how long they took, counted without locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, exponential_buckets};

/// Operations by their names here, sorted, and the names they have in JuiceFS's metrics. What is not
/// listed is work of this client of its own accord.
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
/// All others.
const OTHER: &str = "Other";

/// The times of one client.
pub struct OpTimes {
    methods: [Cell; METHODS.len()],
    other: Cell,
    /// Operations from their beginning to their end.
    pub(super) ops: Option<Histogram>,
    /// Commits with the reads that they rest on.
    pub(super) commits: Option<Histogram>,
}

#[derive(Default)]
struct Cell {
    count: AtomicU64,
    nanos: AtomicU64,
    restarts: AtomicU64,
}

/// What was counted of a method.
pub struct OpTime {
    pub method: &'static str,
    pub count: u64,
    pub took: Duration,
    pub restarts: u64,
}

impl Default for OpTimes {
    fn default() -> Self {
        // Names and buckets are right, so there are both.
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
    /// An operation has ended, however.
    pub fn ran(&self, name: &str, took: Duration) {
        let cell = self.cell(name);
        cell.count.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        cell.nanos.fetch_add(nanos, Ordering::Relaxed);
        if let Some(ops) = &self.ops {
            ops.observe(took.as_secs_f64());
        }
    }

    /// A commit was tried.
    pub fn committed(&self, took: Duration) {
        if let Some(commits) = &self.commits {
            commits.observe(took.as_secs_f64());
        }
    }

    /// It has to be planned again.
    pub fn restarted(&self, name: &str) {
        self.cell(name).restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// What ran so far.
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
    fn names_are_sorted_and_none_is_shown_twice() {
        assert!(METHODS.is_sorted_by_key(|(name, _)| name));
        let mut shown: Vec<&str> = METHODS.iter().map(|(_, shown)| *shown).collect();
        shown.sort_unstable();
        shown.dedup();
        assert_eq!(shown.len(), METHODS.len());
    }

    #[test]
    fn what_ran_is_counted_by_its_method() {
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
