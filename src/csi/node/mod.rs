//! The node service: volumes of pods, published as sessions of this process.

mod attributes;
mod limits;
mod publish;
mod stats;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tonic::{Request, Response, Status};
use tracing::{debug, info, warn};

use super::busy::{Busy, Turn};
use super::deadline::Deadline;
use super::gate::Gate;
use super::proto::csi::node_server::Node;
use super::proto::csi::node_service_capability::rpc::Type;
use super::proto::csi::node_service_capability::{self, Rpc};
use super::proto::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
};
use crate::error::{Error, Result};
use crate::mounts::{Mounts, VolumeId};
use crate::policy::Policy;
use crate::sync::Mutex;

/// What this service can do beyond publishing.
const CAPABILITIES: [Type; 5] = [
    Type::GetVolumeStats,
    Type::VolumeCondition,
    Type::ExpandVolume,
    Type::SingleNodeMultiWriter,
    Type::VolumeMountGroup,
];
/// How long a node looks for its new size.
const LOOK: Duration = Duration::from_secs(2);

/// Something that is done about a volume, for the log.
struct Doing {
    what: &'static str,
    /// In the log once it is done.
    done: &'static str,
    volume: VolumeId,
    target: PathBuf,
    /// Namespace and name, as far as kubelet says them.
    pod: String,
}

impl Doing {
    /// One line for each try. What was only repeated is none: kubelet publishes again all the time.
    fn tell(&self, outcome: &Result<bool, Status>, took: Duration) {
        let Self { what, done, volume, target, pod } = self;
        let target = target.display();
        match outcome {
            Ok(true) => info!(%volume, pod, %target, ?took, "{done}"),
            Ok(false) => debug!(%volume, pod, %target, ?took, "{done} again"),
            Err(status) => {
                let (code, cause) = (status.code(), status.message());
                warn!(%volume, pod, ?took, ?code, "{what} failed: {cause}");
            }
        }
    }
}

/// The pod that a volume is for.
fn pod(labels: &[(String, String)]) -> String {
    let of = |name: &str| labels.iter().find(|(label, _)| label == name).map(|(_, value)| value);
    match (of("namespace"), of("pod")) {
        (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
        (_, pod) => pod.cloned().unwrap_or_default(),
    }
}

pub struct NodeService {
    pub node: String,
    pub mounts: Arc<Mounts>,
    pub gate: Gate,
    pub busy: Busy,
    policy: Arc<Policy>,
    /// Volumes of which it was said what has no effect.
    told: Mutex<HashSet<VolumeId>>,
}

impl NodeService {
    pub fn new(node: String, mounts: Arc<Mounts>, gate: Gate, policy: Arc<Policy>) -> Self {
        Self { node, mounts, gate, busy: Busy::default(), policy, told: Mutex::default() }
    }

    /// Does something about a volume to its end, whether or not its caller waits for that. Until then
    /// nothing else is done about it.
    async fn carry_out<F>(
        &self,
        turn: Turn,
        deadline: Deadline,
        doing: Doing,
        work: F,
    ) -> Result<(), Status>
    where
        F: Future<Output = Result<bool>> + Send + 'static,
    {
        let (what, volume) = (doing.what, doing.volume.clone());
        let task = self.gate.spawn(async move {
            let _turn = turn;
            let begun = Instant::now();
            let done = work.await.map_err(Status::from);
            doing.tell(&done, begun.elapsed());
            done
        });
        match timeout(deadline.left(), task).await {
            Ok(Ok(done)) => done.map(drop),
            Ok(Err(_)) => Err(Status::internal(format!("{what} broke off"))),
            Err(_) => {
                let condition = match timeout(Duration::ZERO, self.mounts.report(&volume)).await {
                    Ok(Ok(report)) if report.condition.abnormal => report.condition.message,
                    _ => "a store does not answer".to_owned(),
                };
                let text = format!("{what} of {volume} is still under way: {condition}");
                Err(Status::deadline_exceeded(text))
            }
        }
    }

    /// Once for each volume, so that a log says it and is not full of it.
    fn tell(&self, volume: &VolumeId, unused: &[String]) {
        let mut told = self.told.lock();
        if !unused.is_empty() && told.insert(volume.clone()) {
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
        let (wanted, unused) = publish::wanted(request.get_ref(), &self.policy)?;
        let volume = wanted.volume.clone();
        let turn = self.busy.begin("volume", &volume)?;
        self.tell(&volume, &unused);
        let mounts = Arc::clone(&self.mounts);
        let doing = Doing {
            what: "publishing",
            done: "published",
            volume: volume.clone(),
            target: wanted.target.clone(),
            pod: pod(&wanted.labels),
        };
        let work = async move {
            let id = wanted.volume.clone();
            let is_new = mounts.publish(wanted).await?;
            if let Some(meta) = mounts.meta(&id).await {
                mounts.limit(&id, limits::of(&meta, &id).await?).await;
            }
            Ok(is_new)
        };
        Box::pin(self.carry_out(turn, deadline, doing, work)).await?;
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
        let turn = self.busy.begin("volume", &volume)?;
        let mounts = Arc::clone(&self.mounts);
        let doing = Doing {
            what: "taking away",
            done: "taken away",
            volume: volume.clone(),
            target: target.clone(),
            pod: String::new(),
        };
        let work = async move { mounts.unpublish(&volume, &target).await.map(|()| true) };
        self.carry_out(turn, deadline, doing, work).await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        let volume = VolumeId::new(&request.volume_id)?;
        let target = publish::shown_at(&request.volume_path)?;
        let unknown = || Status::not_found(format!("volume {volume} is not published there"));
        if !self.mounts.knows(&volume, &target).await {
            return Err(unknown());
        }
        match self.mounts.report(&volume).await {
            Ok(report) => Ok(Response::new(stats::answer(report))),
            Err(Error::NotFound) => Err(unknown()),
            Err(error) => Err(error.into()),
        }
    }

    /// The quota is the size, and the controller has set it; the node has only to see it.
    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let volume = VolumeId::new(&request.volume_id)?;
        let target = publish::shown_at(&request.volume_path)?;
        if !self.mounts.knows(&volume, &target).await {
            return Err(Status::not_found(format!("volume {volume} is not published there")));
        }
        if let Some(meta) = self.mounts.meta(&volume).await
            && !matches!(timeout(LOOK, meta.heartbeat()).await, Ok(Ok(())))
        {
            info!(%volume, "its new size is seen with the next heartbeat");
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
            max_volumes_per_node: i64::try_from(self.mounts.most_volumes()).unwrap_or(i64::MAX),
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
