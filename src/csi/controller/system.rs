//! One file system that the controller has open.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, OnceCell};
use tracing::{info, warn};
use uuid::Uuid;

use crate::csi::records::{self, HOME};
use crate::error::{Error, Result};
use crate::meta::client::{Progress, Removal};
use crate::meta::{Caller, EntryRef, Ino, Meta, Name, Options, Registration, RenameMode};
use crate::mounts::access::Access;
use crate::volume::{Volume, VolumeOptions};

/// The drawer of trees that are to be removed.
const DELETING: &str = "deleting";
/// How often a removal is tried before it is left to the next one who opens the file system, and how
/// long in between.
const TRIES: u32 = 5;
const BETWEEN: Duration = Duration::from_secs(10);

pub struct System {
    pub id: String,
    pub meta: Arc<Meta>,
    access: Arc<Access>,
    /// The data side, once something is removed whose objects must go.
    data: OnceCell<Arc<Volume>>,
    sweeping: AtomicBool,
    sweep: Progress,
    /// Held from looking for neighbours of a new volume until it is one itself.
    pub placing: Mutex<()>,
}

impl System {
    /// Opens the file system. It has no session: it opens no files and holds no locks.
    pub async fn open(access: Arc<Access>) -> Result<Arc<Self>> {
        let options = Options {
            no_background_jobs: true,
            mount_point: "jfs-csi controller".to_owned(),
            ..Options::default()
        };
        let meta = access.connect(options).await?;
        if let Err(error) = meta.start(Registration::None).await {
            let _ = meta.close().await;
            return Err(error);
        }
        if !access.unused().is_empty() {
            warn!(volume = access.name(), names = ?access.unused(), "envs of the Secret that are not used");
        }
        info!(volume = access.name(), place = access.place(), "file system opened");
        let system = Arc::new(Self {
            id: access.id(),
            meta,
            access,
            data: OnceCell::new(),
            sweeping: AtomicBool::new(false),
            sweep: Progress::default(),
            placing: Mutex::new(()),
        });
        system.start_sweep();
        Ok(system)
    }

    /// Closes it; removals are left off, and taken up by whoever opens it next.
    pub async fn close(&self) {
        self.sweep.cancel();
        let closed = match self.data.get() {
            Some(data) => data.close(false).await,
            None => self.meta.close().await,
        };
        if let Err(error) = closed {
            warn!(volume = self.access.name(), %error, "closing the file system");
        }
    }

    /// Moves a tree out of the way at once, and has it removed in the background. Of no use to
    /// anyone who still has a file of it open, and not in the way of anyone else.
    pub async fn discard(self: &Arc<Self>, (dir, name): (Ino, &Name), label: &str) -> Result<()> {
        let deleting = records::made_drawer(&self.meta, DELETING).await?;
        let grave = Name::new(format!("{label}-{}", Uuid::new_v4().simple()))?;
        let (from, to) = (EntryRef::new(dir, name), EntryRef::new(deleting, &grave));
        self.meta.rename(&Caller::root(), from, to, RenameMode::NoReplace).await?;
        self.start_sweep();
        Ok(())
    }

    /// Removes what is to be removed, unless that is being done.
    pub fn start_sweep(self: &Arc<Self>) {
        if self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let system = Arc::clone(self);
        tokio::spawn(async move {
            let mut is_clean = false;
            for attempt in 1..=TRIES {
                match system.sweep_all().await {
                    Ok(()) => is_clean = true,
                    Err(Error::Interrupted) => {}
                    Err(error) => {
                        warn!(volume = system.access.name(), attempt, %error, "removing deleted volumes");
                        tokio::time::sleep(BETWEEN).await;
                        continue;
                    }
                }
                break;
            }
            system.sweeping.store(false, Ordering::Release);
            // What was discarded after the last look and before the flag fell.
            if is_clean && system.has_discarded().await {
                system.start_sweep();
            }
        });
    }

    async fn has_discarded(&self) -> bool {
        let listed = async {
            let Some(deleting) = records::drawer(&self.meta, DELETING).await? else {
                return Ok(false);
            };
            Ok::<_, Error>(!self.meta.entries(deleting, false).await?.is_empty())
        };
        // What cannot be listed now is found by the next one who looks.
        listed.await.unwrap_or(false)
    }

    /// Removes everything that is to be removed. What cannot be removed does not keep the others, and
    /// is tried again later; the first failure is told.
    async fn sweep_all(&self) -> Result<()> {
        let mut outcome = records::tidy(&self.meta).await;
        let Some(deleting) = records::drawer(&self.meta, DELETING).await? else { return outcome };
        let mut stays = HashSet::new();
        loop {
            let entries = self.meta.entries(deleting, false).await?;
            let Some(entry) = entries.into_iter().find(|entry| !stays.contains(&entry.ino)) else {
                return outcome;
            };
            self.open_data().await;
            match self.sweep_one(deleting, &entry.name).await {
                // Another controller is at it, too.
                Ok(()) | Err(Error::NotFound) => {}
                Err(error @ Error::Interrupted) => return Err(error),
                Err(error) => {
                    let volume = self.access.name();
                    warn!(volume, name = %entry.name, %error, "a deleted volume stays for now");
                    stays.insert(entry.ino);
                    outcome = outcome.and(Err(error));
                }
            }
        }
    }

    async fn sweep_one(&self, deleting: Ino, name: &Name) -> Result<()> {
        let before = self.sweep.done();
        let how = Removal { keeps_going: true, ..Removal::default() };
        let tree = EntryRef::new(deleting, name);
        self.meta.remove_tree_with(&Caller::root(), tree, how, &self.sweep).await?;
        // Objects go after the metadata that names them.
        self.meta.idle().await;
        let (volume, entries) = (self.access.name(), self.sweep.done() - before);
        info!(volume, entries, "/{HOME}/{DELETING}/{name} is removed");
        Ok(())
    }

    /// Without it, objects of removed files are left to the clients that have it.
    async fn open_data(&self) {
        let opened = self.data.get_or_try_init(|| async {
            let storage = self.access.overrides();
            Volume::open(
                Arc::clone(&self.meta),
                VolumeOptions { storage, ..VolumeOptions::default() },
            )
            .await
        });
        if let Err(error) = opened.await {
            warn!(volume = self.access.name(), %error, "objects of deleted volumes are left to others");
        }
    }
}
