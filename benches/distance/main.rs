//! Compares mounts of this client with those of the Go client, and with a bare S3 client, over a
//! store that is far away: each request waits for its first byte and has a limited rate. Prints a
//! markdown table for each distance.
//!
//! `cargo bench --bench distance -- --help`

#[allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "shared with tests, which assert by panicking"
)]
#[path = "../../tests/support/mod.rs"]
mod support;

#[allow(dead_code, reason = "each bench uses its own part of this")]
#[path = "../baseline/mod.rs"]
mod baseline;

#[allow(dead_code, clippy::unwrap_used, reason = "shared with tests, which assert by panicking")]
#[path = "../../tests/mount/mapped.rs"]
mod mapped;

mod bare;
mod distant_s3;
mod table;
mod workload;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use clap::Parser;

use distant_s3::DistantS3;
use support::fixture::{self, Client, Fixture};
use support::timeout::within;
use table::{Measurer, Table};
use workload::Work;

/// Nothing takes longer; a mount that hangs is removed then.
const LIMIT: Duration = Duration::from_hours(2);

/// Compares mounts with those of the Go client over a distant store.
#[derive(Parser)]
struct Args {
    /// Distances: milliseconds to the first byte, and MB/s of each request.
    #[arg(long, value_delimiter = ',', default_value = "5:500,20:80,100:20")]
    distances: Vec<Distance>,
    /// Rounds of each client; medians are printed.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Size of the large file, in MiB.
    #[arg(long, default_value_t = 512)]
    large: usize,
    /// What to measure; everything by default.
    #[arg(long, value_delimiter = ',')]
    work: Vec<Work>,
    /// The program to measure, if not the one built with this benchmark.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// How far away the store is.
#[derive(Debug, Clone, Copy)]
pub struct Distance {
    pub first_byte: Duration,
    /// Bytes per second of one request.
    pub rate: f64,
}

impl FromStr for Distance {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (millis, rate) = text.split_once(':').context("not MILLISECONDS:MEGABYTES")?;
        let first_byte = Duration::from_millis(millis.parse()?);
        Ok(Self { first_byte, rate: rate.parse::<f64>()? * 1e6 })
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(program) = &args.program {
        fixture::use_program(program.clone());
    }
    within(LIMIT, move || args.distances.iter().try_for_each(|distance| run(&args, *distance)))
}

fn run(args: &Args, distance: Distance) -> Result<()> {
    let server = DistantS3::start(distance)?;
    let rig = Fixture::redis();
    let keys = ["--access-key", "bench", "--secret-key", "benchbench", "--trash-days", "0"];
    let place = ["volume", "--storage", "s3", "--bucket", &server.bucket()];
    rig.tool("format", &[&place[..], &keys].concat()).ok();
    workload::prepare(&rig, args.large)?;
    let mut table = Table::default();
    let all: Vec<Work> = if args.work.is_empty() { Work::ALL.to_vec() } else { args.work.clone() };
    for round in 0..args.rounds {
        for work in &all {
            // Which one goes first changes.
            let mut turns =
                [Measurer::Mount(Client::Ours), Measurer::Mount(Client::Go), Measurer::Bare];
            turns.rotate_left(round % 3);
            for by in turns {
                let measured = match by {
                    Measurer::Mount(client) => work.run(&rig, client, args.large, round)?,
                    Measurer::Bare => bare::run(*work, &server, args.large)?,
                };
                table.add(*work, by, measured);
            }
        }
    }
    let (millis, rate) = (distance.first_byte.as_millis(), distance.rate / 1e6);
    println!("\n{millis} ms to the first byte, {rate} MB/s for each request:\n\n{table}");
    Ok(())
}
