//! A mount of a volume: everything between the kernel and the stores, from its beginning to its end.
//! A volume may have several.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use serde_json::Value;
use tokio::runtime::Handle;
use tracing::{debug, warn};

use super::Volume;
use crate::chunk::Budget;
use crate::error::{Result, joined};
use crate::fuse::{End, Mount, MountOptions, Served, Session, Setup, Unmount, Wishes};
use crate::meta::Ino;
use crate::vfs::internal::{Parts, Shown};
use crate::vfs::{
    AccessLog, Bandwidth, Content, Internal, Notices, OpMetrics, Vfs, VfsOptions, VfsParts,
};

/// How long the end of a mount waits for what is in flight. Longer than a store that answers at all
/// needs; one that hangs must not keep the process for ever.
const PATIENCE: Duration = Duration::from_secs(15);

/// What is to be mounted, where and how.
pub struct MountRequest {
    pub point: PathBuf,
    /// The directory of the volume that is mounted.
    pub root: Ino,
    pub vfs: VfsOptions,
    pub mount: MountOptions,
    pub wishes: Wishes,
    pub setup: Setup,
    /// For handles and virtual files, and what is kept with them.
    pub memory: Arc<Budget>,
    /// Which virtual files there are.
    pub shown: Shown,
    /// What `.config` shows.
    pub config: Value,
    /// Where everything that is counted of the mount is to be seen, if that is not with the volume.
    pub registry: Option<Registry>,
}

/// A mounted volume. [`Mounted::close`] ends it in good order; dropped, it is unmounted and what was
/// not flushed is lost.
pub struct Mounted {
    volume: Arc<Volume>,
    vfs: Arc<Vfs>,
    session: Session,
    mount: Mount,
}

impl Mounted {
    /// Mounts a volume whose metadata is started.
    pub async fn start(volume: Arc<Volume>, request: MountRequest) -> Result<Self> {
        let vfs = make_vfs(&volume, &request)?;
        let MountRequest { point, mount, wishes, setup, .. } = request;
        let (session, mount) = serve(Arc::clone(&vfs), point, mount, wishes, setup).await?;
        Ok(Self { volume, vfs, session, mount })
    }

    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    pub fn point(&self) -> &Path {
        self.mount.point()
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Another bandwidth from now on.
    pub fn limit(&self, bandwidth: Bandwidth) {
        self.vfs.limit(bandwidth);
    }

    /// The directory of the volume that is mounted.
    pub fn root(&self) -> Ino {
        self.vfs.root()
    }

    /// Waits until the mount is gone, by whomever.
    pub async fn ended(&self) -> End {
        self.session.ended().await
    }

    /// Unmounts if that has not happened, lets what is in flight come to its end, and stores what was
    /// written. The volume stays open.
    pub async fn close(self) -> Result<()> {
        let Self { vfs, session, mount, .. } = self;
        let unmounted = take_down(&session, mount).await;
        let leftover = session.stop(PATIENCE).await;
        if leftover.unfinished > 0 || leftover.receiving {
            warn!(?leftover, "requests are still in flight at the end of the mount");
        }
        drop(session);
        let flushed = vfs.close().await;
        unmounted.and(flushed)
    }
}

fn make_vfs(volume: &Volume, request: &MountRequest) -> Result<Arc<Vfs>> {
    let MountRequest { root, vfs: options, config, registry: own, memory, shown, .. } = request;
    let (root, options, memory) = (*root, options.clone(), Arc::clone(memory));
    let (meta, store) = (Arc::clone(volume.meta()), Arc::clone(volume.store()));
    let metrics = OpMetrics::register(own.as_ref().unwrap_or(volume.registry()))?;
    // Of the volume everything is counted that others do with it as well.
    let common = Some(volume.registry()).filter(|_| *shown == Shown::All);
    let registries = own.iter().chain(common).cloned().collect();
    let content = Content::new(Arc::clone(&meta), Arc::clone(&store), options.content);
    let (log, notices) = (Arc::<AccessLog>::default(), Arc::<Notices>::default());
    let internal = Internal::new(Parts {
        root,
        meta: Arc::clone(&meta),
        content: Arc::clone(&content),
        store,
        registries,
        config: config.clone(),
        log: Arc::clone(&log),
        prefix: options.prefix_internal,
        notices: Arc::clone(&notices),
        memory: Arc::clone(&memory),
        shown: *shown,
    });
    let parts = VfsParts { root, meta, content, internal, notices, log, metrics, options, memory };
    Ok(Vfs::new(parts))
}

/// Mounts and begins to serve. Both wait for the kernel, so they run where waiting is allowed.
async fn serve(
    vfs: Arc<Vfs>,
    point: PathBuf,
    options: MountOptions,
    wishes: Wishes,
    setup: Setup,
) -> Result<(Session, Mount)> {
    let runtime = Handle::current();
    let served = Arc::new(Served::new(vfs));
    let max_readahead = wishes.max_readahead;
    let started = tokio::task::spawn_blocking(move || {
        let (mount, device) = Mount::new(&point, &options)?;
        let session = Session::start(device, Arc::clone(&served), &wishes, &setup, runtime)?;
        served.notify_by(session.notifier());
        Ok((session, mount))
    });
    let (session, mount) = joined("mounting", started).await?;
    // The kernel offers no more than its own limit, which is lower; only root may raise it.
    if let Err(error) = mount.read_ahead(max_readahead) {
        debug!(%error, "the kernel reads ahead no further than usual");
    }
    Ok((session, mount))
}

/// Takes the mount away, unless it is gone: then its place may be another's by now.
async fn take_down(session: &Session, mut mount: Mount) -> Result<()> {
    if session.has_ended() {
        mount.leave();
        return Ok(());
    }
    let gone = tokio::task::spawn_blocking(move || {
        let gone = mount.unmount(Unmount::Lazy);
        mount.leave();
        gone
    });
    joined("unmounting", gone).await
}
