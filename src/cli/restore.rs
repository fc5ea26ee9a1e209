//! `restore`: moves removed files out of the trash.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use tracing::error;

use crate::cli::meta_url::VolumeUrl;
use crate::meta::client::Restored;
use crate::meta::{Meta, Name, Options, Registration};

#[derive(Args)]
#[command(
    override_usage = "jfs-mount restore [OPTIONS] [META-URL] HOUR...",
    after_help = "\
Examples:
  Rebuild the directories that were removed in an hour, within the trash:
    jfs-mount restore redis://localhost/1 2026-11-18-09
  Move everything back to where it was:
    jfs-mount restore redis://localhost/1 2026-11-18-09 --put-back"
)]
pub struct Restore {
    /// Address of the metadata, unless it is the embedded volume, and hours of the trash, in UTC:
    /// directories of .trash such as 2026-11-18-09
    #[arg(value_name = "META-URL] [HOUR", required = true)]
    words: Vec<String>,
    /// Folder of the embedded volume, if META-URL is left out
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Move files back to their original directories
    #[arg(long)]
    put_back: bool,
    /// Entries moved at once
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
}

/// Shows no arguments: there may be a password in META-URL.
impl std::fmt::Debug for Restore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restore").finish_non_exhaustive()
    }
}

impl Restore {
    /// Returns the volume and the hours: the first word is META-URL unless it looks like an hour.
    fn volume_and_hours(&self) -> anyhow::Result<(VolumeUrl, &[String])> {
        let (url, hours) = match self.words.as_slice() {
            [first, hours @ ..] if !is_hour(first) => (Some(first.clone()), hours),
            hours => (None, hours),
        };
        if hours.is_empty() {
            bail!("name the hours of the trash to restore, such as 2026-11-18-09");
        }
        Ok((VolumeUrl::new(url, self.data_dir.clone()), hours))
    }

    /// Goes on with the next hour if one fails.
    pub async fn run(self) -> anyhow::Result<()> {
        if !nix::unistd::geteuid().is_root() {
            bail!("only root may restore files from the trash");
        }
        let (url, hours) = self.volume_and_hours()?;
        let meta = Meta::connect(url.resolve()?.expose(), Options::default()).await?;
        let mut failed = Vec::new();
        meta.start(Registration::New).await?;
        for hour in hours {
            match self.restore(&meta, hour).await {
                Ok(restored) => {
                    println!("{hour}: {}", self.described(restored));
                    if restored.failed > 0 {
                        failed.push(hour.as_str());
                    }
                }
                Err(cause) => {
                    error!("{cause:#}");
                    failed.push(hour);
                }
            }
        }
        meta.close().await?;
        if !failed.is_empty() {
            bail!("not everything was restored of {}", failed.join(", "));
        }
        Ok(())
    }

    async fn restore(&self, meta: &Meta, hour: &str) -> anyhow::Result<Restored> {
        let name = Name::new(hour.as_bytes()).with_context(|| format!("hour {hour:?}"))?;
        let threads = self.threads.into();
        meta.restore(&name, self.put_back, threads)
            .await
            .with_context(|| format!("cannot restore hour {hour} of the trash"))
    }

    fn described(&self, restored: Restored) -> String {
        let Restored { restored, skipped, conflicts, failed } = restored;
        let mut parts = vec![format!("{restored} restored")];
        if !self.put_back {
            parts.push(format!("{skipped} left in the trash (--put-back moves them back)"));
        }
        parts.push(format!("{conflicts} conflicts"));
        parts.push(format!("{failed} failed"));
        parts.join(", ")
    }
}

/// Whether a word has the form of an hour of the trash.
fn is_hour(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    let is_number =
        |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.len() == 4 && parts.iter().all(is_number)
}
