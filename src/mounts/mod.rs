//! The PVs of this node: each is a FUSE mount of this process, bind-mounted at the targets of its
//! pods.
//!
//! Owns the table of published PVs, its copy on disk, and what all mounts share: memory, caches,
//! connections. Knows nothing of gRPC.

mod adopt;
mod cache;
mod condition;
mod keeper_link;
mod memory;
mod mount;
mod open_file_systems;
mod publish;
mod pv;
mod ref_counted;
mod state_dir;
mod targets;
mod unpublish;
mod volume_id;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use cache::NodeCache;
pub use condition::{Condition, PvReport};
pub use keeper_link::KeeperLink;
pub use publish::{MountLimits, PublishRequest};
pub use volume_id::VolumeId;

use crate::buffer_pool;
use crate::chunk::Budget;
use crate::error::{Error, Result, joined};
use crate::fuse::RequestMemory;
use crate::meta::Meta;
use crate::sync::{Mutex, MutexGuard};
use crate::vfs::Visibility;
use memory::MemorySizes;
use mount::SharedResources;
use open_file_systems::OpenFileSystems;
use pv::{Pv, PvState};
use state_dir::StateDir;
use targets::TargetRoot;

/// How long a query waits for an operation on the same volume.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// The settings of a node.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub state_dir: PathBuf,
    /// The kubelet's directory, which contains all targets.
    pub kubelet_dir: PathBuf,
    /// Bytes for the data of all volumes; derived from the memory limit if not given.
    pub budget: Option<u64>,
    /// Maximum number of volumes; as many as fit into memory if not given.
    pub max_volumes: Option<u64>,
    /// The virtual files of volumes.
    pub visibility: Visibility,
    /// The block cache.
    pub cache: NodeCache,
    /// Whether cache directories without an owner go to the first file system with their UUID.
    pub takes_unowned_caches: bool,
}

/// All PVs of this node.
pub struct Mounts {
    options: NodeOptions,
    sizes: MemorySizes,
    shared: SharedResources,
    file_systems: Arc<OpenFileSystems>,
    state_dir: Arc<StateDir>,
    targets: TargetRoot,
    table: Mutex<HashMap<VolumeId, Arc<Pv>>>,
    /// Work that continues after its call has returned.
    tasks: TaskTracker,
}

impl Mounts {
    /// Prepares to serve, and changes nothing of what another process may serve still;
    /// [`Mounts::adopt`] continues with it.
    pub fn open(options: NodeOptions, keeper: Option<Arc<KeeperLink>>) -> Result<Arc<Self>> {
        let state_dir = StateDir::open(&options.state_dir)?;
        let sizes = MemorySizes::new(options.budget, options.max_volumes);
        info!(?sizes, "memory limits");
        if let Some(limit) = memory::limit().filter(|limit| sizes.total() > *limit) {
            let (needed, limit) = (sizes.total() >> 20, limit >> 20);
            warn!(
                "the memory limit of {limit} MiB is too low: set {needed} MiB or lower --max-volumes"
            );
        }
        buffer_pool::set_limit(bytes(sizes.pool));
        let budget = Budget::with_excess(bytes(sizes.budget), bytes(sizes.excess));
        let shared = SharedResources {
            requests: RequestMemory::new(bytes(sizes.requests), bytes(sizes.requests / 4)),
            tables: Budget::new(bytes(sizes.tables)),
            visibility: options.visibility,
            keeper,
        };
        let mount_point = state_dir.mount_points_dir().display().to_string();
        Ok(Arc::new(Self {
            file_systems: Arc::new(OpenFileSystems::new(
                budget,
                sizes.blocks(),
                mount_point,
                options.takes_unowned_caches,
            )),
            targets: TargetRoot::new(&options.kubelet_dir),
            options,
            sizes,
            shared,
            state_dir: Arc::new(state_dir),
            table: Mutex::default(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Returns the maximum number of volumes.
    pub fn max_volumes(&self) -> u64 {
        self.sizes.volumes
    }

    /// Returns usage and condition; `NotFound` if the volume is not published here.
    pub async fn report(&self, volume: &VolumeId) -> Result<PvReport> {
        let pv = self.find(volume).ok_or(Error::NotFound)?;
        let Ok(state) = timeout(LOCK_TIMEOUT, pv.lock()).await else {
            let message =
                "it is being published or unpublished, which does not complete".to_owned();
            let condition = Condition { abnormal: true, message };
            return Ok(PvReport { usage: None, condition });
        };
        Ok(condition::report(volume, &state).await)
    }

    /// Whether a volume is published at a target here. Returns true if another operation does not
    /// complete.
    pub async fn is_published(&self, volume: &VolumeId, target: &Path) -> bool {
        let Some(pv) = self.find(volume) else { return false };
        match timeout(LOCK_TIMEOUT, pv.lock()).await {
            Ok(state) => state.target(target).is_some(),
            Err(_) => true,
        }
    }

    /// Changes the limits of a volume, if it is mounted.
    pub async fn set_limits(&self, volume: &VolumeId, limits: MountLimits) {
        let Some(pv) = self.find(volume) else { return };
        if let Some(mount) = &pv.lock().await.mount {
            mount.set_limits(limits);
        }
    }

    /// Returns the metadata client of a mounted volume.
    pub async fn meta(&self, volume: &VolumeId) -> Option<Arc<Meta>> {
        let pv = self.find(volume)?;
        let state = pv.lock().await;
        state.mount.as_ref().map(|mount| Arc::clone(mount.meta()))
    }

    /// Returns the metrics of all mounts and open file systems.
    pub fn registries(&self) -> Vec<Registry> {
        let mut registries = self.file_systems.registries();
        registries.extend(self.all().iter().filter_map(|pv| {
            let state = pv.try_lock()?;
            state.mount.as_ref().map(|mount| Registry::clone(mount.registry()))
        }));
        registries
    }

    async fn record(&self, pv: &Pv, state: &PvState) -> Result<()> {
        let (state_dir, id) = (Arc::clone(&self.state_dir), pv.id.clone());
        let point = state.mount.as_ref().map(|mount| mount.point().to_owned());
        let record = state.to_record(&id, point.unwrap_or_default());
        let recorded = tokio::task::spawn_blocking(move || state_dir.put(&record));
        joined("noting a volume", recorded).await
    }

    /// Returns the PV of an id; adds it to the table if there is room. Published PVs stay even if
    /// there is not.
    fn pv(&self, id: &VolumeId) -> Result<Arc<Pv>> {
        let mut table = self.table();
        if let Some(known) = table.get(id) {
            return Ok(Arc::clone(known));
        }
        let (count, most) = (table.len() as u64, self.sizes.volumes);
        if count >= most {
            return Err(Error::Exhausted(format!(
                "this node has {count} volumes and memory for {most}: raise the memory limit of the \
                 driver, or set --max-volumes (node.maxVolumes)"
            )));
        }
        let pv = Arc::new(Pv::new(id.clone()));
        table.insert(id.clone(), Arc::clone(&pv));
        Ok(pv)
    }

    fn find(&self, id: &VolumeId) -> Option<Arc<Pv>> {
        self.table().get(id).cloned()
    }

    fn all(&self) -> Vec<Arc<Pv>> {
        self.table().values().cloned().collect()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<VolumeId, Arc<Pv>>> {
        self.table.lock()
    }
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
