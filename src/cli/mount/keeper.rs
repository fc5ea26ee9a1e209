//! The keeper of this mount, if it has one: the parent of this process, which starts another if this
//! one dies or is replaced.

use std::path::PathBuf;

use anyhow::{Context, bail};
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{info, warn};

use crate::keeper::supervise::SOCKET_VARIABLE;
use crate::keeper::{KeeperClient, KeeperEvent};
use crate::volume::{KeptSession, Mounted};

/// The name of the only mount that the keeper holds.
const NAME: &str = "mount";

pub struct Keeper {
    client: KeeperClient,
    events: UnboundedReceiver<KeeperEvent>,
}

impl Keeper {
    /// Connects to the keeper that has started this process, if one has.
    pub fn connect() -> anyhow::Result<Option<Self>> {
        let Some(socket) = std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from) else {
            return Ok(None);
        };
        let instance = std::process::id().to_string();
        let (client, events) = KeeperClient::connect(&socket, &instance)?;
        Ok(Some(Self { client, events }))
    }

    /// Returns the mount of the process before.
    pub fn kept(&self) -> anyhow::Result<Option<KeptSession>> {
        Ok(KeptSession::get(&self.client, NAME)?)
    }

    /// Waits until this process serves the mount. Returns the mount, if there was one.
    pub async fn own(&mut self, expects_mount: bool) -> anyhow::Result<Option<KeptSession>> {
        self.client.ask(false)?;
        match self.events.recv().await {
            Some(KeeperEvent::Yours) => {}
            Some(KeeperEvent::Refused) => bail!("the process that serves the mount did not stop"),
            _ => bail!("the keeper is gone"),
        }
        let kept = self.kept().context("the mount of the process before")?;
        if expects_mount && kept.is_none() {
            bail!("the mount was unmounted");
        }
        if let Some(kept) = &kept {
            info!(record = ?kept.record, "continuing with the mount of another process");
        }
        Ok(kept)
    }

    /// Lets the keeper hold the mount. Without, it works but does not survive this process.
    pub fn keep(&self, mounted: &Mounted) {
        match mounted.keep(&self.client, NAME, serde_json::Value::Null) {
            Ok(true) => {}
            Ok(false) => {
                warn!("the mount ends with this process: another one needs Linux 5.1 or newer");
            }
            Err(error) => {
                warn!(%error, "the mount ends with this process: the keeper does not hold it");
            }
        }
    }

    /// Tells the keeper that another process may serve. Fails if none does any more: then this one
    /// has to be started again.
    pub fn hand_over(self) -> crate::Result<()> {
        self.client.yielded()
    }

    /// Tells the keeper that the mount has ended.
    pub fn end(self) {
        if let Err(error) = self.client.remove(NAME) {
            warn!(%error, "cannot tell the keeper that the mount has ended");
        }
    }
}

/// Waits until another process is ready to serve the mount.
pub async fn asked_to_yield(keeper: &mut Option<Keeper>) {
    while let Some(Keeper { events, .. }) = keeper {
        match events.recv().await {
            Some(KeeperEvent::Yield) => return,
            Some(KeeperEvent::Yours | KeeperEvent::Refused) => {}
            Some(KeeperEvent::Lost) | None => {
                warn!("the keeper is gone: the mount ends with this process");
                *keeper = None;
            }
        }
    }
    std::future::pending::<()>().await;
}
