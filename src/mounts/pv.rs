//! One volume on this node: its session, if it has one, and its targets.

use std::path::{Path, PathBuf};

use tokio::sync::{Mutex, MutexGuard};

use super::bind::{self, TargetRoot};
use super::id::VolumeId;
use super::session::Session;
use super::state::{Record, Target};
use crate::error::{Result, joined};

pub struct Pv {
    pub id: VolumeId,
    inner: Mutex<Inner>,
}

/// What is known of a volume, by whoever has its turn.
#[derive(Default)]
pub struct Inner {
    pub session: Option<Session>,
    pub targets: Vec<Target>,
    pub ephemeral: bool,
    /// Whether others than this process have served it.
    pub inherited: bool,
}

impl Pv {
    pub fn new(id: VolumeId) -> Self {
        Self { id, inner: Mutex::default() }
    }

    /// As a process before this one has left it.
    pub fn inherited(id: VolumeId, record: Record) -> Self {
        let Record { targets, ephemeral, .. } = record;
        let inner = Inner { session: None, targets, ephemeral, inherited: true };
        Self { id, inner: Mutex::new(inner) }
    }

    /// One at a time.
    pub async fn turn(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().await
    }

    /// The turn, if nobody has it.
    pub fn turn_now(&self) -> Option<MutexGuard<'_, Inner>> {
        self.inner.try_lock().ok()
    }
}

impl Inner {
    pub fn target(&self, path: &Path) -> Option<&Target> {
        self.targets.iter().find(|target| target.path == path)
    }

    pub fn forget(&mut self, path: &Path) {
        self.targets.retain(|target| target.path != path);
    }

    pub fn record(&self, id: &VolumeId, point: PathBuf) -> Record {
        Record {
            volume: id.to_string(),
            point,
            session: self.session.as_ref().map_or(0, |session| session.meta().context().sid().0),
            ephemeral: self.ephemeral,
            targets: self.targets.clone(),
        }
    }

    /// Shows the session at the target; what is shown there already stays. Answers whether it was not.
    pub async fn show(&self, root: &TargetRoot, target: &Target) -> Result<bool> {
        let Some(session) = &self.session else { return Ok(false) };
        let (point, device) = (session.point().to_owned(), session.device().to_owned());
        let (root, target) = (root.clone(), target.clone());
        let shown = tokio::task::spawn_blocking(move || {
            if bind::device_at(&target.path).is_some_and(|found| found == device) {
                return Ok(false);
            }
            root.replace(&point, &target.path, target.read_only).map(|()| true)
        });
        joined("mounting a target", shown).await
    }
}
