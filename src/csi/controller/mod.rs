//! The Controller service: volumes and snapshots, as metadata transactions in this process.
//!
//! This file runs calls: deadlines, tasks that outlive their caller, and the log. `service.rs`
//! takes the calls, and the other files carry them out.

mod capability;
mod create;
mod delete;
mod file_system;
mod file_systems;
mod list;
mod overlap;
mod parameters;
mod path_pattern;
mod service;
mod snapshots;
mod update;
mod volumes;

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tonic::{Response, Status};
use tracing::{debug, info, warn};

use self::file_system::FileSystem;
use self::file_systems::FileSystems;
use self::path_pattern::KubeApi;
use super::deadline::Deadline;
use super::proto::csi::GetCapacityResponse;
use super::server::admission::Admission;
use super::status;
use super::volume_locks::VolumeLocks;
use crate::meta::Ino;
use crate::policy::Policy;

/// A call in progress.
struct Call<'a> {
    name: &'static str,
    /// Of the volume or snapshot; empty if the call has none.
    id: &'a str,
    deadline: Deadline,
}

/// The service. Clones share everything.
#[derive(Clone)]
pub struct Controller {
    file_systems: FileSystems,
    locks: VolumeLocks,
    admission: Admission,
    kube: Arc<Option<KubeApi>>,
    policy: Arc<Policy>,
}

impl Controller {
    /// `secrets` is a directory of Secrets whose file systems are opened at the start. `kube` is
    /// the address of the Kubernetes API, if it is not that of the surrounding cluster.
    pub fn new(
        admission: Admission,
        secrets: Option<PathBuf>,
        kube: Option<&str>,
        policy: Arc<Policy>,
    ) -> Self {
        let file_systems = FileSystems::new(secrets, Arc::clone(&policy));
        tokio::spawn(file_systems.clone().close_idle_forever());
        Self {
            file_systems,
            locks: VolumeLocks::default(),
            admission,
            kube: Arc::new(KubeApi::find(kube)),
            policy,
        }
    }

    /// Opens the file systems of the directory of Secrets and resumes their deletions.
    pub async fn open_secrets_dir(&self) {
        self.file_systems.open_secrets_dir().await;
    }

    /// Closes every file system, waiting at most `patience`.
    pub async fn close(&self, patience: Duration) {
        self.file_systems.close(patience).await;
    }

    /// Runs a call that changes something. The work continues if the caller disconnects or its
    /// deadline passes: a repeated call is refused while it runs, and then finds it done.
    async fn run_change<T: Send + 'static>(
        &self,
        call: Call<'_>,
        work: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let Call { name, deadline, .. } = call;
        let id = call.id.to_owned();
        let failed_id = id.clone();
        let task = self.admission.spawn(async move {
            let done = work.await;
            match &done {
                Ok(_) => info!(call = name, id, "done"),
                Err(status) => log_failure(name, &id, status),
            }
            done
        });
        match tokio::time::timeout_at(deadline.instant(), task).await {
            Ok(Ok(done)) => done.map(Response::new),
            Ok(Err(_)) => Err(Status::internal(format!("{name} {failed_id} was interrupted"))),
            Err(_) => {
                Err(Status::deadline_exceeded(format!("{name} {failed_id} is still running")))
            }
        }
    }

    /// Runs a call that changes nothing.
    async fn run_query<T>(
        &self,
        call: Call<'_>,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let Call { name, id, deadline } = call;
        let done = match tokio::time::timeout_at(deadline.instant(), work).await {
            Ok(done) => done,
            Err(_) => Err(Status::deadline_exceeded(format!("{name} {id}: no result in time"))),
        };
        match &done {
            Ok(_) => debug!(call = name, id, "done"),
            Err(status) => log_failure(name, id, status),
        }
        done.map(Response::new)
    }

    /// Returns the file system of a call: that of its Secret, or the known one that has the volume.
    async fn file_system(
        &self,
        secrets: &HashMap<String, String>,
        volume: &str,
        deadline: Deadline,
    ) -> Result<Arc<FileSystem>, Status> {
        if !secrets.is_empty() {
            return Ok(self.file_systems.open(secrets, deadline).await?);
        }
        match self.find_volume(volume, deadline).await? {
            Some((file_system, _)) => Ok(file_system),
            None => Err(Status::invalid_argument(
                "the call has no Secret: name one for it in the parameters of the StorageClass",
            )),
        }
    }

    /// Looks for a volume in all known file systems.
    async fn find_volume(
        &self,
        id: &str,
        deadline: Deadline,
    ) -> Result<Option<(Arc<FileSystem>, volumes::FoundVolume)>, Status> {
        let searches = self.file_systems.known().await.into_values().map(|secret| async {
            let file_system = self.file_systems.open_known(secret, deadline).await?;
            let found = volumes::find(&file_system.meta, id).await?;
            Ok::<_, Status>(found.map(|found| (file_system, found)))
        });
        let mut failed = None;
        for search in join_all(searches).await {
            match search {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        // The volume may be in a file system that failed.
        failed.map_or(Ok(None), Err)
    }

    /// Returns the file systems to search for a snapshot: that of the Secret, or all known ones
    /// that have it.
    async fn file_systems_with_snapshot(
        &self,
        secrets: &HashMap<String, String>,
        id: &str,
        deadline: Deadline,
    ) -> Result<Vec<Arc<FileSystem>>, Status> {
        if !secrets.is_empty() {
            return Ok(vec![self.file_systems.open(secrets, deadline).await?]);
        }
        let mut found = Vec::new();
        for secret in self.file_systems.known().await.into_values() {
            let file_system = self.file_systems.open_known(secret, deadline).await?;
            if snapshots::find(&file_system.meta, id).await?.is_some() {
                found.push(file_system);
            }
        }
        Ok(found)
    }

    /// Returns the space that every known file system has available.
    async fn capacity(&self, deadline: Deadline) -> Result<GetCapacityResponse, Status> {
        let known = self.file_systems.known().await;
        if known.is_empty() {
            return Err(Status::failed_precondition(
                "no file system is known yet: the call has no Secret, and --secrets-dir has none",
            ));
        }
        // The call does not say which file system is meant, and every one has at least this much.
        let mut least = u64::MAX;
        for secret in known.into_values() {
            let file_system = self.file_systems.open_known(secret, deadline).await?;
            let stat = file_system.meta.statfs(Ino::ROOT).await.map_err(Status::from)?;
            least = least.min(stat.available);
        }
        let available_capacity = i64::try_from(least).unwrap_or(i64::MAX);
        Ok(GetCapacityResponse { available_capacity, ..GetCapacityResponse::default() })
    }
}

/// Logs why a call failed; nothing else does.
fn log_failure(call: &str, id: &str, status: &Status) {
    let (code, cause) = (status.code(), status.message());
    if status::is_fault(code) {
        warn!(call, id, ?code, "{cause}");
    } else {
        info!(call, id, ?code, "refused: {cause}");
    }
}
