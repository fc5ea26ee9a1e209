//! Unpublishes PVs: removes their targets, unmounts them and stores written data.

use std::path::Path;
use std::sync::Arc;

use tracing::{info, warn};

use super::mount::Mount;
use super::open_file_systems::OpenFileSystem;
use super::pv::{Pv, PvState};
use super::{Mounts, VolumeId};
use crate::error::{Error, Result, joined};
use crate::meta::client::{Progress, Removal};
use crate::meta::{Caller, EntryRef, Ino, Name};

impl Mounts {
    /// Unpublishes a target. With the last one, unmounts the volume and stores all written data.
    /// Succeeds if the target is not published.
    pub async fn unpublish(&self, volume: &VolumeId, target: &Path) -> Result<()> {
        let (root, path) = (self.targets.clone(), target.to_owned());
        let gone = tokio::task::spawn_blocking(move || root.unbind(&path));
        let Some(pv) = self.find(volume) else {
            return joined("unmounting a target", gone).await;
        };
        joined("unmounting a target", gone).await?;
        let mut state = pv.lock().await;
        state.forget(target);
        if state.targets.is_empty() {
            self.remove_pv(&pv, &mut state).await;
            Ok(())
        } else {
            self.record(&pv, &state).await
        }
    }

    /// Removes all traces of the volume from this node.
    pub(super) async fn remove_pv(&self, pv: &Arc<Pv>, state: &mut PvState) {
        match state.mount.take() {
            Some(mount) if state.ephemeral => self.close_ephemeral_mount(&pv.id, mount).await,
            Some(mount) => drop(self.close_mount(&pv.id, mount).await),
            None if state.ephemeral => {
                self.release_kept(&pv.id);
                warn!(volume = %pv.id, "its directory remains: the driver has no keys after its restart");
            }
            None => self.release_kept(&pv.id),
        }
        let (state_dir, id) = (Arc::clone(&self.state_dir), pv.id.clone());
        let removed = tokio::task::spawn_blocking(move || {
            let point = state_dir.mount_point(&id)?;
            // If it is not empty, it is cleared when the volume is mounted again.
            let _ = std::fs::remove_dir(point);
            state_dir.remove(&id)
        });
        if let Ok(Err(error)) = removed.await {
            warn!(volume = %pv.id, %error, "cannot remove its record");
        }
        let mut table = self.table();
        // Another call may be waiting for the lock.
        if table
            .get(&pv.id)
            .is_some_and(|known| Arc::ptr_eq(known, pv) && Arc::strong_count(pv) <= 2)
        {
            table.remove(&pv.id);
        }
    }

    /// Unmounts. Returns whether all data was stored.
    pub(super) async fn close_mount(&self, id: &VolumeId, mount: Mount) -> bool {
        let (opened, stored) = mount.close().await;
        if let Err(error) = &stored {
            warn!(volume = %id, %error, "unmounted, but not all written data was stored");
        } else {
            info!(volume = %id, "unmounted");
        }
        self.file_systems.release(opened).await;
        stored.is_ok()
    }

    /// Unmounts, and deletes the volume's directory in the background.
    async fn close_ephemeral_mount(&self, id: &VolumeId, mount: Mount) {
        let root = mount.root();
        let (opened, stored) = mount.close().await;
        if let Err(error) = stored {
            warn!(volume = %id, %error, "unmounted, but not all written data was stored");
        }
        let (file_systems, id) = (Arc::clone(&self.file_systems), id.clone());
        self.tasks.spawn(async move {
            if let Err(error) = remove_dir(&opened, root).await {
                warn!(volume = %id, %error, "cannot delete its directory");
            }
            file_systems.release(opened).await;
        });
    }
}

/// Deletes a directory with its content, bypassing the trash.
async fn remove_dir(opened: &OpenFileSystem, dir: Ino) -> Result<()> {
    let meta = opened.volume.meta();
    let paths = meta.paths(dir).await?;
    let Some((parent, name)) = paths.first().and_then(|path| path.rsplit_once('/')) else {
        return Err(Error::NotFound);
    };
    let (parent, _) = meta.resolve(parent).await?;
    let how = Removal { skip_trash: true, ..Removal::default() };
    let name = Name::new(name)?;
    meta.remove_tree_with(&Caller::root(), EntryRef::new(parent, &name), how, &Progress::default())
        .await
}
