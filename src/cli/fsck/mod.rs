//! `fsck`: compares the objects of a volume with its metadata, and checks and repairs the metadata
//! of directories.

mod block_check;
mod broken_files;
mod file_check;
mod report;
mod tree_check;
mod volume_check;

use anyhow::bail;
use clap::Args;

use crate::cli::exit::Exit;
use crate::cli::meta_url::VolumeUrl;
use crate::cli::progress::Progress;
use crate::cli::stop_signals::cancelled_by_signals;
use crate::cli::volume_scan::ScannedVolume;
use crate::cli::volume_scan::slices::MAX_SLICES;
use crate::meta::client::check::CheckOptions;
use crate::meta::{Meta, Options};
use report::Report;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Find lost objects and the files that need them:
    jfs-mount fsck redis://localhost/1
  Read every block too:
    jfs-mount fsck redis://localhost/1 --deep
  Check the directories of a tree and correct their link counts and usage:
    jfs-mount fsck redis://localhost/1 --path /d1 --recursive --repair --sync-dir-stat")]
pub struct Fsck {
    #[command(flatten)]
    volume: VolumeUrl,
    /// Check this path of the volume, its directories and the objects of its files
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Repair the path
    #[arg(long, requires = "path")]
    repair: bool,
    /// Check or repair everything below the path
    #[arg(short, long)]
    recursive: bool,
    /// Compare the usage of each directory with its entries; with --repair, correct it
    #[arg(long)]
    sync_dir_stat: bool,
    /// Mode of directories whose attr is rebuilt, in octal
    #[arg(long, value_name = "MODE", default_value = "0755", value_parser = octal)]
    repair_dir_mode: u16,
    /// Read and decode every block, and verify its checksum if the store has one
    #[arg(long)]
    deep: bool,
    /// Requests to the object store at once
    #[arg(short = 'p', long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Slices held in memory at once
    #[arg(long, value_name = "N", default_value_t = MAX_SLICES, hide = true)]
    max_slices: usize,
}

impl Fsck {
    pub async fn run(self) -> anyhow::Result<()> {
        if let Some(path) = self.path.as_ref().filter(|path| !path.starts_with('/')) {
            let error = anyhow::anyhow!("--path {path} must be absolute, from the volume's root");
            return Err(Exit::Usage.with(error));
        }
        let options = Options { read_only: !self.repair, ..Options::default() };
        let meta = Meta::connect(self.volume.resolve()?.expose(), options).await?;
        let volume = ScannedVolume::open(meta)?;
        let report = Report::new(self.json);
        let outcome = self.check(&volume, &report).await;
        let sessions = volume.meta.engine().sessions().await.map_or(0, |all| all.len());
        volume.meta.close().await?;
        outcome?;
        report.print(sessions)?;
        match report.verdict() {
            Some(what) => bail!("{what}"),
            None => Ok(()),
        }
    }

    async fn check(&self, volume: &ScannedVolume, report: &Report) -> anyhow::Result<()> {
        let (cancel, shown) = (cancelled_by_signals()?, Progress::new());
        match &self.path {
            Some(path) => self.check_path(volume, path, report, &cancel, &shown).await,
            None => self.check_volume(volume, report, &cancel, &shown).await,
        }
    }

    fn check_options(&self) -> CheckOptions {
        CheckOptions {
            repair: self.repair,
            recursive: self.recursive,
            sync_dir_stat: self.sync_dir_stat,
            dir_mode: self.repair_dir_mode,
        }
    }
}

fn octal(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("{text} is no mode in octal, such as 0755")),
    }
}
