//! The subcommands of `jfs-mount`, one file each, with the Go client's option names.

mod config;
mod controller;
mod format;
mod info;
mod quota;
mod rmr;
mod sizes;
mod stats;
mod status;
mod storage;
mod table;

use clap::{Parser, Subcommand};

/// A JuiceFS-compatible file-system client.
#[derive(Debug, Parser)]
#[command(name = "jfs-mount", version, max_term_width = 100)]
pub struct Cli {
    /// Say more: debug lines too
    #[arg(short, long, visible_alias = "debug", global = true)]
    verbose: bool,
    /// Say less: only warnings and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a volume
    Format(format::Format),
    /// Show or change the setting of a volume
    Config(config::Config),
    /// Show the setting, sessions and usage of a volume
    Status(status::Status),
    /// Manage quotas of directories, users and groups
    Quota(quota::Quota),
    /// Show what a mount knows of a path or an inode
    Info(info::Info),
    /// Remove trees of a mount
    Rmr(rmr::Rmr),
    /// Show what a mount does, second by second
    Stats(stats::Stats),
}

impl Cli {
    /// The filter for log lines, unless the environment says otherwise.
    pub fn log_level(&self) -> &'static str {
        match (self.verbose, self.quiet) {
            (true, _) => "jfs=debug,info",
            (_, true) => "warn",
            _ => "info",
        }
    }

    pub async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Format(command) => command.run().await,
            Command::Config(command) => command.run().await,
            Command::Status(command) => command.run().await,
            Command::Quota(command) => command.run().await,
            Command::Info(command) => command.run().await,
            Command::Rmr(command) => command.run().await,
            Command::Stats(command) => command.run().await,
        }
    }
}
