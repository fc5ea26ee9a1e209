//! The driver and the keeper of its node: when this process serves the mounts, and when another does.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::error::{Error, Result};
use crate::keeper::KeeperEvent;
use crate::mounts::{KeeperLink, Mounts};

/// How long the driver waits at its start for a keeper that may be starting as well.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// The keeper, as the driver's main loop sees it.
pub struct NodeKeeper {
    link: Arc<KeeperLink>,
    /// `None` while it is not connected.
    events: Option<UnboundedReceiver<KeeperEvent>>,
}

impl NodeKeeper {
    /// Connects. Without a keeper the driver works, but its mounts end with it.
    pub async fn connect(socket: &Path) -> Self {
        // The pod: its next container is the same instance, and does not take over from another.
        let instance = std::env::var("POD_UID").unwrap_or_else(|_| std::process::id().to_string());
        let link = KeeperLink::new(socket, &instance);
        let connected = timeout(CONNECT_TIMEOUT, async {
            loop {
                match link.connect().await {
                    Ok(events) => return events,
                    Err(error) => warn!(%error, "waiting for the keeper"),
                }
                sleep(RETRY_INTERVAL).await;
            }
        });
        let events = connected.await.ok();
        if events.is_none() {
            warn!("no keeper: mounts end with this process until it is there");
        }
        Self { link, events }
    }

    pub fn link(&self) -> &Arc<KeeperLink> {
        &self.link
    }

    /// Waits until this process is the one that serves the mounts. The one that does so far stops
    /// first; as a `spare`, waits until there is none.
    pub async fn own(&mut self, spare: bool) -> Result<()> {
        let (Some(client), Some(events)) = (self.link.client(), &mut self.events) else {
            return Ok(());
        };
        client.ask(spare)?;
        loop {
            match events.recv().await {
                Some(KeeperEvent::Yours) => return Ok(()),
                Some(KeeperEvent::Yield) => {}
                Some(KeeperEvent::Refused) => {
                    return Err(Error::Refused(
                        "the driver that serves the mounts did not stop in time; see its log"
                            .to_owned(),
                    ));
                }
                Some(KeeperEvent::Lost) | None => {
                    return Err(Error::Refused("the keeper ended while it was asked".to_owned()));
                }
            }
        }
    }

    /// Waits until another process is ready to serve. Meanwhile, connects again to a keeper that
    /// was lost, and lets it hold the mounts.
    pub async fn asked_to_yield(&mut self, mounts: &Mounts) {
        loop {
            if let Some(events) = &mut self.events {
                match events.recv().await {
                    Some(KeeperEvent::Yield) => return,
                    Some(KeeperEvent::Yours | KeeperEvent::Refused) => {}
                    Some(KeeperEvent::Lost) | None => {
                        warn!("the keeper is gone: mounts end with this process until it is back");
                        self.forget();
                        mounts.set_unprotected().await;
                    }
                }
                continue;
            }
            sleep(RETRY_INTERVAL).await;
            self.events = self.link.connect().await.ok();
            match self.own(false).await {
                Ok(()) if self.events.is_some() => {
                    mounts.keep().await;
                    info!("the keeper holds the mounts again");
                }
                Ok(()) => {}
                Err(error) => {
                    warn!(%error, "the keeper does not hold the mounts");
                    self.forget();
                }
            }
        }
    }

    fn forget(&mut self) {
        self.link.disconnect();
        self.events = None;
    }

    /// Tells the keeper that this process has stopped serving, and waits until it has to serve
    /// again: the process that took over is gone for good, or none did.
    pub async fn stand_by(mut self) -> Result<()> {
        let gone = || Error::Refused("the keeper is gone".to_owned());
        let (Some(client), Some(mut events)) = (self.link.client(), self.events.take()) else {
            return Err(gone());
        };
        if let Err(error) = client.yielded() {
            warn!(%error, "nobody took over: serving again");
            return Ok(());
        }
        client.ask(true)?;
        info!("another process serves the mounts; standing by");
        loop {
            match events.recv().await {
                Some(KeeperEvent::Yours) => {
                    info!("the process that took over is gone: serving again");
                    return Ok(());
                }
                Some(KeeperEvent::Yield | KeeperEvent::Refused) => {}
                Some(KeeperEvent::Lost) | None => return Err(gone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::keeper::server::{Server, Timing};

    /// Its data took longer to store than the keeper waits, and the new driver went away.
    #[tokio::test]
    async fn a_driver_that_yielded_too_late_serves_again() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("private/keeper.sock");
        let (wake, stop) = nix::unistd::pipe().unwrap();
        let path = socket.clone();
        let keeper = std::thread::spawn(move || {
            let timing = Timing { yield_limit: Duration::from_millis(10), ..Timing::default() };
            let mut server = Server::new(&path, timing).unwrap();
            while !server.turn(wake.as_fd(), None).unwrap() {
                server.notices();
            }
        });
        let mut driver = NodeKeeper::connect(&socket).await;
        driver.own(false).await.unwrap();
        let newcomer = KeeperLink::new(&socket, "another pod");
        let mut events = newcomer.connect().await.unwrap();
        newcomer.client().unwrap().ask(false).unwrap();
        assert_eq!(events.recv().await, Some(KeeperEvent::Refused));
        timeout(Duration::from_mins(1), driver.stand_by()).await.unwrap().unwrap();
        drop(stop);
        keeper.join().unwrap();
    }
}
