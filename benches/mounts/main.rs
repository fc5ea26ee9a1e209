//! Compares mounts of this client with those of the Go client, on the same local Redis, in
//! alternating rounds. Prints a markdown table: the results of both, and how many times better ours
//! are.
//!
//! `cargo bench --bench mounts -- --help`

#[allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "shared with tests, which assert by panicking"
)]
#[path = "../../tests/support/mod.rs"]
mod support;

mod measurement;
mod table;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use support::fixture::{self, Client, Fixture};
use support::timeout::within;
use table::Table;

/// Nothing takes longer; a mount that hangs is removed then.
const LIMIT: Duration = Duration::from_hours(2);

/// Compares mounts with those of the Go client.
#[derive(Parser)]
struct Args {
    /// Rounds of each client; medians are printed.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Files that are created, listed, renamed, written, read and removed.
    #[arg(long, default_value_t = 2000)]
    files: usize,
    /// Size of the large file, in MiB.
    #[arg(long, default_value_t = 512)]
    large: usize,
    /// The program to measure, if not the one built with this benchmark.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Leave the Go client out, for profiling.
    #[arg(long)]
    alone: bool,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(program) = &args.program {
        fixture::use_program(program.clone());
    }
    let table = within(LIMIT, move || measure(&args))?;
    println!("\n{table}");
    Ok(())
}

fn measure(args: &Args) -> Result<Table> {
    let mut table = Table::default();
    for round in 0..args.rounds {
        // Which client goes first alternates.
        let mut turns = [Client::Ours, Client::Go];
        turns.rotate_left(round % 2);
        for client in turns {
            if client == Client::Go && args.alone {
                continue;
            }
            // A separate volume, on the same server.
            let rig = Fixture::redis();
            rig.format(&[]);
            table.add(client, &workload::run(&rig, client, args)?);
        }
    }
    Ok(table)
}
