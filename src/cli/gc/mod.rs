//! `gc`: finds and deletes what no file needs: leaked objects, and data that waits for deletion.
//!
//! Objects younger than an hour are never touched: a client uploads blocks before it commits them.
//! An older object is deleted only if two scans of the metadata, one before and one after its
//! listing, do not refer to it: a slice may move to another file during a scan.

mod compaction;
mod leaked;
mod objects;
mod pending;
mod report;
mod slice_store;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::bail;
use clap::Args;
use tracing::warn;

use crate::chunk::Store;
use crate::cli::exit::Exit;
use crate::cli::meta_url::VolumeUrl;
use crate::cli::progress::Progress;
use crate::cli::stop_signals::cancelled_by_signals;
use crate::cli::volume_scan::ScannedVolume;
use crate::cli::volume_scan::slices::{Collector, MAX_SLICES};
use crate::meta::client::Progress as Cancel;
use crate::meta::{Meta, Options, Registration, Timestamp};
use objects::Classes;
use report::Report;
use slice_store::CountedSlices;

/// Objects younger than this are never touched.
const MIN_AGE: Duration = Duration::from_hours(1);
/// Overrides [`MIN_AGE`], in seconds, as in the Go client.
const MIN_AGE_VARIABLE: &str = "JFS_GC_SKIPPEDTIME";
const DAY: i64 = 86_400;
/// Slices without references that are listed: 256 MiB.
const MAX_DEAD: usize = 1 << 24;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Show what could be deleted:
    jfs-mount gc redis://localhost/1
  Merge the slices of all files:
    jfs-mount gc redis://localhost/1 --compact
  Delete leaked objects, and what waits for its deletion:
    jfs-mount gc redis://localhost/1 --delete")]
pub struct Gc {
    #[command(flatten)]
    volume: VolumeUrl,
    /// Delete leaked objects and metadata, and replaced slices and removed files whose time is over
    #[arg(long)]
    delete: bool,
    /// Merge small slices into larger ones
    #[arg(long)]
    compact: bool,
    /// Slices and objects deleted at once, and chunks compacted at once
    #[arg(short = 'p', long, value_name = "N", default_value_t = 10)]
    threads: u16,
    /// Print the numbers as JSON
    #[arg(long)]
    json: bool,
    /// Slices held in memory at once
    #[arg(long, value_name = "N", default_value_t = MAX_SLICES, hide = true)]
    max_slices: usize,
}

impl Gc {
    pub async fn run(self) -> anyhow::Result<()> {
        let changes = self.delete || self.compact;
        if changes && self.threads == 0 {
            let error = anyhow::anyhow!("--threads must be above 0 to delete or compact");
            return Err(Exit::Usage.with(error));
        }
        let options = Options {
            read_only: !changes,
            no_background_jobs: true,
            max_deletes: self.threads.into(),
            ..Options::default()
        };
        let meta = Meta::connect(self.volume.resolve()?.expose(), options).await?;
        let volume = ScannedVolume::open(meta)?;
        if changes {
            volume.meta.start(Registration::New).await?;
        }
        let outcome = self.collect(&volume).await;
        volume.meta.idle().await;
        volume.meta.close().await?;
        let report = outcome?;
        report.print(&self)?;
        match report.failed {
            0 => Ok(()),
            failed => bail!("{failed} objects or records were not deleted; run this again"),
        }
    }

    async fn collect(&self, volume: &ScannedVolume) -> anyhow::Result<Report> {
        let (cancel, shown) = (cancelled_by_signals()?, Progress::new());
        let before = newest_to_delete();
        let mut report = Report::default();
        let slices = Arc::new(CountedSlices::new(
            Store::new(Arc::clone(&volume.objects), volume.layout, volume.compression),
            &shown,
        ));
        if self.delete || self.compact {
            volume.meta.attach_slice_store(slices.clone());
        }
        // The time up to which the trash is emptied.
        let edge = Timestamp::now().sec - volume.setting.trash_days * DAY;
        if self.delete {
            self.clean_trash(volume, edge, &shown, &mut report).await?;
            cancel.check()?;
        }
        self.clean_files(volume, &cancel, &shown, &mut report).await?;
        if self.compact {
            self.compact_all(volume, &cancel, &shown, &mut report).await?;
        }
        self.scan(volume, edge, before, &cancel, &shown, &mut report).await?;
        report.compacted_slices = slices.rewritten.count();
        report.compacted_bytes = slices.rewritten.bytes();
        report.pending_slices = slices.deleted.count();
        Ok(report)
    }

    /// Compares the slices with the objects.
    async fn scan(
        &self,
        volume: &ScannedVolume,
        edge: i64,
        before: SystemTime,
        cancel: &Cancel,
        shown: &Progress,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        self.clean_chunks(volume, cancel, report).await?;
        // Before the chunks are scanned: a slice that is dead already and used later on is not
        // just being released.
        let dead = volume.meta.engine().dead_slices(MAX_DEAD).await?;
        let listed = shown.tally("Listed slices", None);
        // The objects of removed files are not leaked either.
        let no_file = HashSet::new();
        let collector = Collector {
            volume,
            progress: cancel,
            skipped: &no_file,
            dead: &dead,
            max_slices: self.max_slices,
            listed: &listed,
            skipped_slices: None,
        };
        let mut passes = collector.passes();
        let mut is_first = true;
        let classes = Classes::new(shown);
        while let Some((pass, collected)) = passes.next().await? {
            report.used_slices += collected.live();
            report.used_bytes += collected.bytes + collected.dead_bytes;
            let mut table = collected.table;
            if self.delete {
                self.delete_dead(volume, pass, &table, &dead, cancel, report).await?;
            }
            if is_first {
                is_first = false;
                self.clean_delayed(volume, edge, cancel, shown, report).await?;
            }
            self.classify(volume, pass, &mut table, before, &classes, cancel, report).await?;
        }
        classes.count_into(report);
        Ok(())
    }
}

/// Objects modified later are never touched.
fn newest_to_delete() -> SystemTime {
    let age = match std::env::var(MIN_AGE_VARIABLE) {
        Err(_) => MIN_AGE,
        Ok(text) if text.is_empty() => MIN_AGE,
        Ok(text) => text.parse().map_or_else(
            |_| {
                warn!("{MIN_AGE_VARIABLE}={text} is no number of seconds");
                MIN_AGE
            },
            Duration::from_secs,
        ),
    };
    SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)
}
