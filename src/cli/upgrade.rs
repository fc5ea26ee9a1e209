//! `upgrade`: lets another version of this program serve a mount, without unmounting it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use crate::keeper::{KeeperClient, place};

/// Longer than the keeper waits for the new program.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Open files stay open, and programs that use the mount wait for a moment at most. If the new program
/// cannot serve the mount, the running one goes on.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  Let a new program serve a mount:
    jfs-mount upgrade --binary /usr/local/bin/jfs-mount.new /mnt/jfs")]
pub struct Upgrade {
    /// The new program; by default the file that the running one was started from
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The socket of the mount's keeper, instead of the one that the mount point has
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[arg(value_name = "MOUNTPOINT")]
    mount_point: PathBuf,
}

impl Upgrade {
    pub async fn run(self) -> anyhow::Result<()> {
        tokio::task::spawn_blocking(move || self.request()).await?
    }

    fn request(self) -> anyhow::Result<()> {
        let shown = self.mount_point.display();
        let program = match &self.binary {
            Some(file) => {
                let file = file.canonicalize().with_context(|| format!("{}", file.display()))?;
                file.into_os_string().into_string().ok().context("--binary: not valid UTF-8")?
            }
            None => String::new(),
        };
        let socket = match self.socket {
            Some(socket) => socket,
            None => place::socket_of(&self.mount_point).with_context(|| format!("{shown}"))?,
        };
        let instance = format!("upgrade {}", std::process::id());
        let (keeper, _events) = KeeperClient::connect(&socket, &instance).with_context(|| {
            format!(
                "{shown}: no mount of this user with a keeper; mount it again to change its version"
            )
        })?;
        keeper.upgrade(&program, TIMEOUT).with_context(|| format!("{shown}: not upgraded"))?;
        eprintln!("jfs-mount: {shown} is served by the new program");
        Ok(())
    }
}
