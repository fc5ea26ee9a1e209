//! One file system that the controller has open, and the deletion of trees in it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, OnceCell};
use tracing::{info, warn};
use uuid::Uuid;

use crate::access::Access;
use crate::csi::records::{self, CONTROLLER_DIR};
use crate::error::{Error, Result};
use crate::meta::client::{Progress, Removal};
use crate::meta::{Caller, EntryRef, Ino, Meta, Name, Options, Registration, RenameMode};
use crate::volume::{Volume, VolumeOptions};

/// The directory of trees that wait for their deletion.
const DELETING_DIR: &str = "deleting";
/// How often a deletion is tried before it is left to the next controller that opens the file
/// system, and the pause in between.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(10);

/// An open file system.
pub struct FileSystem {
    pub id: String,
    pub meta: Arc<Meta>,
    access: Arc<Access>,
    /// The data side, opened when the first tree is deleted: its objects are deleted too.
    data: OnceCell<Arc<Volume>>,
    is_deleting: AtomicBool,
    deletion: Progress,
    /// Held while the path of a new volume is checked against those of others, until its record is
    /// written.
    pub path_check: Mutex<()>,
}

impl FileSystem {
    /// Opens the file system without a session: the controller opens no files and holds no locks.
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
        let (name, unused) = (access.name(), access.unused_variables());
        if !unused.is_empty() {
            warn!(file_system = name, ?unused, "the Secret has envs that are not used");
        }
        info!(file_system = name, metadata = access.masked_address(), "opened");
        let file_system = Arc::new(Self {
            id: access.id(),
            meta,
            access,
            data: OnceCell::new(),
            is_deleting: AtomicBool::new(false),
            deletion: Progress::default(),
            path_check: Mutex::new(()),
        });
        file_system.start_deleting();
        Ok(file_system)
    }

    /// Closes the file system. Deletions stop, and continue when it is opened again.
    pub async fn close(&self) {
        self.deletion.cancel();
        let closed = match self.data.get() {
            Some(data) => data.close(false).await,
            None => self.meta.close().await,
        };
        if let Err(error) = closed {
            warn!(file_system = self.access.name(), %error, "cannot close the file system");
        }
    }

    /// Moves a tree out of the way at once and deletes it in the background. Its path is free
    /// immediately, and files that are still open in it stop working once they are deleted.
    pub async fn delete_in_background(
        self: &Arc<Self>,
        parent: Ino,
        name: &Name,
        label: &str,
    ) -> Result<()> {
        let deleting = records::ensure_directory(&self.meta, DELETING_DIR).await?;
        let unique = Name::new(format!("{label}-{}", Uuid::new_v4().simple()))?;
        let (from, to) = (EntryRef::new(parent, name), EntryRef::new(deleting, &unique));
        self.meta.rename(&Caller::root(), from, to, RenameMode::NoReplace).await?;
        self.start_deleting();
        Ok(())
    }

    /// Starts to delete all waiting trees, unless that is running.
    pub fn start_deleting(self: &Arc<Self>) {
        if self.is_deleting.swap(true, Ordering::AcqRel) {
            return;
        }
        let file_system = Arc::clone(self);
        tokio::spawn(async move {
            let mut is_done = false;
            for attempt in 1..=ATTEMPTS {
                match file_system.delete_all().await {
                    Ok(()) => is_done = true,
                    Err(Error::Interrupted) => {}
                    Err(error) => {
                        let file_system = file_system.access.name();
                        warn!(file_system, attempt, %error, "cannot delete all trees yet");
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                }
                break;
            }
            file_system.is_deleting.store(false, Ordering::Release);
            // A tree may have been added after the last listing and before the flag was cleared.
            if is_done && file_system.has_waiting().await {
                file_system.start_deleting();
            }
        });
    }

    async fn has_waiting(&self) -> bool {
        let listed = async {
            let Some(deleting) = records::find_directory(&self.meta, DELETING_DIR).await? else {
                return Ok(false);
            };
            Ok::<_, Error>(!self.meta.entries(deleting, false).await?.is_empty())
        };
        // What cannot be listed now is found at the next deletion or start.
        listed.await.unwrap_or(false)
    }

    /// Deletes all waiting trees. One that cannot be deleted does not stop the others and is tried
    /// again later. Returns the first error.
    async fn delete_all(&self) -> Result<()> {
        let mut outcome = records::remove_leftovers(&self.meta).await;
        let Some(deleting) = records::find_directory(&self.meta, DELETING_DIR).await? else {
            return outcome;
        };
        let mut failed = HashSet::new();
        loop {
            let entries = self.meta.entries(deleting, false).await?;
            let Some(entry) = entries.into_iter().find(|entry| !failed.contains(&entry.ino)) else {
                return outcome;
            };
            self.open_data().await;
            match self.delete_one(deleting, &entry.name).await {
                // Another controller has deleted it meanwhile.
                Ok(()) | Err(Error::NotFound) => {}
                Err(error @ Error::Interrupted) => return Err(error),
                Err(error) => {
                    let file_system = self.access.name();
                    warn!(file_system, name = %entry.name, %error, "cannot delete a tree yet");
                    failed.insert(entry.ino);
                    outcome = outcome.and(Err(error));
                }
            }
        }
    }

    async fn delete_one(&self, deleting: Ino, name: &Name) -> Result<()> {
        let before = self.deletion.done();
        let how = Removal { keeps_going: true, ..Removal::default() };
        let tree = EntryRef::new(deleting, name);
        self.meta.remove_tree_with(&Caller::root(), tree, how, &self.deletion).await?;
        // Wait for the objects, which are deleted after the metadata that refers to them.
        self.meta.idle().await;
        let (file_system, entries) = (self.access.name(), self.deletion.done() - before);
        info!(file_system, entries, "deleted /{CONTROLLER_DIR}/{DELETING_DIR}/{name}");
        Ok(())
    }

    /// Opens the data side. Without it, the objects of deleted files are left to clients that have
    /// it.
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
            let file_system = self.access.name();
            warn!(file_system, %error, "no object store: other clients delete the objects");
        }
    }
}
