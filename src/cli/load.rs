//! `load`: loads the metadata of a volume from a file into an empty database.

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use tracing::{info, warn};

use crate::cli::dump_file::{self, Format};
use crate::cli::meta_url::VolumeAndFile;
use crate::cli::progress::show_while;
use crate::cli::stop_signals::StopSignals;
use crate::meta::dump::binary::stat;
use crate::meta::dump::{self, Loader, Progress, binary, json};
use crate::meta::engine::{self, Engine};
use crate::meta::record::Setting;
use crate::meta::record::version::Version;

/// Load the metadata of a volume from a file into an empty database.
///
/// Without FILE, from stdin. A name that ends in .gz or .zstd is decompressed. Without META-URL,
/// loads into the embedded volume of this host, which must not exist.
///
/// Do not use the old database and the new one at the same time: they share the objects.
#[derive(Debug, Args)]
#[command(
    override_usage = "jfs-mount load [OPTIONS] [META-URL] [FILE]\n       \
                            jfs-mount load --binary --stat FILE",
    after_help = "\
Examples:
  Move a volume to another engine:
    jfs-mount dump redis://localhost/1 | jfs-mount load tikv://pd1:2379/myjfs
  Load a binary dump:
    jfs-mount load redis://localhost/1 meta.bin --binary
  Show what a binary dump holds:
    jfs-mount load meta.bin --binary --stat"
)]
pub struct Load {
    #[command(flatten)]
    volume: VolumeAndFile,
    /// Read the binary format
    #[arg(long)]
    binary: bool,
    /// Show what a binary dump holds, and load nothing
    #[arg(long, requires = "binary")]
    stat: bool,
    /// With --stat: -1 shows where the segments are, any other number the segment that begins there
    #[arg(long, value_name = "OFFSET", requires = "stat", allow_negative_numbers = true)]
    offset: Option<i64>,
    /// Requests to the metadata at once
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    threads: u16,
    /// Not supported
    #[arg(long, value_name = "FILE", hide = true)]
    encrypt_rsa_key: Option<String>,
    /// Not supported
    #[arg(long, value_name = "NAME", hide = true)]
    encrypt_algo: Option<String>,
}

impl Load {
    pub async fn run(self) -> anyhow::Result<()> {
        if self.encrypt_rsa_key.is_some() || self.encrypt_algo.is_some() {
            bail!(
                "--encrypt-rsa-key and --encrypt-algo are not supported: load an encrypted dump with \
                 the Go client"
            );
        }
        if self.stat {
            return show(self.volume.only_file()?, self.offset);
        }
        let (url, file) = self.volume.resolve()?;
        // Before anything is created.
        let (input, shown) = dump_file::open(file.as_deref())?;
        if let Some(dir) = self.volume.embedded()? {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .with_context(|| format!("{}: the folder of the embedded volume", dir.display()))?;
        }
        let engine = engine::connect(url.expose()).await?;
        let loaded = self.load(&engine, input).await;
        engine.close().await?;
        let setting = loaded.with_context(|| format!("cannot load {shown}"))?;
        if !setting.removed_secrets().is_empty() {
            warn!(
                "{} was removed from the dump: set it with `jfs-mount config`",
                setting.removed_secrets().join(", ")
            );
        }
        info!("load metadata from {shown:?} succeed");
        Ok(())
    }

    async fn load(
        &self,
        engine: &Arc<dyn Engine>,
        input: Box<dyn Read + Send>,
    ) -> anyhow::Result<Setting> {
        dump::prepare(engine.as_ref()).await?;
        let progress = Arc::new(Progress::default());
        let mut signals = StopSignals::listen()?;
        let result = tokio::select! {
            result = self.import(engine, input, &progress) => result,
            signal = signals.next() => Err(anyhow!("{signal}: the load is given up")),
        };
        let Err(error) = result else { return result };
        if let Err(left) = engine.wipe().await {
            warn!(
                "cannot remove what was loaded: {left}; running this again later removes it first"
            );
            return Err(error);
        }
        Err(error.context("nothing was loaded"))
    }

    async fn import(
        &self,
        engine: &Arc<dyn Engine>,
        input: Box<dyn Read + Send>,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Setting> {
        let loader = Loader::new(Arc::clone(engine), self.threads.into());
        let counter = Arc::clone(progress);
        let work = async {
            if self.binary {
                binary::import::import(&loader, input, counter).await
            } else {
                json::import::import(&loader, input, counter).await
            }
        };
        let what = if self.binary { "records" } else { "entries" };
        let setting = show_while(work, || format!("{} {what} loaded", progress.count())).await?;
        info!("{} {what} loaded", progress.count());
        if let Err(refused) = setting.check_version(&Version::client()) {
            warn!("this client must not use the loaded volume: {refused}");
        }
        Ok(setting)
    }
}

/// Shows the footer of a binary dump, or one of its segments.
fn show(path: &Path, offset: Option<i64>) -> anyhow::Result<()> {
    let shown = path.display();
    if Format::of(path) != Format::Plain {
        bail!("--stat needs a file that is not compressed: decompress {shown} first");
    }
    let mut file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    match offset {
        Some(offset) if offset >= 0 => {
            let mut values = Vec::new();
            let show = |value| values.push(value);
            let name = stat::segment(&mut file, offset.unsigned_abs(), show)
                .with_context(|| shown.to_string())?;
            println!("Segment: {name}");
            for value in values {
                println!("Value: {value}");
            }
        }
        _ => {
            let summary = stat::summary(&mut file).with_context(|| shown.to_string())?;
            println!("Backup Version: {}", summary.version);
            print_summary(&summary, offset.is_some());
        }
    }
    Ok(())
}

/// Prints the table of the Go client.
fn print_summary(summary: &stat::Summary, with_offsets: bool) {
    if with_offsets {
        println!("{}", "-".repeat(34));
        println!("{:<10}| {:<10}| {:<10}", "Name", "Num", "Offset");
        println!("{}", "-".repeat(34));
    } else {
        println!("{}", "-".repeat(23));
        println!("{:<10}| {:<10}", "Name", "Num");
        println!("{}", "-".repeat(23));
    }
    for (name, count, offsets) in &summary.segments {
        print!("{name:<10}| {count:<10}|");
        if with_offsets {
            let offsets: Vec<String> = offsets.iter().map(u64::to_string).collect();
            print!(" {:<10}", format!("[{}]", offsets.join(" ")));
        }
        println!();
    }
}
