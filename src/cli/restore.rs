//! `restore`: moves removed files out of the trash.

use anyhow::{Context, bail};
use clap::Args;
use tracing::error;

use crate::meta::client::Restored;
use crate::meta::{Meta, Name, Options, Registration};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Rebuild the directories that were removed in an hour, within the trash:
    jfs-mount restore redis://localhost/1 2026-11-18-09
  Move everything back to where it was:
    jfs-mount restore redis://localhost/1 2026-11-18-09 --put-back")]
pub struct Restore {
    /// Address of the metadata
    #[arg(value_name = "META-URL")]
    meta: String,
    /// Hours of the trash, in UTC: directories of .trash such as 2026-11-18-09
    #[arg(value_name = "HOUR", required = true)]
    hours: Vec<String>,
    /// Move files back to their original directories
    #[arg(long)]
    put_back: bool,
    /// Entries moved at once
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
}

impl Restore {
    /// Goes on with the next hour if one fails.
    pub async fn run(self) -> anyhow::Result<()> {
        if !nix::unistd::geteuid().is_root() {
            bail!("only root may restore files from the trash");
        }
        let meta = Meta::connect(&self.meta, Options::default()).await?;
        let mut failed = Vec::new();
        meta.start(Registration::New).await?;
        for hour in &self.hours {
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
