//! What an administrator opens, and the names of the flags.

use std::path::{Component, Path, PathBuf};

use clap::Args;

use super::options;
use crate::error::{Error, Result};

pub const LOCAL_STORAGE: &str = "--allow-local-storage";
pub const FILES_BELOW: &str = "--allow-files-below";
pub const INSTANCE_CREDENTIALS: &str = "--allow-instance-credentials";
pub const LINK_LOCAL: &str = "--allow-link-local";
pub const LOOPBACK: &str = "--allow-loopback";
pub const INLINE_VOLUMES: &str = "--allow-inline-volumes";
pub const MOUNT_OPTIONS: &str = "--allow-mount-options";
pub const INLINE_OPTIONS: &str = "--allow-inline-options";

/// Everything here is closed unless it is said.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What volumes may name")]
pub struct Flags {
    /// Metadata in SQLite and behind unix sockets, and objects in files, below this directory of the
    /// host
    #[arg(long, env = "JFS_CSI_ALLOW_LOCAL_STORAGE", value_name = "DIR")]
    pub allow_local_storage: Option<PathBuf>,
    /// Files (keys, certificates, passwords) that Secrets and addresses name, below this directory
    #[arg(long, env = "JFS_CSI_ALLOW_FILES_BELOW", value_name = "DIR")]
    pub allow_files_below: Option<PathBuf>,
    /// The identity of the driver and of the machine for buckets without keys
    #[arg(long, env = "JFS_CSI_ALLOW_INSTANCE_CREDENTIALS")]
    pub allow_instance_credentials: bool,
    /// Servers at link-local addresses and where clouds tell machines about themselves
    #[arg(long, env = "JFS_CSI_ALLOW_LINK_LOCAL")]
    pub allow_link_local: bool,
    /// Servers at addresses of the driver's own network namespace (127.0.0.1)
    #[arg(long, env = "JFS_CSI_ALLOW_LOOPBACK")]
    pub allow_loopback: bool,
    /// Inline (ephemeral) volumes, which whoever makes a pod defines
    #[arg(long, env = "JFS_CSI_ALLOW_INLINE_VOLUMES")]
    pub allow_inline_volumes: bool,
    /// Mount options of PVs and classes that are not for everybody: dev, suid, cache-dir
    #[arg(long, env = "JFS_CSI_ALLOW_MOUNT_OPTIONS", value_name = "NAMES", value_delimiter = ',')]
    pub allow_mount_options: Vec<String>,
    /// Mount options and attributes of inline volumes beyond those that concern nobody else, such as
    /// subPath
    #[arg(long, env = "JFS_CSI_ALLOW_INLINE_OPTIONS", value_name = "NAMES", value_delimiter = ',')]
    pub allow_inline_options: Vec<String>,
}

impl Flags {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        for (flag, dir) in
            [(LOCAL_STORAGE, &self.allow_local_storage), (FILES_BELOW, &self.allow_files_below)]
        {
            if let Some(dir) = dir
                && !is_plain(dir)
            {
                let dir = dir.display();
                return Err(Error::bad_input(format!("{flag} {dir}: not an absolute path")));
            }
        }
        for name in &self.allow_mount_options {
            if !options::OPENABLE.contains(&name.as_str()) {
                return Err(Error::bad_input(format!(
                    "{MOUNT_OPTIONS} {name}: there are {}",
                    options::OPENABLE.join(", ")
                )));
            }
        }
        for name in &self.allow_inline_options {
            if !options::is_known(name) {
                return Err(Error::bad_input(format!(
                    "{INLINE_OPTIONS} {name}: neither a mount option nor subPath nor subdir"
                )));
            }
        }
        Ok(())
    }
}

/// Whether a path says where it leads: from the root, and never upwards.
pub fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| part != Component::ParentDir)
}
