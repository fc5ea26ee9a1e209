//! `mount`: mounts a volume and serves it until it is unmounted.
//!
//! [`Mount::run`] is the whole sequence; the other files are its steps. The options themselves are in
//! `options::mount`.

mod embedded_volume;
mod fstab;
mod keeper;
mod mount_point;
mod positional;
mod process_metrics;
mod process_setup;
mod sd_notify;
mod serve;
mod signals;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use crate::options::mount::{MountArgs, Warnings};
use positional::Positional;

/// Mount a volume.
///
/// Without META-URL, mounts the embedded volume of this host, which is created if it does not exist.
#[derive(Args)]
#[command(
    override_usage = "jfs-mount mount [OPTIONS] [META-URL] MOUNTPOINT",
    after_help = "\
Examples:
  Mount in the background:
    jfs-mount mount -d redis://localhost/1 /mnt/jfs
  Mount a directory of the volume, read-only:
    jfs-mount mount redis://localhost/1 /mnt/jfs --subdir /dir --read-only
  Mount the embedded volume of this host:
    jfs-mount mount /mnt/jfs
  Keep the password out of the address:
    META_PASSWORD=... jfs-mount mount redis://localhost/1 /mnt/jfs"
)]
pub struct Mount {
    /// Address of the metadata, unless it is the embedded volume, and the directory to mount at
    #[arg(value_name = "META-URL] [MOUNTPOINT", required = true)]
    positional: Vec<OsString>,
    #[command(flatten)]
    args: MountArgs,
}

/// Shows no arguments: there may be a password in META-URL.
impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount").finish_non_exhaustive()
    }
}

impl Mount {
    /// Refuses options that are wrong for any volume, and returns warnings about the others.
    fn check(&self) -> anyhow::Result<Warnings> {
        let positional = Positional::parse(&self.positional)?;
        if positional.meta_url.is_some() && self.args.process.data_dir.is_some() {
            bail!("--data-dir is for the embedded volume, but META-URL names another");
        }
        self.args.check()
    }

    /// As [`Mount::check`], without the warnings.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.check().map(drop)
    }

    /// Logs the warnings about the options.
    pub fn log_warnings(&self) -> anyhow::Result<()> {
        self.check()?.log();
        Ok(())
    }

    /// Returns whether the program is to continue in the background.
    pub fn is_background(&self) -> bool {
        let forced = std::env::var_os("JFS_FOREGROUND").is_some_and(|value| !value.is_empty());
        self.args.process.background && !forced
    }

    pub fn log_file(&self) -> PathBuf {
        self.args.process.log_file()
    }

    /// Returns whether FUSE debugging (`-o debug`) was requested.
    pub fn wants_debug(&self) -> bool {
        self.args.fuse.options.debug
    }

    /// Applies the process settings. Must run before any other thread is started.
    pub fn set_up_process(&self) {
        process_setup::set_up(self.args.process.disable_transparent_hugepage);
    }
}
