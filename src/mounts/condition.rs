//! The condition of a volume: whether it can be used, and why not.

use std::time::Duration;

use tokio::time::timeout;
use tracing::{info, warn};

use super::mount::Mount;
use super::pv::PvState;
use super::volume_id::VolumeId;
use crate::meta::StatFs;

/// The time limit for the metadata engine to respond.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A condition in the sense of CSI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub abnormal: bool,
    pub message: String,
}

/// Usage and condition of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PvReport {
    /// `None` if it is unknown.
    pub usage: Option<StatFs>,
    pub condition: Condition,
}

/// Examines a volume. Takes a few seconds at most, even if its stores do not respond. Logs a
/// condition that has changed.
pub async fn report(id: &VolumeId, state: &PvState) -> PvReport {
    let Some(mount) = &state.mount else {
        let message = "not mounted since the driver was restarted; it is mounted again when it is \
                       published again";
        return PvReport { usage: None, condition: Condition::abnormal(message) };
    };
    let (usage, metadata) = usage(mount).await;
    let condition = match metadata {
        _ if mount.has_ended() => Condition::abnormal(
            "unmounted by something else; it is mounted again when it is published again",
        ),
        Some(cause) => Condition::abnormal(format!("metadata unreachable: {cause}")),
        None => data(mount, usage),
    };
    if mount.set_abnormal(condition.abnormal) {
        let cause = &condition.message;
        if condition.abnormal {
            warn!(volume = %id, cause, "the volume is abnormal");
        } else {
            info!(volume = %id, "the volume is normal again");
        }
    }
    PvReport { usage, condition }
}

fn data(mount: &Mount, usage: Option<StatFs>) -> Condition {
    if let Some(cause) = mount.file_system().volume.storage_trouble() {
        return Condition::abnormal(format!("object store failing: {cause}"));
    }
    if let Some(cache) = &mount.file_system().cache
        && let Some(trouble) = cache.problems().first()
    {
        return Condition::abnormal(trouble.clone());
    }
    if let Some(stat) = usage {
        if stat.available == 0 {
            return Condition::abnormal("full: no space left within the quota or the file system");
        }
        if stat.available_inodes == 0 {
            return Condition::abnormal("full: no inodes left within the quota or the file system");
        }
    }
    if mount.recently_replaced_lost() {
        return Condition::normal(
            "mounted again after a failure: files that were open before are lost",
        );
    }
    Condition::normal("mounted")
}

/// Returns the usage, and why the metadata engine could not report it.
async fn usage(mount: &Mount) -> (Option<StatFs>, Option<String>) {
    let meta = mount.meta();
    let asked = async {
        // Not from a cache.
        meta.attrs(&[mount.root()]).await?;
        meta.statfs(mount.root()).await
    };
    let known = || Some(meta.known_statfs(mount.root()));
    match timeout(TIMEOUT, asked).await {
        Ok(Ok(stat)) => (Some(stat), None),
        Ok(Err(error)) => (known(), Some(error.to_string())),
        Err(_) => (known(), Some(format!("no response within {TIMEOUT:?}"))),
    }
}

impl Condition {
    fn normal(message: impl Into<String>) -> Self {
        Self { abnormal: false, message: message.into() }
    }

    fn abnormal(message: impl Into<String>) -> Self {
        Self { abnormal: true, message: message.into() }
    }
}
