//! Continues with the mounts of an earlier process, which a keeper has held, and leaves them to the
//! next.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::mount::Mount;
use super::pv::Pv;
use super::{Mounts, PublishRequest, VolumeId};
use crate::error::{Error, Result};
use crate::fuse::{Unmount, mounted_at, mounts_below, unmount};
use crate::meta::Meta;
use crate::volume::KeptSession;

/// Decodes the request of a mount as the earlier process stored it.
pub type DecodeOrigin<'a> = &'a (dyn Fn(&Value) -> Result<PublishRequest> + Send + Sync);

impl Mounts {
    /// Whether this process can read the records of all mounts that the keeper holds. To be checked
    /// before the process that serves them is asked to stop.
    pub fn can_continue(&self, decode: DecodeOrigin<'_>) -> Result<bool> {
        let is_readable = |id: &VolumeId| {
            let read = self.kept(id).and_then(|kept| {
                kept.map_or(Ok(()), |kept| decode(&kept.record.request).map(drop))
            });
            if let Err(error) = &read {
                warn!(volume = %id, %error, "cannot continue with its mount");
            }
            read.is_ok()
        };
        // All of them, to log each.
        Ok(self.state_dir.all()?.iter().filter(|(id, _)| !is_readable(id)).count() == 0)
    }

    /// Continues with all mounts that the keeper holds, when no other process serves them. One that
    /// cannot be continued is mounted again when kubelet publishes it. Returns the volumes.
    pub async fn adopt(&self, decode: DecodeOrigin<'_>) -> Result<Vec<VolumeId>> {
        self.inherit()?;
        let adopted = self.all().into_iter().map(|pv| async move {
            match self.adopt_pv(&pv, decode).await {
                Ok(true) => {
                    info!(volume = %pv.id, "continuing with its mount");
                    Some(pv)
                }
                Ok(false) => None,
                Err(error) => {
                    error!(volume = %pv.id, %error, "cannot continue with its mount");
                    None
                }
            }
        });
        let adopted: Vec<Arc<Pv>> = join_all(adopted).await.into_iter().flatten().collect();
        self.adopt_removed_files(&adopted).await;
        self.release_unknown();
        Ok(adopted.iter().map(|pv| pv.id.clone()).collect())
    }

    /// Takes over what an earlier process published. Its targets stay, although nothing serves
    /// them, until they are published again or unpublished: without a mount, a pod would write into
    /// a directory of the node. Its mounts in the state directory are unmounted, unless the keeper
    /// holds them.
    fn inherit(&self) -> Result<()> {
        let held = match self.shared.keeper.as_ref().and_then(|keeper| keeper.client()) {
            Some(keeper) => keeper.names()?,
            None => Vec::new(),
        };
        let held: Vec<PathBuf> = held
            .iter()
            .filter_map(|name| self.state_dir.mount_point(&VolumeId::new(name).ok()?).ok())
            .collect();
        for point in mounts_below(self.state_dir.mount_points_dir()) {
            if held.contains(&point) {
                continue;
            }
            if let Err(error) = unmount(&point, Unmount::Lazy) {
                let point = point.display();
                warn!(%point, %error, "cannot unmount a mount of an earlier process");
            }
        }
        for (id, record) in self.state_dir.all()? {
            info!(volume = %id, targets = record.targets.len(), "published by an earlier process");
            self.table().insert(id.clone(), Arc::new(Pv::from_record(id, record)));
        }
        Ok(())
    }

    /// Lets a keeper that came back hold all mounts again.
    pub async fn keep(&self) {
        for pv in self.all() {
            if let Some(mount) = &pv.lock().await.mount {
                mount.keep();
            }
        }
    }

    /// Records that the keeper is gone: no mount survives this process any more.
    pub async fn set_unprotected(&self) {
        for pv in self.all() {
            if let Some(mount) = &pv.lock().await.mount {
                mount.set_unprotected();
            }
        }
    }

    /// Stores the written data of all volumes and stops serving them. What the keeper holds waits
    /// for the next process; the rest is unmounted. Returns how many volumes could not store
    /// everything within `patience`.
    pub async fn hand_over(&self, patience: Duration) -> usize {
        let handed_over = self.all().into_iter().map(|pv| async move {
            let stopped = timeout(patience, async {
                let mut state = pv.lock().await;
                match state.mount.take() {
                    Some(mount) if mount.is_kept() => self.hand_mount_over(&pv.id, mount).await,
                    Some(mount) => self.close_mount(&pv.id, mount).await,
                    None => true,
                }
            });
            stopped.await.unwrap_or_else(|_| {
                warn!(volume = %pv.id, "not all data was stored within {patience:?}");
                false
            })
        });
        let handed_over = join_all(handed_over).await;
        self.tasks.close();
        if timeout(patience, self.tasks.wait()).await.is_err() {
            warn!("directories of ephemeral volumes remain: not deleted within {patience:?}");
        }
        handed_over.into_iter().filter(|is_stored| !is_stored).count()
    }

    /// Has the keeper release mounts of volumes that are not published any more.
    fn release_unknown(&self) {
        let Some(keeper) = self.shared.keeper.as_ref().and_then(|keeper| keeper.client()) else {
            return;
        };
        let names = keeper.names().unwrap_or_default();
        let ids = names.iter().filter_map(|name| VolumeId::new(name).ok());
        for id in ids.filter(|id| self.find(id).is_none()) {
            info!(volume = %id, "releasing its mount: it is not published any more");
            self.release_kept(&id);
        }
    }

    /// Has the keeper release the mount of a volume that this process does not serve.
    pub(super) fn release_kept(&self, id: &VolumeId) {
        let Some(keeper) = self.shared.keeper.as_ref().and_then(|keeper| keeper.client()) else {
            return;
        };
        let released = keeper.remove(id.as_str()).and_then(|()| {
            let point = self.state_dir.mount_point(id)?;
            if mounted_at(&point).is_some() { unmount(&point, Unmount::Lazy) } else { Ok(()) }
        });
        if let Err(error) = released {
            warn!(volume = %id, %error, "cannot release its mount");
        }
    }

    fn kept(&self, id: &VolumeId) -> Result<Option<KeptSession>> {
        match self.shared.keeper.as_ref().and_then(|keeper| keeper.client()) {
            Some(keeper) => KeptSession::get(&keeper, id.as_str()),
            None => Ok(None),
        }
    }

    async fn adopt_pv(&self, pv: &Pv, decode: DecodeOrigin<'_>) -> Result<bool> {
        let mut state = pv.lock().await;
        let Some(kept) = self.kept(&pv.id)? else { return Ok(false) };
        let mut request = decode(&kept.record.request)?;
        if request.volume != pv.id {
            return Err(Error::damaged(&pv.id, "it is the record of another volume"));
        }
        self.options.cache.apply_to(&mut request.args)?;
        let resume = Some(kept.record.sid());
        let opened = self
            .file_systems
            .acquire(&request.volume, &request.access, &request.args, resume)
            .await?;
        match Mount::adopt(opened, &request, &self.shared, kept).await {
            Ok(mount) => {
                state.mount = Some(mount);
                state.inherited = false;
                Ok(true)
            }
            Err((opened, error)) => {
                self.file_systems.hand_over(opened).await;
                Err(error)
            }
        }
    }

    /// One metadata client may serve several volumes, so this comes after all of them: a removed
    /// file that none of them has open is deleted.
    async fn adopt_removed_files(&self, adopted: &[Arc<Pv>]) {
        let mut metas: Vec<Arc<Meta>> = Vec::new();
        for pv in adopted {
            let state = pv.lock().await;
            if let Some(mount) = &state.mount
                && !metas.iter().any(|known| Arc::ptr_eq(known, mount.meta()))
            {
                metas.push(Arc::clone(mount.meta()));
            }
        }
        for meta in metas {
            if let Err(error) = meta.adopt_removed_files().await {
                warn!(%error, "cannot tell which removed files are still open");
            }
        }
    }

    async fn hand_mount_over(&self, id: &VolumeId, mount: Mount) -> bool {
        let (opened, stored) = mount.hand_over().await;
        if let Err(error) = &stored {
            warn!(volume = %id, %error, "handed over, but not all written data was stored");
        }
        self.file_systems.hand_over(opened).await;
        stored.is_ok()
    }
}
