//! Options about the process that serves the mount.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use crate::options::home::or_home;

#[derive(Debug, Args)]
pub struct GeneralArgs {
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
    /// Mount even if a FUSE file system is mounted there already: over it
    #[arg(long)]
    pub force: bool,
    /// Note the mount in /etc/fstab, and make /sbin/mount.juicefs
    #[arg(long)]
    pub update_fstab: bool,
    /// Keep the kernel from giving this process huge pages
    #[arg(long)]
    pub disable_transparent_hugepage: bool,
    /// Folder of the embedded volume that is mounted without META-URL [default: what the environment
    /// has as `JFS_DATA_DIR`, else /var/lib/jfs for root, ~/.local/share/jfs for others]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl GeneralArgs {
    pub fn check(&self) -> anyhow::Result<()> {
        if self.background && self.foreground {
            bail!("--background (-d) and --foreground (-f) exclude each other");
        }
        Ok(())
    }

    /// What was said about a process of its own: of no use to a mount within another.
    pub fn of_a_process(&self) -> Vec<&'static str> {
        let said = [
            ("background", self.background),
            ("foreground", self.foreground),
            ("log", self.log.is_some()),
            ("force", self.force),
            ("update-fstab", self.update_fstab),
            ("disable-transparent-hugepage", self.disable_transparent_hugepage),
            ("data-dir", self.data_dir.is_some()),
        ];
        said.into_iter().filter(|(_, said)| *said).map(|(name, _)| name).collect()
    }

    pub fn log_file(&self) -> PathBuf {
        let default = || or_home("/var/log/juicefs.log", ".juicefs/juicefs.log");
        self.log.clone().unwrap_or_else(default)
    }
}
