//! Takes the calls of the Controller service: checks and locks, then runs the work.

use tonic::{Request, Response, Status};

use super::create::{self, NewVolume, SizeRange};
use super::list::pagination::PageRequest;
use super::list::{self, SnapshotFilter};
use super::parameters::MutableParameters;
use super::{Call, Controller, capability, delete, snapshots, update, volumes};
use crate::csi::deadline::Deadline;
use crate::csi::paths;
use crate::csi::proto::csi::controller_server::Controller as Service;
use crate::csi::proto::csi::controller_service_capability::rpc::Type as Rpc;
use crate::csi::proto::csi::controller_service_capability::{self, Type};
#[allow(clippy::wildcard_imports, reason = "two messages for each call, all named after it")]
use crate::csi::proto::csi::*;

/// All that is implemented.
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

#[tonic::async_trait]
impl Service for Controller {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (me, request) = (self.clone(), request.into_inner());
        required("name", &request.name)?;
        let lock = self.locks.lock("volume", &request.name)?;
        let id = request.name.clone();
        let work = async move {
            let new = NewVolume::read(&request, me.kube.as_ref().as_ref(), &me.policy).await?;
            let file_system = me.file_system(&request.secrets, &request.name, deadline).await?;
            let volume = create::create(&file_system, new, &me.locks).await?;
            drop(lock);
            Ok(CreateVolumeResponse { volume: Some(volume) })
        };
        self.run_change(Call { name: "CreateVolume", id: &id, deadline }, work).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (me, request) = (self.clone(), request.into_inner());
        required("volume id", &request.volume_id)?;
        let lock = self.locks.lock("volume", &request.volume_id)?;
        let id = request.volume_id.clone();
        let work = async move {
            let file_system =
                me.file_system(&request.secrets, &request.volume_id, deadline).await?;
            delete::delete(&file_system, &request.volume_id, &me.locks).await?;
            drop(lock);
            Ok(DeleteVolumeResponse {})
        };
        self.run_change(Call { name: "DeleteVolume", id: &id, deadline }, work).await
    }

    async fn controller_publish_volume(
        &self,
        _: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        Err(Status::unimplemented("volumes are not attached to nodes"))
    }

    async fn controller_unpublish_volume(
        &self,
        _: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        Err(Status::unimplemented("volumes are not attached to nodes"))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        required("volume id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("volume capabilities are missing"));
        }
        let id = request.volume_id.clone();
        let work = async {
            let file_system =
                self.file_system(&request.secrets, &request.volume_id, deadline).await?;
            update::existing(&file_system.meta, &request.volume_id).await?;
            let unsupported_reason =
                request.volume_capabilities.iter().find_map(capability::unsupported_reason);
            Ok(match unsupported_reason {
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
        self.run_query(Call { name: "ValidateVolumeCapabilities", id: &id, deadline }, work).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        let page = PageRequest::read(request.max_entries, &request.starting_token)?;
        let work = list::volumes(&self.file_systems, &page, deadline);
        self.run_query(Call { name: "ListVolumes", id: "", deadline }, work).await
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        self.run_query(Call { name: "GetCapacity", id: "", deadline }, self.capacity(deadline))
            .await
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
        paths::check_id("snapshot", &request.name)?;
        let unknown = request.parameters.keys().find(|key| !key.starts_with("csi.storage.k8s.io/"));
        if let Some(key) = unknown {
            return Err(Status::invalid_argument(format!("unknown parameter {key:?}")));
        }
        let locks = (
            self.locks.lock("snapshot", &request.name)?,
            self.locks.lock_shared("volume", &request.source_volume_id)?,
        );
        let id = request.name.clone();
        let work = async move {
            let (volume, id) = (request.source_volume_id, request.name);
            let file_system = me.file_system(&request.secrets, &volume, deadline).await?;
            let snapshot = snapshots::create(&file_system.meta, &id, &volume).await?;
            drop(locks);
            Ok(CreateSnapshotResponse { snapshot: Some(snapshot) })
        };
        self.run_change(Call { name: "CreateSnapshot", id: &id, deadline }, work).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (me, request) = (self.clone(), request.into_inner());
        required("snapshot id", &request.snapshot_id)?;
        let lock = self.locks.lock("snapshot", &request.snapshot_id)?;
        let id = request.snapshot_id.clone();
        let work = async move {
            for file_system in me
                .file_systems_with_snapshot(&request.secrets, &request.snapshot_id, deadline)
                .await?
            {
                snapshots::delete(&file_system, &request.snapshot_id).await?;
            }
            drop(lock);
            Ok(DeleteSnapshotResponse {})
        };
        self.run_change(Call { name: "DeleteSnapshot", id: &id, deadline }, work).await
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        let page = PageRequest::read(request.max_entries, &request.starting_token)?;
        let nonempty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (volume, snapshot) =
            (nonempty(&request.source_volume_id), nonempty(&request.snapshot_id));
        let work = async {
            let only = if request.secrets.is_empty() {
                None
            } else {
                Some(self.file_systems.open(&request.secrets, deadline).await?)
            };
            let filter =
                SnapshotFilter { volume: volume.as_deref(), snapshot: snapshot.as_deref() };
            list::snapshots(&self.file_systems, only, filter, &page, deadline).await
        };
        self.run_query(Call { name: "ListSnapshots", id: "", deadline }, work).await
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
            for file_system in
                self.file_systems_with_snapshot(&request.secrets, &id, deadline).await?
            {
                if let Some(found) = snapshots::find(&file_system.meta, &id).await? {
                    let snapshot = Some(snapshots::to_csi(&found.record));
                    return Ok(GetSnapshotResponse { snapshot });
                }
            }
            Err(Status::not_found(format!("snapshot {id} not found")))
        };
        self.run_query(Call { name: "GetSnapshot", id: &request.snapshot_id, deadline }, work).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (me, request) = (self.clone(), request.into_inner());
        required("volume id", &request.volume_id)?;
        if request.capacity_range.is_none() {
            return Err(Status::invalid_argument("capacity range is missing"));
        }
        let range = SizeRange::read(request.capacity_range.as_ref())?;
        if let Some(why) =
            request.volume_capability.as_ref().and_then(capability::unsupported_reason)
        {
            return Err(Status::invalid_argument(why));
        }
        let lock = self.locks.lock("volume", &request.volume_id)?;
        let id = request.volume_id.clone();
        let work = async move {
            let file_system =
                me.file_system(&request.secrets, &request.volume_id, deadline).await?;
            let size = update::expand(&file_system.meta, &request.volume_id, range).await?;
            drop(lock);
            let capacity_bytes = i64::try_from(size).unwrap_or(i64::MAX);
            // Nodes follow the quota of the volume.
            Ok(ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: false })
        };
        self.run_change(Call { name: "ControllerExpandVolume", id: &id, deadline }, work).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let id = request.into_inner().volume_id;
        required("volume id", &id)?;
        let work = async {
            let found = self.find_volume(&id, deadline).await?;
            let (_, found) =
                found.ok_or_else(|| Status::not_found(format!("volume {id} not found")))?;
            let status = controller_get_volume_response::VolumeStatus {
                published_node_ids: Vec::new(),
                volume_condition: Some(volumes::condition(&found)),
            };
            let volume = Some(volumes::to_csi(&found.record));
            Ok(ControllerGetVolumeResponse { volume, status: Some(status) })
        };
        self.run_query(Call { name: "ControllerGetVolume", id: &id, deadline }, work).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (me, request) = (self.clone(), request.into_inner());
        required("volume id", &request.volume_id)?;
        if request.mutable_parameters.is_empty() {
            return Err(Status::invalid_argument("mutable parameters are missing"));
        }
        let lock = self.locks.lock("volume", &request.volume_id)?;
        let id = request.volume_id.clone();
        let work = async move {
            let file_system =
                me.file_system(&request.secrets, &request.volume_id, deadline).await?;
            update::existing(&file_system.meta, &request.volume_id).await?;
            let mutable = MutableParameters::read(&request.mutable_parameters)?;
            update::modify(&file_system.meta, &request.volume_id, mutable).await?;
            drop(lock);
            Ok(ControllerModifyVolumeResponse {})
        };
        self.run_change(Call { name: "ControllerModifyVolume", id: &id, deadline }, work).await
    }
}

fn required(what: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() {
        return Err(Status::invalid_argument(format!("{what} is missing")));
    }
    Ok(())
}
