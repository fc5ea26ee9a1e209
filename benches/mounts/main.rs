//! Mounts of this client beside those of the Go client, on the same local Redis, turn by turn.
//! Prints a table in markdown: what both did, and how many times better ours is.
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

mod figures;
mod memory;
mod table;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use support::fixture::{self, Client, Fixture};
use support::timeout::within;
use table::Table;

/// Nothing takes longer; what hangs is taken away then.
const LIMIT: Duration = Duration::from_hours(2);

/// Compares mounts with those of the Go client.
#[derive(Parser)]
struct Args {
    /// Turns of each side; medians are printed.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Files that are made, looked at, moved, written, read and removed.
    #[arg(long, default_value_t = 2000)]
    files: usize,
    /// Size of the large file, in MiB.
    #[arg(long, default_value_t = 512)]
    large: usize,
    /// The program to measure, if it is not the one that was built with this.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Leave the Go client out, for profiling.
    #[arg(long)]
    alone: bool,
    /// What `cargo bench` passes.
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
        // The one that goes first changes.
        let mut turns = [Client::Ours, Client::Go];
        turns.rotate_left(round % 2);
        for client in turns {
            if client == Client::Go && args.alone {
                continue;
            }
            // A volume of its own, on the same server.
            let rig = Fixture::redis();
            rig.format(&[]);
            table.add(client, &work::run(&rig, client, args)?);
        }
    }
    Ok(table)
}
