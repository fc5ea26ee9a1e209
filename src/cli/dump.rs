//! `dump`: writes the metadata of a volume to a file.

use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::cli::dump_file::Output;
use crate::cli::meta_url::{VolumeAndFile, check_embedded};
use crate::cli::progress::show_while;
use crate::cli::stop_signals::StopSignals;
use crate::meta::dump::{DumpOptions, Progress, Skipped, binary, json};
use crate::meta::record::Counter;
use crate::meta::{Ino, Meta, Options};

/// Write the metadata of a volume to a file.
///
/// Without FILE, to stdout. A name that ends in .gz or .zstd compresses it. Without META-URL, dumps
/// the embedded volume of this host.
#[derive(Debug, Args)]
#[command(
    override_usage = "jfs-mount dump [OPTIONS] [META-URL] [FILE]",
    after_help = "\
Examples:
  Write a backup that people can read:
    jfs-mount dump redis://localhost/1 meta.json.gz
  Write a smaller one, faster:
    jfs-mount dump redis://localhost/1 meta.bin --binary
  Show the metadata of a directory:
    jfs-mount dump redis://localhost/1 --subdir /a/b"
)]
pub struct Dump {
    #[command(flatten)]
    volume: VolumeAndFile,
    /// Dump only this directory of the volume
    #[arg(long, value_name = "PATH")]
    subdir: Option<String>,
    /// Keep the secret keys of the object storage: the file is a secret then
    #[arg(long)]
    keep_secret_key: bool,
    /// Requests to the metadata at once
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    threads: i64,
    /// No effect: a dump is fast without holding everything in memory
    #[arg(long)]
    fast: bool,
    /// Leave out the files in the trash
    #[arg(long)]
    skip_trash: bool,
    /// Write the binary format; --subdir and --skip-trash have no effect on it
    #[arg(long)]
    binary: bool,
}

impl Dump {
    pub async fn run(self) -> anyhow::Result<()> {
        let (url, file) = self.volume.resolve()?;
        if let Some(dir) = self.volume.embedded()? {
            check_embedded(&dir)?;
        }
        let options = Options { read_only: true, ..Options::default() };
        let meta = Meta::connect(url.expose(), options).await?;
        let dumped = self.dump(&meta, file.as_deref()).await;
        meta.close().await?;
        dumped
    }

    async fn dump(&self, meta: &Arc<Meta>, file: Option<&std::path::Path>) -> anyhow::Result<()> {
        let options = self.options(meta).await?;
        let setting = meta.context().setting();
        if !self.keep_secret_key && !setting.without_store_keys().removed_secrets().is_empty() {
            warn!(
                "the secret keys of the object storage are left out (--keep-secret-key keeps them)"
            );
        }
        let before = allocated(meta).await?;
        let progress = Progress::default();
        let (output, pieces) = Output::start(file)?;
        let total = meta.engine().counter(Counter::TotalInodes).await?;
        let text = || {
            let count = progress.count();
            if self.binary {
                format!("{count} records dumped")
            } else {
                format!("{count} of {total} entries dumped")
            }
        };
        let work = show_while(self.write(meta, &options, pieces, &progress), text);
        let mut signals = StopSignals::listen()?;
        let result = tokio::select! {
            result = work => result,
            signal = signals.next() => Err(anyhow!("{signal}: the dump is given up")),
        };
        let shown = output.shown().to_owned();
        let skipped = output.finish(result).await?;
        report(skipped, before, allocated(meta).await?);
        info!(entries = progress.count(), "Dump metadata into {shown:?} succeed");
        Ok(())
    }

    async fn options(&self, meta: &Meta) -> anyhow::Result<DumpOptions> {
        let threads = usize::try_from(self.threads).unwrap_or(0);
        if threads == 0 {
            warn!("--threads {} is raised to 1", self.threads);
        }
        let root = match &self.subdir {
            Some(path) if !self.binary => {
                let (ino, attr) =
                    meta.resolve(path).await.with_context(|| format!("--subdir {path}"))?;
                if !attr.is_dir() {
                    bail!("--subdir {path} is not a directory");
                }
                ino
            }
            _ => Ino::ROOT,
        };
        Ok(DumpOptions {
            root,
            skip_trash: self.skip_trash,
            keep_secrets: self.keep_secret_key,
            threads: threads.clamp(1, 1000),
        })
    }

    async fn write(
        &self,
        meta: &Meta,
        options: &DumpOptions,
        out: mpsc::Sender<Vec<u8>>,
        progress: &Progress,
    ) -> anyhow::Result<Skipped> {
        let (engine, setting) = (Arc::clone(meta.engine()), meta.context().setting());
        let skipped = if self.binary {
            binary::export::export(engine, &setting, options, out, progress).await
        } else {
            json::export::export(engine, &setting, options, out, progress).await
        };
        Ok(skipped?)
    }
}

/// Returns the next inode and slice id, which grow when other clients create and write files.
async fn allocated(meta: &Meta) -> anyhow::Result<(i64, i64)> {
    let engine = meta.engine();
    Ok((engine.counter(Counter::NextInode).await?, engine.counter(Counter::NextChunk).await?))
}

/// Says how the dump differs from a snapshot.
fn report(skipped: Skipped, before: (i64, i64), after: (i64, i64)) {
    let Skipped { gone, moved, damaged } = skipped;
    if gone > 0 || moved > 0 {
        warn!(
            "{gone} entries were removed and {moved} directories moved during the dump: they are left out"
        );
    }
    if before != after {
        warn!(
            "other clients wrote during the dump (up to {} new inodes, {} new slices): of what they \
             changed, the dump holds some old and some new state",
            after.0.saturating_sub(before.0),
            after.1.saturating_sub(before.1)
        );
    }
    if damaged > 0 {
        warn!("{damaged} damaged records are left out of the dump");
    }
}
