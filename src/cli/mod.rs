//! The subcommands of `jfs-mount`, one file or folder each, with the Go client's option names.
//!
//! [`Program`] is the entry point: it does what must happen before there are threads, then runs the
//! subcommand.

mod bench;
mod completion;
mod config;
mod confirm;
mod control;
mod destroy;
mod dump;
mod dump_file;
mod exit;
mod format;
mod fsck;
mod gc;
mod help;
mod load;
mod man;
mod meta_url;
mod mount;
mod profile;
mod program;
mod progress;
mod quota;
mod relaunch;
mod restore;
mod stats;
mod stats_file;
mod status;
mod stop_signals;
mod table;
mod umount;
mod upgrade;
mod version;
mod volume_scan;

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};
use tracing::warn;

use crate::log::Log;
pub use program::Program;
use relaunch::Parent;

/// A JuiceFS-compatible file-system client.
#[derive(Debug, Parser)]
#[command(name = "jfs-mount", version, max_term_width = 100, args_override_self = true)]
pub struct Cli {
    /// Log debug lines too
    #[arg(short, long, visible_alias = "debug", global = true)]
    verbose: bool,
    /// Log only warnings and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Log everything
    #[arg(long, global = true, conflicts_with = "quiet")]
    trace: bool,
    /// What to log: trace, debug, info, warn or error
    #[arg(long, value_name = "LEVEL", global = true, hide = true)]
    log_level: Option<Level>,
    /// Prefix of every log line; `random` for a unique one
    #[arg(long, value_name = "ID", global = true)]
    log_id: Option<String>,
    /// Do not color the log
    #[arg(long, global = true)]
    no_color: bool,
    /// Open no port for profilers; none is ever opened
    #[arg(long, global = true, hide = true)]
    no_agent: bool,
    /// Address of a Pyroscope server; nothing is sent there
    #[arg(long, value_name = "ADDRESS", global = true, hide = true)]
    pyroscope: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    #[value(alias = "fatal", alias = "panic")]
    Error,
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
    /// Show what a mount knows about a path or an inode
    Info(control::info::Info),
    /// Remove directory trees of a mount
    Rmr(control::rmr::Rmr),
    /// Read files of a mount into its block cache
    Warmup(control::warmup::Warmup),
    /// Clone a file or directory tree of a mount without copying its data
    Clone(control::clone::Clone),
    /// Merge the slices of files of a mount
    Compact(control::compact::Compact),
    /// Show the largest entries of a directory tree of a mount
    Summary(control::summary::Summary),
    /// Show which operations a mount carries out and how long they take
    Profile(profile::Profile),
    /// Move removed files out of the trash
    Restore(restore::Restore),
    /// Check the objects and directories of a volume
    Fsck(fsck::Fsck),
    /// Find and delete objects that no file needs
    Gc(gc::Gc),
    /// Delete a volume
    Destroy(destroy::Destroy),
    /// Write the metadata of a volume to a file
    Dump(dump::Dump),
    /// Load the metadata of a volume from a file
    Load(load::Load),
    /// Show the activity of a mount, second by second
    Stats(stats::Stats),
    /// Mount a volume
    Mount(Box<mount::Mount>),
    /// Unmount a volume
    Umount(umount::Umount),
    /// Let another version of this program serve a mount, without unmounting it
    Upgrade(upgrade::Upgrade),
    /// Measure the speed of a directory
    Bench(bench::Bench),
    /// Print a script that completes commands and options in a shell
    Completion(completion::Completion),
    /// Show the manual page, or write those of all commands
    Man(man::Pages),
    /// Show the version
    Version(version::Version),
}

impl Cli {
    fn log(&self) -> Log {
        let debug = matches!(&self.command, Command::Mount(mount) if mount.wants_debug());
        let filter = match (self.log_level, self.trace, self.verbose || debug, self.quiet) {
            (Some(Level::Trace), ..) | (None, true, ..) => "jfs=trace,info",
            (Some(Level::Debug), ..) | (None, _, true, _) => "jfs=debug,info",
            (Some(Level::Warn), ..) | (None, _, _, true) => "warn",
            (Some(Level::Error), ..) => "error",
            _ => "info",
        };
        Log {
            filter: filter.to_owned(),
            id: self.log_id.clone(),
            color: !self.no_color,
            json: false,
        }
    }

    async fn run(self, words: &[OsString], parent: &mut Option<Parent>) -> anyhow::Result<()> {
        if self.pyroscope.is_some() {
            warn!("--pyroscope has no effect: nothing is sent there");
        }
        match self.command {
            Command::Format(command) => command.run().await,
            Command::Config(command) => command.run().await,
            Command::Status(command) => command.run().await,
            Command::Quota(command) => command.run().await,
            Command::Info(command) => command.run().await,
            Command::Rmr(command) => command.run().await,
            Command::Warmup(command) => command.run().await,
            Command::Clone(command) => command.run().await,
            Command::Compact(command) => command.run().await,
            Command::Summary(command) => command.run().await,
            Command::Profile(command) => command.run().await,
            Command::Restore(command) => command.run().await,
            Command::Fsck(command) => command.run().await,
            Command::Gc(command) => command.run().await,
            Command::Destroy(command) => command.run().await,
            Command::Dump(command) => Box::pin(command.run()).await,
            Command::Load(command) => Box::pin(command.run()).await,
            Command::Stats(command) => command.run().await,
            Command::Mount(command) => {
                if parent.is_none() {
                    command.update_fstab(&Self::command(), words);
                }
                command.run(parent).await
            }
            Command::Umount(command) => command.run().await,
            Command::Upgrade(command) => command.run().await,
            Command::Bench(command) => command.run().await,
            Command::Completion(command) => command.run(),
            Command::Man(command) => command.run(),
            Command::Version(command) => command.run(),
        }
    }
}
