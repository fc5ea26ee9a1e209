//! The FUSE mount of one PV, which all its targets show.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{IntGauge, Registry};
use serde_json::Value;
use tracing::{info, warn};

use super::keeper_link::KeeperLink;
use super::memory::{MOUNT_FLOOR, TABLES_FLOOR};
use super::open_file_systems::{OpenFileSystem, option_error};
use super::publish::{MountLimits, PublishRequest};
use super::volume_id::VolumeId;
use crate::access::Access;
use crate::chunk::Budget;
use crate::error::{Error, Result, joined};
use crate::fuse::{RequestMemory, SessionOptions, Unmount, mounted_at, unmount};
use crate::ledger::Ledger;
use crate::meta::client::{Limits as QuotaLimits, Progress};
use crate::meta::record::QuotaKey;
use crate::meta::record::version::CLIENT_VERSION;
use crate::meta::{Ino, Meta};
use crate::vfs::VfsOptions;
use crate::vfs::Visibility;
use crate::volume::{KeptSession, MountRequest, Mounted};

/// How long the condition reports that files were lost.
const REPORT_LOST_FILES: Duration = Duration::from_mins(5);

/// What all mounts of a node share.
pub struct SharedResources {
    /// Memory for kernel requests.
    pub requests: Arc<RequestMemory>,
    /// Memory for open files.
    pub tables: Arc<Budget>,
    /// Which virtual files exist.
    pub visibility: Visibility,
    /// Who holds the mounts while this process is replaced.
    pub keeper: Option<Arc<KeeperLink>>,
}

/// A mounted PV.
pub struct Mount {
    file_system: OpenFileSystem,
    mounted: Mounted,
    /// As in the kernel's mount table.
    device: String,
    metrics: MountMetrics,
    started: Instant,
    /// The id of the mounted file system.
    file_system_id: String,
    /// The credential digest of the last publish.
    credential: String,
    /// Whether it replaces a mount that was lost.
    replaces_lost: bool,
    volume: VolumeId,
    /// The request that it was started with, for the next process.
    origin: Value,
    keeper: Option<Arc<KeeperLink>>,
}

struct MountMetrics {
    registry: Registry,
    /// Whether the last examined condition was abnormal.
    abnormal: IntGauge,
    /// Whether it survives this process.
    protected: IntGauge,
}

impl Mount {
    /// Mounts the directory of the volume at `point`.
    pub async fn start(
        file_system: OpenFileSystem,
        request: &PublishRequest,
        shared: &SharedResources,
        point: &Path,
        replaces_lost: bool,
    ) -> Result<Self, (OpenFileSystem, Error)> {
        match mount(&file_system, request, shared, point, None).await {
            Ok(started) => Ok(Self::new(file_system, started, request, shared, replaces_lost)),
            Err(error) => Err((file_system, error)),
        }
    }

    /// Continues with the mount of another process. If this fails, the mount stays as it is.
    pub async fn adopt(
        file_system: OpenFileSystem,
        request: &PublishRequest,
        shared: &SharedResources,
        kept: KeptSession,
    ) -> Result<Self, (OpenFileSystem, Error)> {
        let point = kept.record.point.clone();
        match mount(&file_system, request, shared, &point, Some(kept)).await {
            Ok(started) => Ok(Self::new(file_system, started, request, shared, false)),
            Err(error) => Err((file_system, error)),
        }
    }

    fn new(
        file_system: OpenFileSystem,
        (mounted, device, metrics): (Mounted, String, MountMetrics),
        request: &PublishRequest,
        shared: &SharedResources,
        replaces_lost: bool,
    ) -> Self {
        let mount = Self {
            file_system,
            mounted,
            device,
            metrics,
            started: Instant::now(),
            file_system_id: request.access.id(),
            credential: request.access.credential().to_owned(),
            replaces_lost,
            volume: request.volume.clone(),
            origin: request.origin.clone(),
            keeper: shared.keeper.clone(),
        };
        mount.keep();
        mount
    }

    pub fn meta(&self) -> &Arc<Meta> {
        self.file_system.volume.meta()
    }

    /// Checks that an access may use this mount: it must name the same file system, and have either
    /// the credentials of the last publish or others that can log in by themselves.
    pub async fn authorize(&mut self, access: &Access) -> Result<()> {
        if access.id() != self.file_system_id {
            return Err(Error::Refused(format!(
                "the volume is published from another file system than {} at {}",
                access.name(),
                access.masked_address()
            )));
        }
        if access.credential() == self.credential {
            return Ok(());
        }
        access.verify_login(self.meta()).await?;
        access.credential().clone_into(&mut self.credential);
        Ok(())
    }

    /// Gives the volume with its content to the group of a pod, unless its root belongs to the
    /// group already.
    pub async fn set_group(&self, group: u32) -> Result<()> {
        let (meta, progress) = (self.meta(), Progress::default());
        if !meta.context().options.read_only
            && meta.change_group_recursively(self.root(), group, &progress).await?
        {
            let (entries, point) = (progress.done(), self.point().display());
            info!(group, entries, %point, "changed the group");
        }
        Ok(())
    }

    pub fn file_system(&self) -> &OpenFileSystem {
        &self.file_system
    }

    pub fn root(&self) -> Ino {
        self.mounted.root()
    }

    pub fn point(&self) -> &Path {
        self.mounted.point()
    }

    pub fn device(&self) -> &str {
        &self.device
    }

    pub fn registry(&self) -> &Registry {
        &self.metrics.registry
    }

    /// Records the condition. Returns whether it has changed.
    pub fn set_abnormal(&self, abnormal: bool) -> bool {
        let before = self.metrics.abnormal.get() != 0;
        self.metrics.abnormal.set(abnormal.into());
        before != abnormal
    }

    /// Whether it was unmounted by something else.
    pub fn has_ended(&self) -> bool {
        self.mounted.session().has_ended()
    }

    /// Whether it replaces a mount that was lost recently.
    pub fn recently_replaced_lost(&self) -> bool {
        self.replaces_lost && self.started.elapsed() < REPORT_LOST_FILES
    }

    pub fn set_limits(&self, limits: MountLimits) {
        self.mounted.limit(limits.bandwidth);
        if let Some(bytes) = limits.cache {
            self.file_system.volume.store().share_cache(bytes);
        }
    }

    /// Unmounts and stores written data. The caller must release the file system even after an
    /// error.
    pub async fn close(self) -> (OpenFileSystem, Result<()>) {
        let is_kept = self.is_kept();
        let Self { file_system, mounted, keeper, volume, .. } = self;
        let closed = mounted.close().await;
        if let Some(keeper) = keeper.and_then(|keeper| keeper.client()).filter(|_| is_kept)
            && let Err(error) = keeper.remove(volume.as_str())
        {
            warn!(%volume, %error, "the keeper still holds its mount, which is gone");
        }
        (file_system, closed)
    }

    /// Whether it survives this process.
    pub fn is_kept(&self) -> bool {
        self.metrics.protected.get() != 0
    }

    /// Records that the keeper is gone: it does not survive this process any more.
    pub fn set_unprotected(&self) {
        self.metrics.protected.set(0);
    }

    /// Lets the keeper hold it. Without, it works but does not survive this process.
    pub fn keep(&self) {
        let volume = &self.volume;
        let Some(keeper) = &self.keeper else { return };
        let kept = match keeper.client() {
            Some(client) => self.mounted.keep(&client, volume.as_str(), self.origin.clone()),
            None => Err(Error::Refused("it is not connected".to_owned())),
        };
        match &kept {
            Ok(true) => {}
            Ok(false) => {
                warn!(%volume, "it does not survive the driver: that needs Linux 5.1 or newer");
            }
            Err(error) => {
                warn!(%volume, %error, "it does not survive the driver: the keeper does not hold it");
            }
        }
        self.metrics.protected.set(matches!(kept, Ok(true)).into());
    }

    /// Stores written data and stops serving; the mount waits for the next process. The caller must
    /// hand the file system over even after an error.
    pub async fn hand_over(self) -> (OpenFileSystem, Result<()>) {
        let Self { file_system, mounted, .. } = self;
        (file_system, mounted.hand_over().await)
    }
}

async fn mount(
    file_system: &OpenFileSystem,
    request: &PublishRequest,
    shared: &SharedResources,
    point: &Path,
    kept: Option<KeptSession>,
) -> Result<(Mounted, String, MountMetrics)> {
    let args = &request.args;
    let meta = file_system.volume.meta();
    let (root, ledger) = if let Some(kept) = &kept {
        (kept.record.root(), Some(kept.take_ledger()?))
    } else {
        let root = prepare_root(meta, request).await?;
        (root, shared.keeper.as_ref().map(|_| Ledger::create()).transpose()?)
    };
    let setting = meta.context().setting();
    let metrics = MountMetrics::new(request, &setting.name)?;
    let vfs = args.fuse.vfs(&args.meta_cache, args.cache.max_readahead);
    let mut content = vfs.content;
    content.floor = MOUNT_FLOOR;
    let fuse_request = MountRequest {
        point: point.to_owned(),
        root,
        // A backup that walks the volume must not find files that never end.
        vfs: VfsOptions { content, hide_internal: true, ..vfs },
        mount: args.fuse.mount(&setting, args.is_read_only(), false),
        init: args.fuse.init_options(&setting),
        session: SessionOptions { memory: Arc::clone(&shared.requests), ledger },
        memory: shared.tables.share(TABLES_FLOOR, shared.tables.capacity() / 4),
        visibility: shared.visibility,
        config: config_file(request, meta, point)?,
        registry: Some(metrics.registry.clone()),
    };
    let volume = Arc::clone(&file_system.volume);
    let mounted = if let Some(KeptSession { record, device, .. }) = kept {
        Mounted::adopt(volume, fuse_request, device, record.agreed).await?
    } else {
        unmount_leftovers(point).await?;
        Mounted::start(volume, fuse_request).await?
    };
    let place = mounted.point().to_owned();
    let found = tokio::task::spawn_blocking(move || mounted_at(&place)).await.ok().flatten();
    if let Some(found) = found {
        return Ok((mounted, found.device, metrics));
    }
    let place = point.display().to_string();
    if let Err(error) = mounted.close().await {
        warn!(%error, place, "cannot unmount what is missing in the mount table");
    }
    Err(Error::Unreachable { place, cause: "it is missing in the mount table".to_owned() })
}

/// Returns the directory to mount; creates it if needed, and sets its quota if it has none.
async fn prepare_root(meta: &Meta, request: &PublishRequest) -> Result<Ino> {
    let read_only = meta.context().options.read_only;
    let root = match meta.resolve(&request.path).await {
        Ok((root, attr)) if attr.is_dir() => root,
        Ok(_) => return Err(Error::Refused(format!("{:?} is not a directory", request.path))),
        Err(Error::NotFound) if !read_only => meta.ensure_dir(&request.path).await?,
        Err(Error::NotFound) => {
            let path = &request.path;
            return Err(Error::Refused(format!(
                "directory {path:?} not found, and the mount is read-only"
            )));
        }
        Err(error) => return Err(error),
    };
    if read_only {
        return Ok(root);
    }
    if let Some(capacity) = request.capacity.filter(|_| root != Ino::ROOT)
        && meta.quota(QuotaKey::Dir(root)).await?.is_none()
    {
        let limits = QuotaLimits { space: i64::try_from(capacity).ok(), inodes: None };
        meta.quota_set(QuotaKey::Dir(root), limits, false).await?;
    }
    Ok(root)
}

/// Unmounts what an earlier process left at the mount point.
async fn unmount_leftovers(point: &Path) -> Result<()> {
    let point: PathBuf = point.to_owned();
    let cleared = tokio::task::spawn_blocking(move || {
        while mounted_at(&point).is_some() {
            unmount(&point, Unmount::Lazy)?;
        }
        Ok(())
    });
    joined("unmounting", cleared).await
}

fn config_file(request: &PublishRequest, meta: &Meta, point: &Path) -> Result<Value> {
    request.args.config_file(meta, &point.to_string_lossy(), None).map_err(option_error)
}

impl MountMetrics {
    fn new(request: &PublishRequest, file_system: &str) -> Result<Self> {
        let mut labels = HashMap::from([
            ("vol_name".to_owned(), file_system.to_owned()),
            ("juicefs_version".to_owned(), CLIENT_VERSION.to_owned()),
            ("volume_id".to_owned(), request.volume.to_string()),
        ]);
        labels.extend(request.labels.iter().cloned());
        let registry = Registry::new_custom(Some("juicefs".to_owned()), Some(labels))
            .map_err(Error::bad_input)?;
        let help =
            "1 if the condition of the volume was abnormal when its stats were last requested.";
        let abnormal = IntGauge::new("volume_abnormal", help).map_err(Error::bad_input)?;
        registry.register(Box::new(abnormal.clone())).map_err(Error::bad_input)?;
        let help = "1 if the mount survives a restart or crash of the driver.";
        let protected = IntGauge::new("volume_protected", help).map_err(Error::bad_input)?;
        registry.register(Box::new(protected.clone())).map_err(Error::bad_input)?;
        Ok(Self { registry, abnormal, protected })
    }
}
