//! The Controller service: volumes and snapshots as transactions of metadata in this process.
//!
//! This file takes calls in and gives answers out: turns, deadlines and the log. What is done is in
//! the files beside it.

mod capability;
mod change;
mod create;
mod delete;
mod fleet;
mod list;
mod neighbours;
mod pages;
mod parameters;
mod snapshots;
mod system;
mod volumes;

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tonic::{Request, Response, Status};
use tracing::{debug, info, warn};

use self::create::{Range, Wanted};
use self::fleet::Fleet;
use self::pages::Page;
use self::parameters::Mutable;
use self::system::System;
use super::busy::Busy;
use super::deadline::Deadline;
use super::gate::Gate;
use super::kube::Kube;
use super::proto::csi::controller_server::Controller as Service;
use super::proto::csi::controller_service_capability::rpc::Type as Rpc;
use super::proto::csi::controller_service_capability::{self, Type};
#[allow(clippy::wildcard_imports, reason = "two messages for each call, all named after it")]
use super::proto::csi::*;
use super::status;
use crate::meta::Ino;
use crate::policy::Policy;

/// Everything that is built.
const CAPABILITIES: &[Rpc] = &[
    Rpc::CreateDeleteVolume,
    Rpc::CreateDeleteSnapshot,
    Rpc::ListSnapshots,
    Rpc::GetSnapshot,
    Rpc::CloneVolume,
    Rpc::ExpandVolume,
    Rpc::ListVolumes,
    Rpc::GetCapacity,
    Rpc::GetVolume,
    Rpc::VolumeCondition,
    Rpc::SingleNodeMultiWriter,
    Rpc::ModifyVolume,
];

/// The service. Copies of it are the same one.
#[derive(Clone)]
pub struct Controller {
    fleet: Fleet,
    busy: Busy,
    gate: Gate,
    kube: Arc<Option<Kube>>,
    policy: Arc<Policy>,
}

impl Controller {
    /// `secrets` is a directory of Secrets to look after from the start, `kube` the address of the
    /// Kubernetes API if it is not that of the cluster around.
    pub fn new(
        gate: Gate,
        secrets: Option<PathBuf>,
        kube: Option<&str>,
        policy: Arc<Policy>,
    ) -> Self {
        let fleet = Fleet::new(secrets, Arc::clone(&policy));
        tokio::spawn(fleet.clone().tend());
        Self { fleet, busy: Busy::default(), gate, kube: Arc::new(Kube::find(kube)), policy }
    }

    /// Takes up what was left off.
    pub async fn begin(&self) {
        self.fleet.begin().await;
    }

    /// Closes every file system, within `patience`.
    pub async fn close(&self, patience: Duration) {
        self.fleet.close(patience).await;
    }

    /// Does what changes something. It goes on if the caller goes away or waits no longer: then a
    /// repeat finds it under way, and later done.
    async fn change<T: Send + 'static>(
        &self,
        (call, id): (&'static str, &str),
        deadline: Deadline,
        work: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let id = id.to_owned();
        let told = id.clone();
        let task = self.gate.spawn(async move {
            let done = work.await;
            match &done {
                Ok(_) => info!(call, id, "done"),
                Err(status) => tell(call, &id, status),
            }
            done
        });
        match tokio::time::timeout_at(deadline.instant(), task).await {
            Ok(Ok(done)) => done.map(Response::new),
            Ok(Err(_)) => Err(Status::internal(format!("{call} {told} broke off"))),
            Err(_) => Err(Status::deadline_exceeded(format!("{call} {told} is still under way"))),
        }
    }

    /// Does what only looks.
    async fn look<T>(
        &self,
        (call, id): (&'static str, &str),
        deadline: Deadline,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let done = match tokio::time::timeout_at(deadline.instant(), work).await {
            Ok(done) => done,
            Err(_) => Err(Status::deadline_exceeded(format!("{call} {id}: no answer in time"))),
        };
        match &done {
            Ok(_) => debug!(call, id, "done"),
            Err(status) => tell(call, id, status),
        }
        done.map(Response::new)
    }

    /// The file system that a call is about: that of its Secret, or the one that has the volume.
    async fn system(
        &self,
        secrets: &HashMap<String, String>,
        volume: &str,
        deadline: Deadline,
    ) -> Result<Arc<System>, Status> {
        if !secrets.is_empty() {
            return Ok(self.fleet.open(secrets, deadline).await?);
        }
        match self.anywhere(volume, deadline).await? {
            Some((system, _)) => Ok(system),
            None => Err(Status::invalid_argument(
                "the call has no Secret: the StorageClass must name one for it",
            )),
        }
    }

    /// The volume, wherever it is among what is known.
    async fn anywhere(
        &self,
        id: &str,
        deadline: Deadline,
    ) -> Result<Option<(Arc<System>, volumes::Found)>, Status> {
        let looks = self.fleet.known().await.into_values().map(|given| async {
            let system = self.fleet.open_known(given, deadline).await?;
            let found = volumes::find(&system.meta, id).await?;
            Ok::<_, Status>(found.map(|found| (system, found)))
        });
        let mut failed = None;
        for look in join_all(looks).await {
            match look {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        // It may be where nobody could look.
        failed.map_or(Ok(None), Err)
    }

    async fn capacity(&self, deadline: Deadline) -> Result<GetCapacityResponse, Status> {
        let known = self.fleet.known().await;
        if known.is_empty() {
            return Err(Status::failed_precondition(
                "no file system is known yet: the call carries no Secret, and --secrets-dir has none",
            ));
        }
        // Whichever is meant has at least that much.
        let mut least = u64::MAX;
        for given in known.into_values() {
            let system = self.fleet.open_known(given, deadline).await?;
            let stat = system.meta.statfs(Ino::ROOT).await.map_err(Status::from)?;
            least = least.min(stat.available);
        }
        let available_capacity = i64::try_from(least).unwrap_or(i64::MAX);
        Ok(GetCapacityResponse { available_capacity, ..GetCapacityResponse::default() })
    }
}

/// The one place where what went wrong with a call is logged.
fn tell(call: &str, id: &str, status: &Status) {
    let (code, cause) = (status.code(), status.message());
    if status::is_fault(code) {
        warn!(call, id, ?code, "{cause}");
    } else {
        info!(call, id, ?code, "refused: {cause}");
    }
}

fn required(what: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() {
        return Err(Status::invalid_argument(format!("no {what} was given")));
    }
    Ok(())
}

#[tonic::async_trait]
impl Service for Controller {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (me, request) = (self.clone(), request.into_inner());
        required("name", &request.name)?;
        let turn = self.busy.begin("volume", &request.name)?;
        let id = request.name.clone();
        let work = async move {
            let wanted = Wanted::read(&request, me.kube.as_ref().as_ref(), &me.policy).await?;
            let system = me.system(&request.secrets, &request.name, deadline).await?;
            let volume = create::create(&system, wanted, &me.busy).await?;
            drop(turn);
            Ok(CreateVolumeResponse { volume: Some(volume) })
        };
        self.change(("CreateVolume", &id), deadline, work).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (me, request) = (self.clone(), request.into_inner());
        required("volume id", &request.volume_id)?;
        let turn = self.busy.begin("volume", &request.volume_id)?;
        let id = request.volume_id.clone();
        let work = async move {
            let system = me.system(&request.secrets, &request.volume_id, deadline).await?;
            delete::delete(&system, &request.volume_id, &me.busy).await?;
            drop(turn);
            Ok(DeleteVolumeResponse {})
        };
        self.change(("DeleteVolume", &id), deadline, work).await
    }

    async fn controller_publish_volume(
        &self,
        _: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        Err(Status::unimplemented("volumes need not be attached to nodes"))
    }

    async fn controller_unpublish_volume(
        &self,
        _: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        Err(Status::unimplemented("volumes need not be attached to nodes"))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        required("volume id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("no volume capabilities were given"));
        }
        let id = request.volume_id.clone();
        let work = async {
            let system = self.system(&request.secrets, &request.volume_id, deadline).await?;
            change::existing(&system.meta, &request.volume_id).await?;
            let unfit = request.volume_capabilities.iter().find_map(capability::unfit);
            Ok(match unfit {
                Some(message) => ValidateVolumeCapabilitiesResponse { confirmed: None, message },
                None => ValidateVolumeCapabilitiesResponse {
                    confirmed: Some(validate_volume_capabilities_response::Confirmed {
                        volume_context: request.volume_context,
                        volume_capabilities: request.volume_capabilities,
                        parameters: request.parameters,
                        mutable_parameters: request.mutable_parameters,
                    }),
                    message: String::new(),
                },
            })
        };
        self.look(("ValidateVolumeCapabilities", &id), deadline, work).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        let page = Page::read(request.max_entries, &request.starting_token)?;
        let work = list::volumes(&self.fleet, &page, deadline);
        self.look(("ListVolumes", ""), deadline, work).await
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        self.look(("GetCapacity", ""), deadline, self.capacity(deadline)).await
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capabilities = CAPABILITIES.iter().map(|rpc| {
            let rpc = controller_service_capability::Rpc { r#type: (*rpc).into() };
            ControllerServiceCapability { r#type: Some(Type::Rpc(rpc)) }
        });
        let capabilities = capabilities.collect();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (me, request) = (self.clone(), request.into_inner());
        required("name", &request.name)?;
        required("source volume id", &request.source_volume_id)?;
        super::place::check_id("snapshot", &request.name)?;
        let unknown = request.parameters.keys().find(|key| !key.starts_with("csi.storage.k8s.io/"));
        if let Some(key) = unknown {
            return Err(Status::invalid_argument(format!("unknown parameter {key:?}")));
        }
        let turns = (
            self.busy.begin("snapshot", &request.name)?,
            self.busy.share("volume", &request.source_volume_id)?,
        );
        let id = request.name.clone();
        let work = async move {
            let (volume, id) = (request.source_volume_id, request.name);
            let system = me.system(&request.secrets, &volume, deadline).await?;
            let snapshot = snapshots::create(&system.meta, &id, &volume).await?;
            drop(turns);
            Ok(CreateSnapshotResponse { snapshot: Some(snapshot) })
        };
        self.change(("CreateSnapshot", &id), deadline, work).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (me, request) = (self.clone(), request.into_inner());
        required("snapshot id", &request.snapshot_id)?;
        let turn = self.busy.begin("snapshot", &request.snapshot_id)?;
        let id = request.snapshot_id.clone();
        let work = async move {
            for system in me.with_snapshot(&request.secrets, &request.snapshot_id, deadline).await?
            {
                snapshots::delete(&system, &request.snapshot_id).await?;
            }
            drop(turn);
            Ok(DeleteSnapshotResponse {})
        };
        self.change(("DeleteSnapshot", &id), deadline, work).await
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        let page = Page::read(request.max_entries, &request.starting_token)?;
        let said = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
        let (volume, snapshot) = (said(&request.source_volume_id), said(&request.snapshot_id));
        let work = async {
            let only = if request.secrets.is_empty() {
                None
            } else {
                Some(self.fleet.open(&request.secrets, deadline).await?)
            };
            let which = (volume.as_deref(), snapshot.as_deref());
            list::snapshots(&self.fleet, only, which, &page, deadline).await
        };
        self.look(("ListSnapshots", ""), deadline, work).await
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        required("snapshot id", &request.snapshot_id)?;
        let id = request.snapshot_id.clone();
        let work = async {
            for system in self.with_snapshot(&request.secrets, &id, deadline).await? {
                if let Some(found) = snapshots::find(&system.meta, &id).await? {
                    let snapshot = Some(snapshots::described(&found.record));
                    return Ok(GetSnapshotResponse { snapshot });
                }
            }
            Err(Status::not_found(format!("there is no snapshot {id}")))
        };
        self.look(("GetSnapshot", &request.snapshot_id), deadline, work).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (me, request) = (self.clone(), request.into_inner());
        required("volume id", &request.volume_id)?;
        if request.capacity_range.is_none() {
            return Err(Status::invalid_argument("no capacity range was given"));
        }
        let range = Range::read(request.capacity_range.as_ref())?;
        if let Some(why) = request.volume_capability.as_ref().and_then(capability::unfit) {
            return Err(Status::invalid_argument(why));
        }
        let turn = self.busy.begin("volume", &request.volume_id)?;
        let id = request.volume_id.clone();
        let work = async move {
            let system = me.system(&request.secrets, &request.volume_id, deadline).await?;
            let size = change::expand(&system.meta, &request.volume_id, range).await?;
            drop(turn);
            let capacity_bytes = i64::try_from(size).unwrap_or(i64::MAX);
            // Nodes see the quota of the volume as it changes.
            Ok(ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: false })
        };
        self.change(("ControllerExpandVolume", &id), deadline, work).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let id = request.into_inner().volume_id;
        required("volume id", &id)?;
        let work = async {
            let found = self.anywhere(&id, deadline).await?;
            let (_, found) =
                found.ok_or_else(|| Status::not_found(format!("there is no volume {id}")))?;
            let status = controller_get_volume_response::VolumeStatus {
                published_node_ids: Vec::new(),
                volume_condition: Some(volumes::condition(&found)),
            };
            let volume = Some(volumes::described(&found.record));
            Ok(ControllerGetVolumeResponse { volume, status: Some(status) })
        };
        self.look(("ControllerGetVolume", &id), deadline, work).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (me, request) = (self.clone(), request.into_inner());
        required("volume id", &request.volume_id)?;
        if request.mutable_parameters.is_empty() {
            return Err(Status::invalid_argument("no mutable parameters were given"));
        }
        let turn = self.busy.begin("volume", &request.volume_id)?;
        let id = request.volume_id.clone();
        let work = async move {
            let system = me.system(&request.secrets, &request.volume_id, deadline).await?;
            change::existing(&system.meta, &request.volume_id).await?;
            let mutable = Mutable::read(&request.mutable_parameters)?;
            change::modify(&system.meta, &request.volume_id, mutable).await?;
            drop(turn);
            Ok(ControllerModifyVolumeResponse {})
        };
        self.change(("ControllerModifyVolume", &id), deadline, work).await
    }
}

impl Controller {
    /// The file systems that may have a snapshot: that of the Secret, or all that are known.
    async fn with_snapshot(
        &self,
        secrets: &HashMap<String, String>,
        id: &str,
        deadline: Deadline,
    ) -> Result<Vec<Arc<System>>, Status> {
        if !secrets.is_empty() {
            return Ok(vec![self.fleet.open(secrets, deadline).await?]);
        }
        let mut having = Vec::new();
        for given in self.fleet.known().await.into_values() {
            let system = self.fleet.open_known(given, deadline).await?;
            if snapshots::find(&system.meta, id).await?.is_some() {
                having.push(system);
            }
        }
        Ok(having)
    }
}
