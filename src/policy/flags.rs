//! The flags by which an administrator relaxes the policy.

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

/// What is allowed. By default nothing is.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What volumes may use")]
pub struct Flags {
    /// Metadata in SQLite and behind unix sockets, and objects in files, below this directory of
    /// the host
    #[arg(long, env = "JFS_CSI_ALLOW_LOCAL_STORAGE", value_name = "DIR")]
    pub allow_local_storage: Option<PathBuf>,
    /// Files (keys, certificates, passwords) that Secrets and addresses name, below this directory
    #[arg(long, env = "JFS_CSI_ALLOW_FILES_BELOW", value_name = "DIR")]
    pub allow_files_below: Option<PathBuf>,
    /// The identity of the driver and of the machine, for buckets without keys
    #[arg(long, env = "JFS_CSI_ALLOW_INSTANCE_CREDENTIALS")]
    pub allow_instance_credentials: bool,
    /// Servers at link-local addresses, and cloud metadata services
    #[arg(long, env = "JFS_CSI_ALLOW_LINK_LOCAL")]
    pub allow_link_local: bool,
    /// Servers in the driver's own network namespace (127.0.0.1)
    #[arg(long, env = "JFS_CSI_ALLOW_LOOPBACK")]
    pub allow_loopback: bool,
    /// Inline (ephemeral) volumes, which the author of a pod defines
    #[arg(long, env = "JFS_CSI_ALLOW_INLINE_VOLUMES")]
    pub allow_inline_volumes: bool,
    /// Mount options of PVs and classes that are otherwise refused: dev, suid, cache-dir
    #[arg(long, env = "JFS_CSI_ALLOW_MOUNT_OPTIONS", value_name = "NAMES", value_delimiter = ',')]
    pub allow_mount_options: Vec<String>,
    /// Mount options and attributes of inline volumes that affect more than the volume's own users,
    /// such as subPath
    #[arg(long, env = "JFS_CSI_ALLOW_INLINE_OPTIONS", value_name = "NAMES", value_delimiter = ',')]
    pub allow_inline_options: Vec<String>,
}

impl Flags {
    /// Refuses flags that make no sense.
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
            if !options::ALLOWABLE.contains(&name.as_str()) {
                return Err(Error::bad_input(format!(
                    "{MOUNT_OPTIONS} {name}: not one of {}",
                    options::ALLOWABLE.join(", ")
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

/// Whether a path is absolute and has no `..`.
pub fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| part != Component::ParentDir)
}
