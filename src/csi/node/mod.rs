//! The Node service: publishes volumes, each a FUSE mount of this process.

mod attributes;
pub mod limits;
mod publish;
mod quantity;

pub use publish::from_origin;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tonic::{Request, Response, Status};
use tracing::{debug, info, warn};

use super::deadline::Deadline;
use super::proto::csi::node_server::Node;
use super::proto::csi::node_service_capability::rpc::Type;
use super::proto::csi::node_service_capability::{self, Rpc};
use super::proto::csi::volume_usage::Unit;
use super::proto::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, VolumeCondition, VolumeUsage,
};
use super::server::admission::Admission;
use super::volume_locks::{VolumeLock, VolumeLocks};
use crate::error::{Error, Result};
use crate::mounts::{Mounts, PvReport, VolumeId};
use crate::policy::Policy;
use crate::sync::Mutex;

/// What this service can do besides publishing.
const CAPABILITIES: [Type; 5] = [
    Type::GetVolumeStats,
    Type::VolumeCondition,
    Type::ExpandVolume,
    Type::SingleNodeMultiWriter,
    Type::VolumeMountGroup,
];
/// How long an expansion waits for the new quota.
const EXPANSION_TIMEOUT: Duration = Duration::from_secs(2);

/// An operation on a volume, for the log.
struct VolumeOperation {
    what: &'static str,
    /// The log message on success.
    done: &'static str,
    volume: VolumeId,
    target: PathBuf,
    /// Namespace and name, as far as kubelet names them.
    pod: String,
}

impl VolumeOperation {
    /// Logs one line for each attempt. Repeated publishes are only debug output: kubelet repeats
    /// them regularly.
    fn log(&self, outcome: &Result<bool, Status>, took: Duration) {
        let Self { what, done, volume, target, pod } = self;
        let target = target.display();
        match outcome {
            Ok(true) => info!(%volume, pod, %target, ?took, "{done}"),
            Ok(false) => debug!(%volume, pod, %target, ?took, "{done} again"),
            Err(status) => {
                let (code, cause) = (status.code(), status.message());
                warn!(%volume, pod, %target, ?took, ?code, "{what} failed: {cause}");
            }
        }
    }
}

/// Returns the pod of a volume as `namespace/name`.
fn pod_of(labels: &[(String, String)]) -> String {
    let of = |name: &str| labels.iter().find(|(label, _)| label == name).map(|(_, value)| value);
    match (of("namespace"), of("pod")) {
        (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
        (_, pod) => pod.cloned().unwrap_or_default(),
    }
}

pub struct NodeService {
    pub node: String,
    pub mounts: Arc<Mounts>,
    pub admission: Admission,
    pub locks: VolumeLocks,
    policy: Arc<Policy>,
    /// Volumes whose options without effect were logged.
    reported_unused: Mutex<HashSet<VolumeId>>,
}

impl NodeService {
    pub fn new(
        node: String,
        mounts: Arc<Mounts>,
        admission: Admission,
        policy: Arc<Policy>,
    ) -> Self {
        Self {
            node,
            mounts,
            admission,
            locks: VolumeLocks::default(),
            policy,
            reported_unused: Mutex::default(),
        }
    }

    /// Runs an operation on a volume to completion, even if its caller gives up. The lock is held
    /// until then.
    async fn run_to_completion<F>(
        &self,
        lock: VolumeLock,
        deadline: Deadline,
        operation: VolumeOperation,
        work: F,
    ) -> Result<(), Status>
    where
        F: Future<Output = Result<bool>> + Send + 'static,
    {
        let (what, volume) = (operation.what, operation.volume.clone());
        let task = self.admission.spawn(async move {
            let _lock = lock;
            let started = Instant::now();
            let done = work.await.map_err(Status::from);
            operation.log(&done, started.elapsed());
            done
        });
        match timeout(deadline.remaining(), task).await {
            Ok(Ok(done)) => done.map(drop),
            Ok(Err(_)) => Err(Status::internal(format!("{what} {volume} was interrupted"))),
            Err(_) => {
                let condition = match timeout(Duration::ZERO, self.mounts.report(&volume)).await {
                    Ok(Ok(report)) if report.condition.abnormal => report.condition.message,
                    _ => "a metadata engine or object store does not respond".to_owned(),
                };
                let text = format!("{what} {volume} is still in progress: {condition}");
                Err(Status::deadline_exceeded(text))
            }
        }
    }

    /// Logs options without effect, once for each volume.
    fn report_unused(&self, volume: &VolumeId, unused: &[String]) {
        let mut reported_unused = self.reported_unused.lock();
        if !unused.is_empty() && reported_unused.insert(volume.clone()) {
            for text in unused {
                warn!(%volume, "not used: {text}");
            }
        }
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let (publish, unused) = publish::publish_request(request.get_ref(), &self.policy)?;
        let volume = publish.volume.clone();
        let lock = self.locks.lock("volume", &volume)?;
        self.report_unused(&volume, &unused);
        let mounts = Arc::clone(&self.mounts);
        let operation = VolumeOperation {
            what: "publishing",
            done: "published",
            volume: volume.clone(),
            target: publish.target.clone(),
            pod: pod_of(&publish.labels),
        };
        let work = async move {
            let id = publish.volume.clone();
            let is_new = mounts.publish(publish).await?;
            if let Some(meta) = mounts.meta(&id).await {
                mounts.set_limits(&id, limits::read(&meta, &id).await?).await;
            }
            Ok(is_new)
        };
        Box::pin(self.run_to_completion(lock, deadline, operation, work)).await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        let volume = VolumeId::new(&request.volume_id)?;
        let target = publish::target(&request.target_path)?;
        let lock = self.locks.lock("volume", &volume)?;
        let mounts = Arc::clone(&self.mounts);
        let operation = VolumeOperation {
            what: "unpublishing",
            done: "unpublished",
            volume: volume.clone(),
            target: target.clone(),
            pod: String::new(),
        };
        let work = async move { mounts.unpublish(&volume, &target).await.map(|()| true) };
        self.run_to_completion(lock, deadline, operation, work).await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        let volume = VolumeId::new(&request.volume_id)?;
        let target = publish::volume_path(&request.volume_path)?;
        let unknown = || {
            Status::not_found(format!("volume {volume} is not published at {}", target.display()))
        };
        if !self.mounts.is_published(&volume, &target).await {
            return Err(unknown());
        }
        match self.mounts.report(&volume).await {
            Ok(report) => Ok(Response::new(volume_stats(report))),
            Err(Error::NotFound) => Err(unknown()),
            Err(error) => Err(error.into()),
        }
    }

    /// The controller has set the quota, which is the size; the node only has to read it.
    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let volume = VolumeId::new(&request.volume_id)?;
        let target = publish::volume_path(&request.volume_path)?;
        if !self.mounts.is_published(&volume, &target).await {
            let path = target.display();
            return Err(Status::not_found(format!("volume {volume} is not published at {path}")));
        }
        if let Some(meta) = self.mounts.meta(&volume).await
            && !matches!(timeout(EXPANSION_TIMEOUT, meta.heartbeat()).await, Ok(Ok(())))
        {
            info!(%volume, "the new size takes effect with the next heartbeat");
        }
        let capacity_bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
        Ok(Response::new(NodeExpandVolumeResponse { capacity_bytes }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let capabilities = CAPABILITIES.map(|one| NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(Rpc { r#type: one.into() })),
        });
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities: capabilities.into() }))
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.node.clone(),
            max_volumes_per_node: i64::try_from(self.mounts.max_volumes()).unwrap_or(i64::MAX),
            ..NodeGetInfoResponse::default()
        }))
    }

    async fn node_stage_volume(
        &self,
        _: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        Err(Status::unimplemented("volumes are published without being staged"))
    }

    async fn node_unstage_volume(
        &self,
        _: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        Err(Status::unimplemented("volumes are published without being staged"))
    }
}

/// Converts usage and condition of a volume to the CSI message.
fn volume_stats(report: PvReport) -> NodeGetVolumeStatsResponse {
    let usage = report.usage.map_or_else(Vec::new, |stat| {
        vec![
            usage(Unit::Bytes, stat.total.saturating_sub(stat.available), stat.available),
            usage(Unit::Inodes, stat.used_inodes, stat.available_inodes),
        ]
    });
    let condition = report.condition;
    let condition = VolumeCondition { abnormal: condition.abnormal, message: condition.message };
    NodeGetVolumeStatsResponse { usage, volume_condition: Some(condition) }
}

fn usage(unit: Unit, used: u64, available: u64) -> VolumeUsage {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    VolumeUsage {
        available: number(available),
        total: number(used.saturating_add(available)),
        used: number(used),
        unit: unit.into(),
    }
}
