//! One PV on this node: its mount, if there is one, and its targets.

use std::path::{Path, PathBuf};

use tokio::sync::{Mutex, MutexGuard};

use super::mount::Mount;
use super::state_dir::{PvRecord, Target};
use super::targets::{self, TargetRoot};
use super::volume_id::VolumeId;
use crate::error::{Result, joined};

/// A published PV.
pub struct Pv {
    pub id: VolumeId,
    state: Mutex<PvState>,
}

/// The state of a PV, guarded by its lock.
#[derive(Default)]
pub struct PvState {
    pub mount: Option<Mount>,
    pub targets: Vec<Target>,
    pub ephemeral: bool,
    /// Whether an earlier process served it.
    pub inherited: bool,
}

impl Pv {
    pub fn new(id: VolumeId) -> Self {
        Self { id, state: Mutex::default() }
    }

    /// Restores a PV from the record of an earlier process.
    pub fn from_record(id: VolumeId, record: PvRecord) -> Self {
        let PvRecord { targets, ephemeral, .. } = record;
        let state = PvState { mount: None, targets, ephemeral, inherited: true };
        Self { id, state: Mutex::new(state) }
    }

    /// Waits for the lock.
    pub async fn lock(&self) -> MutexGuard<'_, PvState> {
        self.state.lock().await
    }

    /// Returns the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, PvState>> {
        self.state.try_lock().ok()
    }
}

impl PvState {
    pub fn target(&self, path: &Path) -> Option<&Target> {
        self.targets.iter().find(|target| target.path == path)
    }

    pub fn forget(&mut self, path: &Path) {
        self.targets.retain(|target| target.path != path);
    }

    pub fn to_record(&self, id: &VolumeId, point: PathBuf) -> PvRecord {
        PvRecord {
            volume: id.to_string(),
            point,
            session: self.mount.as_ref().map_or(0, |mount| mount.meta().context().sid().0),
            ephemeral: self.ephemeral,
            targets: self.targets.clone(),
        }
    }

    /// Bind-mounts the PV at the target, unless it is mounted there already. Returns whether it was
    /// not.
    pub async fn bind(&self, root: &TargetRoot, target: &Target) -> Result<bool> {
        let Some(mount) = &self.mount else { return Ok(false) };
        let (point, device) = (mount.point().to_owned(), mount.device().to_owned());
        let (root, target) = (root.clone(), target.clone());
        let bound = tokio::task::spawn_blocking(move || {
            if targets::device_at(&target.path).is_some_and(|found| found == device) {
                return Ok(false);
            }
            root.replace(&point, &target.path, target.read_only).map(|()| true)
        });
        joined("mounting a target", bound).await
    }
}
