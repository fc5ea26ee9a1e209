//! Publishes PVs: mounts them, and bind-mounts them at targets.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tracing::{info, warn};

use super::mount::Mount;
use super::pv::{Pv, PvState};
use super::state_dir::Target;
use super::{Mounts, VolumeId};
use crate::access::Access;
use crate::error::{Error, Result, joined};
use crate::options::mount::MountArgs;
use crate::vfs::Bandwidth;

/// A volume to be published at a target.
pub struct PublishRequest {
    pub volume: VolumeId,
    pub target: PathBuf,
    pub access: Access,
    /// The mount options, if it is not mounted yet.
    pub args: MountArgs,
    /// The directory in the file system to mount; created if it is missing.
    pub path: String,
    /// Whether this target is read-only.
    pub read_only: bool,
    /// Whether it may have no other target on this node.
    pub exclusive: bool,
    /// The fsGroup of the pod, which gets the volume with its content.
    pub group: Option<u32>,
    /// The quota of the directory in bytes, if it has none yet.
    pub capacity: Option<u64>,
    /// Whether the directory is deleted with its last target.
    pub ephemeral: bool,
    /// Labels of its metrics, besides its id.
    pub labels: Vec<(String, String)>,
    /// This request as its caller encoded it, for the process that continues with the mount. May
    /// have secrets.
    pub origin: Value,
}

/// Limits that may change while a volume is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountLimits {
    pub bandwidth: Bandwidth,
    /// Guaranteed share of the cache for its file system, in bytes.
    pub cache: Option<u64>,
}

impl Mounts {
    /// Publishes a volume at a target, and mounts it first if needed. Repeating it applies changed
    /// keys and limits, and mounts it again if the mount was lost. Returns whether it was not
    /// published there before.
    pub async fn publish(&self, mut request: PublishRequest) -> Result<bool> {
        self.options.cache.apply_to(&mut request.args)?;
        self.targets.check(&request.target)?;
        let pv = self.pv(&request.volume)?;
        let mut state = pv.lock().await;
        let published = self.publish_locked(&pv, &mut state, &request).await;
        if published.is_err() && state.targets.is_empty() {
            self.remove_pv(&pv, &mut state).await;
        }
        published
    }

    async fn publish_locked(
        &self,
        pv: &Pv,
        state: &mut PvState,
        request: &PublishRequest,
    ) -> Result<bool> {
        let target = Target { path: request.target.clone(), read_only: request.read_only };
        check_conflicts(state, request, &target)?;
        let lost = state.mount.as_ref().is_some_and(Mount::has_ended);
        if lost && let Some(mount) = state.mount.take() {
            warn!(volume = %pv.id, "its mount was lost; mounting it again");
            self.close_mount(&pv.id, mount).await;
        }
        if let Some(mount) = &mut state.mount {
            mount.authorize(&request.access).await?;
            if request.access.update_keys(mount.meta()).await? {
                info!(volume = %pv.id, "using changed keys of the Secret");
            }
        } else {
            let replaces_lost = lost || state.inherited;
            state.mount = Some(self.start_mount(request, replaces_lost).await?);
            state.ephemeral = request.ephemeral;
            state.inherited = false;
            for known in state.targets.clone() {
                if known.path != target.path
                    && let Err(error) = state.bind(&self.targets, &known).await
                {
                    let target = known.path.display();
                    warn!(volume = %pv.id, %target, %error, "cannot mount a target again");
                }
            }
        }
        if state.target(&target.path).is_none() {
            // Once for each pod: kubelet repeats publishes, and the pod may have changed groups of
            // files since.
            if let (Some(mount), Some(group), false) =
                (&state.mount, request.group, target.read_only)
            {
                mount.set_group(group).await?;
            }
            state.targets.push(target.clone());
        }
        // Recorded before it is mounted: no mount is ever unknown.
        let bound = match self.record(pv, state).await {
            Ok(()) => state.bind(&self.targets, &target).await,
            Err(error) => Err(error),
        };
        if bound.is_err() {
            state.forget(&target.path);
        }
        bound
    }

    async fn start_mount(&self, request: &PublishRequest, replaces_lost: bool) -> Result<Mount> {
        let opened = self
            .file_systems
            .acquire(&request.volume, &request.access, &request.args, None)
            .await?;
        let (state_dir, id) = (Arc::clone(&self.state_dir), request.volume.clone());
        let point = tokio::task::spawn_blocking(move || state_dir.mount_point(&id));
        let started = match joined("making a mount point", point).await {
            Ok(point) => Mount::start(opened, request, &self.shared, &point, replaces_lost).await,
            Err(error) => Err((opened, error)),
        };
        match started {
            Ok(mount) => {
                info!(volume = %request.volume, path = request.path, "mounted");
                Ok(mount)
            }
            Err((opened, error)) => {
                self.file_systems.release(opened).await;
                Err(error)
            }
        }
    }
}

/// Refuses what conflicts with other targets of the volume.
fn check_conflicts(state: &PvState, request: &PublishRequest, target: &Target) -> Result<()> {
    if let Some(known) = state.target(&target.path)
        && known.read_only != target.read_only
    {
        let how = if known.read_only { "read-only" } else { "writable" };
        let place = target.path.display();
        return Err(Error::Refused(format!(
            "{place}: the volume is already published there {how}"
        )));
    }
    let others = state.targets.iter().any(|known| known.path != target.path);
    if request.exclusive && others {
        let text =
            format!("volume {} has an access mode for one pod, and is in use", request.volume);
        return Err(Error::Refused(text));
    }
    Ok(())
}
