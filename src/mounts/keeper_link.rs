//! The connection to the keeper of this node, which may be lost and come back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::error::Result;
use crate::keeper::{KeeperClient, KeeperEvent};
use crate::sync::RwLock;

pub struct KeeperLink {
    socket: PathBuf,
    instance: String,
    client: RwLock<Option<Arc<KeeperClient>>>,
}

impl KeeperLink {
    /// Does not connect yet. `instance` identifies this process to the keeper.
    pub fn new(socket: &Path, instance: &str) -> Arc<Self> {
        let (socket, instance) = (socket.to_owned(), instance.to_owned());
        Arc::new(Self { socket, instance, client: RwLock::new(None) })
    }

    /// Connects, and returns what the keeper has to say. Until [`KeeperEvent::Lost`], the connection
    /// is used by all mounts.
    pub async fn connect(self: &Arc<Self>) -> Result<UnboundedReceiver<KeeperEvent>> {
        let link = Arc::clone(self);
        let connected = tokio::task::spawn_blocking(move || {
            let (client, events) = KeeperClient::connect(&link.socket, &link.instance)?;
            *link.client.write() = Some(Arc::new(client));
            Ok(events)
        });
        crate::error::joined("connecting to the keeper", connected).await
    }

    pub fn disconnect(&self) {
        *self.client.write() = None;
    }

    pub fn client(&self) -> Option<Arc<KeeperClient>> {
        self.client.read().clone()
    }
}
