//! `bench`: measures the speed of a directory and prints the Go client's report.

mod files;
mod report;

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;
use tracing::warn;

use super::progress::Progress;
use super::stats_file;
use crate::options::sizes::{parse_block_size as parse_kibibytes, parse_mebibytes};
use files::{Files, Work};
use report::{Item, Report};

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Measure a directory with four threads:
    jfs-mount bench /mnt/jfs -p 4
  Measure only small files:
    jfs-mount bench /mnt/jfs --big-file-size 0")]
pub struct Bench {
    /// The directory to write to; everything is removed at the end
    path: PathBuf,
    /// Size of each read and write, in MiB unless a unit is given
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = parse_mebibytes)]
    block_size: u64,
    /// Size of each big file, in MiB unless a unit is given; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_mebibytes)]
    big_file_size: u64,
    /// Size of each small file, in KiB unless a unit is given; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = parse_kibibytes)]
    small_file_size: u64,
    /// Small files of each thread
    #[arg(long, value_name = "N", default_value_t = 100)]
    small_file_count: u64,
    /// Threads at the same time
    #[arg(short = 'p', long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Bench {
    pub async fn run(self) -> anyhow::Result<()> {
        tokio::task::spawn_blocking(move || self.measure()).await?
    }

    fn measure(&self) -> anyhow::Result<()> {
        if self.block_size == 0 || self.threads == 0 {
            bail!("--block-size and --threads cannot be 0");
        }
        if self.big().is_none() && self.small().is_none() {
            bail!("--big-file-size and --small-file-size are 0: there is nothing to do");
        }
        let stamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = std::path::absolute(&self.path)?;
        let dir = path.join(format!("__juicefs_benchmark_{stamp}__"));
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let before = stats_file::find(&path);
        let measured = self.items(&dir);
        let cleaned = fs::remove_dir_all(&dir);
        let mut report = Report {
            block_size: self.block_size,
            big_file_size: self.big_file_size,
            small_file_size: self.small_file_size,
            small_file_count: self.small_file_count,
            threads: self.threads,
            items: measured?,
            process: None,
        };
        if let Err(error) = cleaned {
            warn!("cannot remove {}: {error}", dir.display());
        }
        if let (Some(before), Some(after)) = (before, stats_file::find(&path)) {
            report.add(&before, &after);
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report.json())?);
        } else {
            print!("{}", report.text(io::stdout().is_terminal()));
        }
        Ok(())
    }

    fn items(&self, dir: &Path) -> anyhow::Result<Vec<Item>> {
        let progress = Progress::new();
        let mut items = Vec::new();
        drop_caches();
        if let Some(big) = self.big() {
            let seconds =
                big.run(dir, Work::Write, &progress.count("Write big blocks", big.blocks()))?;
            items.push(Item::big("Write big file", "bigwr", &big, seconds));
            drop_caches();
            let seconds =
                big.run(dir, Work::Read, &progress.count("Read big blocks", big.blocks()))?;
            items.push(Item::big("Read big file", "bigrd", &big, seconds));
        }
        if let Some(small) = self.small() {
            let bar = progress.count("Write small blocks", small.blocks());
            let seconds = small.run(dir, Work::Write, &bar)?;
            items.push(Item::small("Write small file", "smallwr", &small, seconds));
            drop_caches();
            let bar = progress.count("Read small blocks", small.blocks());
            let seconds = small.run(dir, Work::Read, &bar)?;
            items.push(Item::small("Read small file", "smallrd", &small, seconds));
            drop_caches();
            let bar = progress.count("Stat small files", small.total());
            let seconds = small.run(dir, Work::Stat, &bar)?;
            items.push(Item::small("Stat file", "stat", &small, seconds));
        }
        Ok(items)
    }

    fn big(&self) -> Option<Files> {
        Files::new("bigfile", self.big_file_size, 1, self.block_size, self.threads)
    }

    fn small(&self) -> Option<Files> {
        let (size, count) = (self.small_file_size, self.small_file_count);
        Files::new("smallfile", size, count, self.block_size, self.threads)
    }
}

/// Drops the page cache, so that files just written are not read from memory.
fn drop_caches() {
    if std::env::var_os("SKIP_DROP_CACHES").is_some_and(|value| value == "true") {
        return;
    }
    if let Err(error) = fs::write(DROP_CACHES, "3") {
        warn!("cannot drop the page cache: {DROP_CACHES}: {error}");
    }
}
