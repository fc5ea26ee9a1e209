//! Throughput beside the plain limit of the same machine, measured in the same run.

pub mod bare;
pub mod bucket;
pub mod place;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use tokio::runtime::Runtime;

/// Runs pairs of benchmarks and keeps what they moved for the table in the end.
pub struct Beside {
    criterion: Criterion,
    runtime: Arc<Runtime>,
    rows: Vec<Row>,
}

/// One case, against what it is held.
struct Row {
    name: String,
    limit: &'static str,
    /// Bytes per second.
    ours: f64,
    plain: f64,
}

/// Seconds of each run.
type Runs = Arc<Mutex<Vec<f64>>>;

impl Beside {
    pub fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let criterion = Criterion::default()
            .sample_size(10)
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_secs(1))
            .configure_from_args();
        Ok(Self { criterion, runtime: Arc::new(runtime), rows: Vec::new() })
    }

    pub fn runtime(&self) -> Arc<Runtime> {
        Arc::clone(&self.runtime)
    }

    /// Measures `ours` and then `plain`, which both move `bytes`. What each answers is tidied away
    /// by `tidy`, whose time does not count.
    pub fn pair<O, P, T, A, B, C>(
        &mut self,
        name: &str,
        bytes: u64,
        ours: O,
        (limit, plain): (&'static str, P),
        tidy: T,
    ) where
        O: Fn() -> A + Clone + Send + 'static,
        P: Fn() -> B + Clone + Send + 'static,
        T: Fn() -> C + Clone + Send + 'static,
        A: Future<Output = ()> + Send,
        B: Future<Output = ()> + Send,
        C: Future<Output = ()> + Send,
    {
        let mut group = self.criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(bytes));
        let ours = measure(&mut group, &self.runtime, "jfs", ours, tidy.clone());
        let plain = measure(&mut group, &self.runtime, limit, plain, tidy);
        group.finish();
        if let (Some(ours), Some(plain)) = (ours, plain) {
            let rate = |seconds: f64| bytes as f64 / seconds;
            let name = name.to_owned();
            self.rows.push(Row { name, limit, ours: rate(ours), plain: rate(plain) });
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| case | jfs, MiB/s | limit | MiB/s | ratio |")?;
        writeln!(f, "|---|--:|---|--:|--:|")?;
        for Row { name, limit, ours, plain } in &self.rows {
            let mib = |rate: f64| rate / f64::from(1 << 20);
            let ratio = ours / plain;
            let (ours, plain) = (mib(*ours), mib(*plain));
            writeln!(f, "| {name} | {ours:.0} | {limit} | {plain:.0} | {ratio:.2} |")?;
        }
        Ok(())
    }
}

/// The median time of a run; none if the benchmark was not chosen.
fn measure<W, T, A, C>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    runtime: &Runtime,
    name: &str,
    work: W,
    tidy: T,
) -> Option<f64>
where
    W: Fn() -> A + Clone + Send + 'static,
    T: Fn() -> C + Clone + Send + 'static,
    A: Future<Output = ()> + Send,
    C: Future<Output = ()> + Send,
{
    let runs = Runs::default();
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|count| {
            let (work, tidy, runs) = (work.clone(), tidy.clone(), Arc::clone(&runs));
            // In a task, as everything that waits in a mount: the main thread is not the runtime's.
            let task = runtime.spawn(async move {
                let mut total = Duration::ZERO;
                for _ in 0..count {
                    let start = Instant::now();
                    work().await;
                    let took = start.elapsed();
                    tidy().await;
                    total += took;
                    runs.lock().unwrap_or_else(PoisonError::into_inner).push(took.as_secs_f64());
                }
                total
            });
            match runtime.block_on(task) {
                Ok(total) => total,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        });
    });
    let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner).clone();
    runs.sort_by(f64::total_cmp);
    runs.get(runs.len() / 2).copied()
}
