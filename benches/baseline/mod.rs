//! Throughput compared with a baseline: the plain limit of the same machine, measured in the same run.

pub mod bench_volume;
pub mod encryption;
pub mod plain_s3;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput};
use tokio::runtime::Runtime;

/// Runs pairs of benchmarks and collects their throughput for the table at the end.
pub struct Comparison {
    criterion: Criterion,
    runtime: Arc<Runtime>,
    rows: Vec<Row>,
}

/// One case and its baseline.
struct Row {
    name: String,
    limit: &'static str,
    /// Bytes per second.
    ours: f64,
    plain: f64,
    ratio: f64,
}

/// Seconds of a run of ours and of the plain run right after it.
type Runs = Arc<Mutex<Vec<(f64, f64)>>>;

impl Comparison {
    pub fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let criterion = Criterion::default()
            .sample_size(10)
            .warm_up_time(Duration::from_millis(100))
            .measurement_time(Duration::from_millis(500))
            .configure_from_args();
        Ok(Self { criterion, runtime: Arc::new(runtime), rows: Vec::new() })
    }

    pub fn runtime(&self) -> Arc<Runtime> {
        Arc::clone(&self.runtime)
    }

    /// Measures `ours` and `plain`, which both move `bytes`, in turns, so that other load on the machine
    /// affects both. `tidy` cleans up after each run; its time does not count.
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
        A: Future<Output = ()> + Send + 'static,
        B: Future<Output = ()> + Send + 'static,
        C: Future<Output = ()> + Send + 'static,
    {
        let runs = Runs::default();
        let runtime = Arc::clone(&self.runtime);
        let mut group = self.criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(bytes));
        // The same number of runs in each sample, since some cases take long.
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function("jfs", |bencher| {
            bencher.iter_custom(|count| {
                let turns = take_turns(count, ours.clone(), plain.clone(), tidy.clone());
                // In a task, as in a mount: the main thread does not belong to the runtime.
                match runtime.block_on(runtime.spawn(turns)) {
                    Ok(took) => {
                        let total = took.iter().map(|(ours, _)| ours).sum();
                        runs.lock().unwrap_or_else(PoisonError::into_inner).extend(took);
                        Duration::from_secs_f64(total)
                    }
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                }
            });
        });
        group.finish();
        let runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.is_empty() {
            // The case was filtered out.
            return;
        }
        let rate = |seconds: f64| bytes as f64 / seconds;
        self.rows.push(Row {
            name: name.to_owned(),
            limit,
            ours: rate(median(runs.iter().map(|(ours, _)| *ours))),
            plain: rate(median(runs.iter().map(|(_, plain)| *plain))),
            ratio: median(runs.iter().map(|(ours, plain)| plain / ours)),
        });
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| case | jfs, MiB/s | limit | MiB/s | ratio |")?;
        writeln!(f, "|---|--:|---|--:|--:|")?;
        for Row { name, limit, ours, plain, ratio } in &self.rows {
            let mib = |rate: f64| rate / f64::from(1 << 20);
            let (ours, plain) = (mib(*ours), mib(*plain));
            writeln!(f, "| {name} | {ours:.0} | {limit} | {plain:.0} | {ratio:.2} |")?;
        }
        Ok(())
    }
}

/// Runs both in turns and returns their seconds.
async fn take_turns<A, B, C>(
    count: u64,
    ours: impl Fn() -> A,
    plain: impl Fn() -> B,
    tidy: impl Fn() -> C,
) -> Vec<(f64, f64)>
where
    A: Future<Output = ()>,
    B: Future<Output = ()>,
    C: Future<Output = ()>,
{
    let mut took = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        ours().await;
        let first = start.elapsed();
        tidy().await;
        let start = Instant::now();
        plain().await;
        let second = start.elapsed();
        tidy().await;
        took.push((first.as_secs_f64(), second.as_secs_f64()));
    }
    took
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
