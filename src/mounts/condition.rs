//! Whether a volume can be used, and if not, why.

use std::time::Duration;

use tokio::time::timeout;
use tracing::{info, warn};

use super::id::VolumeId;
use super::pv::Inner;
use super::session::Session;
use crate::meta::StatFs;

/// A store that takes longer is not well.
const PATIENCE: Duration = Duration::from_secs(2);

/// What an orchestrator is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub abnormal: bool,
    pub message: String,
}

/// Usage and condition of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// None if nobody can tell.
    pub usage: Option<StatFs>,
    pub condition: Condition,
}

/// Looks at a volume. Takes some seconds at most, whatever its stores do. A condition that has changed is
/// told in the log.
pub async fn report(id: &VolumeId, inner: &Inner) -> Report {
    let Some(session) = &inner.session else {
        let message = "not mounted since the driver was started; it is served again as soon as it is \
                       published again";
        return Report { usage: None, condition: Condition::abnormal(message) };
    };
    let (usage, metadata) = usage(session).await;
    let condition = match metadata {
        _ if session.has_ended() => {
            Condition::abnormal("the mount was taken away; it is made again when published again")
        }
        Some(cause) => Condition::abnormal(format!("metadata unreachable: {cause}")),
        None => data(session, usage),
    };
    if session.note(condition.abnormal) {
        let cause = &condition.message;
        if condition.abnormal {
            warn!(volume = %id, cause, "the volume is not well");
        } else {
            info!(volume = %id, "the volume is well again");
        }
    }
    Report { usage, condition }
}

fn data(session: &Session, usage: Option<StatFs>) -> Condition {
    if let Some(cause) = session.lease().volume.storage_trouble() {
        return Condition::abnormal(format!("object store failing: {cause}"));
    }
    if let Some(cache) = &session.lease().cache
        && let Some(trouble) = cache.problems().first()
    {
        return Condition::abnormal(trouble.clone());
    }
    if let Some(stat) = usage {
        if stat.available == 0 {
            return Condition::abnormal("full: no space is left within the quota or the volume");
        }
        if stat.available_inodes == 0 {
            return Condition::abnormal("full: no inodes are left within the quota or the volume");
        }
    }
    if session.is_reestablished() {
        return Condition::normal("session re-established: what was open before is lost");
    }
    Condition::normal("mounted")
}

/// What is used, and what keeps the metadata from telling.
async fn usage(session: &Session) -> (Option<StatFs>, Option<String>) {
    let meta = session.meta();
    let asked = async {
        // Past all caches.
        meta.attrs(&[session.root()]).await?;
        meta.statfs(session.root()).await
    };
    let known = || Some(meta.known_statfs(session.root()));
    match timeout(PATIENCE, asked).await {
        Ok(Ok(stat)) => (Some(stat), None),
        Ok(Err(error)) => (known(), Some(error.to_string())),
        Err(_) => (known(), Some(format!("no answer within {PATIENCE:?}"))),
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
