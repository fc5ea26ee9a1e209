//! Options about the process that serves the mount.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use crate::options::default_paths::user_path;

#[derive(Debug, Args)]
pub struct ProcessArgs {
    /// Return once the volume is mounted, and serve it in the background
    #[arg(short = 'd', long)]
    pub background: bool,
    /// Serve in the foreground, as without -d
    #[arg(short = 'f', long, hide = true)]
    pub foreground: bool,
    /// Do not log to syslog; nothing is logged there anyway
    #[arg(long)]
    pub no_syslog: bool,
    /// Log file in the background [default: /var/log/juicefs.log for root, ~/.juicefs/juicefs.log for
    /// others]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Mount over a FUSE file system that is already mounted there
    #[arg(long)]
    pub force: bool,
    /// Write the mount into /etc/fstab, and create /sbin/mount.juicefs
    #[arg(long)]
    pub update_fstab: bool,
    /// Disable transparent huge pages for this process
    #[arg(long)]
    pub disable_transparent_hugepage: bool,
    /// Folder of the embedded volume that is mounted without META-URL [default: `JFS_DATA_DIR` from the
    /// environment, else /var/lib/jfs for root, ~/.local/share/jfs for others]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl ProcessArgs {
    pub fn check(&self) -> anyhow::Result<()> {
        // Without `..`, so that a new option is not forgotten here.
        let Self {
            background,
            foreground,
            no_syslog: _,
            log: _,
            force: _,
            update_fstab: _,
            disable_transparent_hugepage: _,
            data_dir: _,
        } = self;
        if *background && *foreground {
            bail!("--background (-d) and --foreground (-f) exclude each other");
        }
        Ok(())
    }

    /// Returns the names of the given options that only make sense for a process of its own.
    pub fn process_only(&self) -> Vec<&'static str> {
        let options = [
            ("background", self.background),
            ("foreground", self.foreground),
            ("log", self.log.is_some()),
            ("force", self.force),
            ("update-fstab", self.update_fstab),
            ("disable-transparent-hugepage", self.disable_transparent_hugepage),
            ("data-dir", self.data_dir.is_some()),
        ];
        options.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()
    }

    pub fn log_file(&self) -> PathBuf {
        let default = || user_path("/var/log/juicefs.log", ".juicefs/juicefs.log");
        self.log.clone().unwrap_or_else(default)
    }
}
