//! `mount`: a volume as a directory of this host.
//!
//! One file for each group of options, which knows what becomes of them; [`Mount::run`] puts it all
//! together.

mod embedded;
mod fstab;
mod places;
mod point;
mod process;
mod serve;
mod service;
mod stop;
#[cfg(test)]
mod tests;
mod usage;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use crate::options::mount::{MountArgs, Warnings};
use places::Places;

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
    args: MountArgs,
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
        let places = Places::parse(&self.places)?;
        if places.meta.is_some() && self.args.general.data_dir.is_some() {
            bail!("--data-dir is for the embedded volume, and META-URL names another");
        }
        self.args.check()
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
        self.args.general.background && !forced
    }

    pub fn log_file(&self) -> PathBuf {
        self.args.general.log_file()
    }

    /// Whether FUSE's own debugging was asked for.
    pub fn wants_debug(&self) -> bool {
        self.args.fuse.options.debug
    }

    /// Prepares the process, before it has any other thread.
    pub fn settle(&self) {
        process::settle(self.args.general.disable_transparent_hugepage);
    }
}
