//! `mount`: a volume as a directory of this host.
//!
//! One file for each group of options, which knows what becomes of them; [`Mount::run`] puts it all
//! together.

mod cache;
mod embedded;
mod fstab;
mod fuse;
mod general;
mod home;
mod kernel;
mod meta;
mod metrics;
mod places;
mod point;
mod process;
mod scrape;
mod serve;
mod service;
mod shown;
mod squash;
mod stop;
mod storage;
#[cfg(test)]
mod tests;
mod usage;
mod warnings;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use cache::CacheArgs;
use fuse::FuseArgs;
use general::GeneralArgs;
use meta::{MetaArgs, MetaCacheArgs};
use metrics::MetricsArgs;
use places::Places;
use storage::StorageArgs;
use warnings::Warnings;

/// Mount a volume.
///
/// Without META-URL, this is the embedded volume of this host, which is made if it is not there.
#[derive(Args)]
#[command(override_usage = "jfs-mount mount [OPTIONS] [META-URL] MOUNTPOINT")]
pub struct Mount {
    /// Address of the metadata, if it is not the embedded volume, and the directory to mount at
    #[arg(value_name = "META-URL] [MOUNTPOINT", required = true)]
    places: Vec<OsString>,
    #[command(flatten)]
    general: GeneralArgs,
    #[command(flatten)]
    fuse: FuseArgs,
    #[command(flatten)]
    meta: MetaArgs,
    #[command(flatten)]
    meta_cache: MetaCacheArgs,
    #[command(flatten)]
    storage: StorageArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// There may be a password in the address.
impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount").finish_non_exhaustive()
    }
}

impl Mount {
    /// Refuses what makes no sense, whatever the volume is. The rest is worth a warning.
    fn check(&self) -> anyhow::Result<Warnings> {
        let mut warnings = Warnings::default();
        let places = Places::parse(&self.places)?;
        if places.meta.is_some() && self.general.data_dir.is_some() {
            bail!("--data-dir is for the embedded volume, and META-URL names another");
        }
        self.general.check()?;
        self.fuse.check(&mut warnings)?;
        self.meta.check(&mut warnings)?;
        self.meta_cache.check(&mut warnings);
        self.storage.check(&mut warnings)?;
        self.cache.check(&mut warnings)?;
        self.metrics.check(&mut warnings)?;
        Ok(warnings)
    }

    /// As [`Mount::check`], for who only wants to know.
    pub fn is_sound(&self) -> anyhow::Result<()> {
        self.check().map(drop)
    }

    /// Says what a person should know about the options.
    pub fn warn(&self) -> anyhow::Result<()> {
        self.check()?.log();
        Ok(())
    }

    /// Whether the program is to go on in the background.
    pub fn is_background(&self) -> bool {
        let forced = std::env::var_os("JFS_FOREGROUND").is_some_and(|value| !value.is_empty());
        self.general.background && !forced
    }

    pub fn log_file(&self) -> PathBuf {
        self.general.log_file()
    }

    /// Whether FUSE's own debugging was asked for.
    pub fn wants_debug(&self) -> bool {
        self.fuse.options.debug
    }

    /// Prepares the process, before it has any other thread.
    pub fn settle(&self) {
        process::settle(self.general.disable_transparent_hugepage);
    }

    fn is_read_only(&self) -> bool {
        self.meta.read_only || self.fuse.options.read_only
    }
}
