//! Metadata rates of this client and of the Go client, on the same server and volume, in turns.
//! Prints a Markdown table: the rates of both, and the ratio of ours to that of the Go client.
//!
//! `cargo bench --bench mdtest -- --help`

mod go;
mod mdtest_tree;
mod ops;
#[allow(
    dead_code,
    clippy::panic,
    clippy::expect_used,
    reason = "shared with tests, which assert by panicking"
)]
#[path = "../../tests/support/redis.rs"]
mod redis;
mod server_limit;
mod table;
#[allow(
    dead_code,
    clippy::panic,
    clippy::expect_used,
    reason = "shared with tests, which assert by panicking"
)]
#[path = "../../tests/support/tikv.rs"]
mod tikv;

use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use jfs::meta::record::Setting;
use jfs::meta::{Meta, Options, Registration};
use tempfile::TempDir;
use uuid::Uuid;

use redis::RedisServer;
use table::Table;
use tikv::TikvServer;

/// The rate of one client in each phase, in operations per second.
type Rates = Vec<(String, f64)>;

/// Compares metadata rates with those of the Go client.
#[derive(Parser)]
struct Args {
    /// Engines to measure on.
    #[arg(long, value_delimiter = ',', default_value = "redis,sqlite")]
    engines: Vec<EngineKind>,
    /// Operations in flight.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    widths: Vec<usize>,
    /// Rounds of each client; medians are printed.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// What to run.
    #[arg(long, value_delimiter = ',', default_value = "mdtest,ops")]
    runs: Vec<Run>,
    /// Operations of each phase; by default 4000 on Redis and 1000 elsewhere.
    #[arg(long)]
    count: Option<usize>,
    /// Leave out the Go client, for profiling.
    #[arg(long)]
    alone: bool,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
enum EngineKind {
    Redis,
    Sqlite,
    /// The test server: it shows the number of requests, not the speed of TiKV.
    Tikv,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
enum Run {
    /// The tree of `juicefs mdtest`: all tasks create in the same directories.
    Mdtest,
    /// One kind of operation after the other, a directory for each task.
    Ops,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let server = args.engines.contains(&EngineKind::Redis).then(RedisServer::start);
    for engine in &args.engines {
        let mut table = Table::default();
        for width in &args.widths {
            let volume = BenchVolume::new(*engine, server.as_ref())?;
            runtime.block_on(format(&volume.url))?;
            for run in &args.runs {
                compare(&args, &runtime, &volume, *run, *width, &mut table)
                    .with_context(|| format!("{} with {width} in flight", engine.name()))?;
            }
        }
        println!("\n{}:\n\n{table}", engine.name());
        if let (EngineKind::Redis, Some(server)) = (engine, &server) {
            print_limits(&args, server)?;
        }
    }
    Ok(())
}

/// Prints the rate that no client on this machine can exceed.
fn print_limits(args: &Args, server: &RedisServer) -> Result<()> {
    for width in &args.widths {
        let count = args.count.unwrap_or(EngineKind::Redis.count());
        let rates = (0..args.rounds).map(|_| server_limit::rate(server.port(), *width, count));
        let rate = table::median(&rates.collect::<Result<Vec<_>>>()?);
        println!("a bare GET over one blocking socket, {width} in each write: {rate:.0} /s");
    }
    Ok(())
}

/// Runs both clients in turns, alternating which one is first.
fn compare(
    args: &Args,
    runtime: &tokio::runtime::Runtime,
    volume: &BenchVolume,
    run: Run,
    width: usize,
    table: &mut Table,
) -> Result<()> {
    let count = (args.count.unwrap_or(volume.engine.count()) / width).max(1);
    for round in 0..args.rounds {
        let ours_first = round % 2 == 0;
        for ours in [ours_first, !ours_first] {
            let name = format!("{}-{round}-{width}", if ours { "jfs" } else { "go" });
            let rates = match (ours, run) {
                (true, Run::Mdtest) => {
                    runtime.block_on(mdtest_tree::run(&volume.url, &name, width, count))
                }
                (true, Run::Ops) => runtime.block_on(ops::run(&volume.url, &name, width, count)),
                (false, _) if args.alone => continue,
                (false, Run::Mdtest) => go::mdtest(&volume.url, &name, width, count),
                (false, Run::Ops) => go::ops(&volume.url, &name, width, count),
            };
            table.add(width, ours, rates?);
        }
    }
    Ok(())
}

impl EngineKind {
    fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Sqlite => "SQLite",
            Self::Tikv => "TiKV (test server)",
        }
    }

    /// Enough for a second or so of each phase.
    fn count(self) -> usize {
        match self {
            Self::Redis => 4000,
            Self::Sqlite | Self::Tikv => 1000,
        }
    }
}

/// The metadata of a volume.
struct BenchVolume {
    engine: EngineKind,
    url: String,
    _dir: Option<TempDir>,
    _server: Option<TikvServer>,
}

impl BenchVolume {
    fn new(engine: EngineKind, server: Option<&RedisServer>) -> Result<Self> {
        Ok(match engine {
            EngineKind::Redis => {
                let url = server.context("no server")?.fresh_url();
                Self { engine, url, _dir: None, _server: None }
            }
            EngineKind::Sqlite => {
                let dir = TempDir::new()?;
                let url = format!("sqlite3://{}/meta.db", dir.path().display());
                Self { engine, url, _dir: Some(dir), _server: None }
            }
            EngineKind::Tikv => {
                let server = TikvServer::start(&[]);
                Self { engine, url: server.fresh_url(), _dir: None, _server: Some(server) }
            }
        })
    }
}

async fn format(url: &str) -> Result<()> {
    let meta = Meta::attach(url, Options::default()).await?;
    let mut setting = Setting::new("bench", Uuid::new_v4())?;
    "file".clone_into(&mut setting.storage);
    setting.bucket = std::env::temp_dir().join("jfs-bench/").display().to_string();
    meta.init(setting, false).await?;
    meta.close().await?;
    Ok(())
}

/// Returns a client with a session and without background jobs.
async fn client(url: &str) -> Result<Arc<Meta>> {
    let options = Options { no_background_jobs: true, ..Options::default() };
    let meta = Meta::connect(url, options).await?;
    meta.start(Registration::New).await?;
    Ok(meta)
}
