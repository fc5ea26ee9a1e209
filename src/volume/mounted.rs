//! A mount of a volume: everything between the kernel and the stores, from start to end. A volume
//! may have several mounts.

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
use crate::fuse::{
    InitOptions, Mount, MountMethod, MountOptions, Negotiated, ServedDevice, Session, SessionEnd,
    SessionOptions, Unmount, VfsAdapter,
};
use crate::ledger::Ledger;
use crate::meta::Ino;
use crate::vfs::{
    AccessLog, Bandwidth, Content, Invalidator, OpMetrics, Vfs, VfsOptions, VfsParts, VirtualFiles,
    VirtualFilesParts, Visibility,
};

/// How long closing waits for work in flight. Longer than a responsive store needs; one that hangs
/// must not block the process forever.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a hand-over waits for work in flight. The next process gets the rest again.
const HAND_OVER_PATIENCE: Duration = Duration::from_millis(500);

/// What to mount, where and how.
pub struct MountRequest {
    pub point: PathBuf,
    /// The directory of the volume to mount.
    pub root: Ino,
    pub vfs: VfsOptions,
    pub mount: MountOptions,
    pub init: InitOptions,
    pub session: SessionOptions,
    /// For handles and virtual files, and their state.
    pub memory: Arc<Budget>,
    /// Which virtual files exist.
    pub visibility: Visibility,
    /// Shown by `.config`.
    pub config: Value,
    /// Where the metrics of the mount are registered, if not with the volume.
    pub registry: Option<Registry>,
}

/// A mounted volume. [`Mounted::close`] ends it cleanly; dropping it unmounts and loses data that
/// was not flushed.
pub struct Mounted {
    volume: Arc<Volume>,
    vfs: Arc<Vfs>,
    session: Session,
    mount: Mount,
    ledger: Option<Arc<Ledger>>,
}

impl Mounted {
    /// Mounts a volume whose metadata session is started.
    pub async fn start(volume: Arc<Volume>, request: MountRequest) -> Result<Self> {
        let (vfs, ledger) = (make_vfs(&volume, &request)?, request.session.ledger.clone());
        let (session, mount) = serve(Arc::clone(&vfs), request).await?;
        Ok(Self { volume, vfs, session, mount, ledger })
    }

    /// Continues with a mount that another process served. The metadata session is resumed, and
    /// `request` has the ledger of the mount. If this fails, the mount stays as it is.
    pub async fn adopt(
        volume: Arc<Volume>,
        request: MountRequest,
        device: ServedDevice,
        agreed: Negotiated,
    ) -> Result<Self> {
        let (vfs, ledger) = (make_vfs(&volume, &request)?, request.session.ledger.clone());
        vfs.adopt().await?;
        let adapter = Arc::new(VfsAdapter::new(Arc::clone(&vfs)));
        let (MountRequest { point, session: options, .. }, runtime) = (request, Handle::current());
        let mount = Mount::adopt(&point, MountMethod::of_this_process());
        let resumed = Session::resume(device, agreed, Arc::clone(&adapter), &options, runtime);
        match resumed {
            Ok(session) => {
                adapter.connect_kernel(session.notifier());
                Ok(Self { volume, vfs, session, mount, ledger })
            }
            Err(error) => {
                mount.leave();
                Err(error)
            }
        }
    }

    /// Stores all written data and stops serving. The mount stays, with everything that is open:
    /// its users wait for the next process. The volume stays open.
    pub async fn hand_over(self) -> Result<()> {
        let Self { vfs, session, mount, .. } = self;
        // Most of it while requests are still handled.
        let stored = vfs.flush_all().await;
        let leftover = session.hand_over(HAND_OVER_PATIENCE).await;
        debug!(?leftover, "stopped serving the mount");
        mount.leave();
        let flushed = vfs.hand_over().await;
        drop(session);
        stored.and(flushed)
    }

    /// Whether another process can continue with the mount, even if this one dies.
    pub fn can_be_adopted(&self) -> bool {
        self.ledger.is_some() && self.session.can_be_resumed()
    }

    /// What the next process must know, if there can be one.
    pub fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledger.as_ref()
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

    /// Sets new bandwidth limits.
    pub fn limit(&self, bandwidth: Bandwidth) {
        self.vfs.limit(bandwidth);
    }

    /// The mounted directory of the volume.
    pub fn root(&self) -> Ino {
        self.vfs.root()
    }

    /// Waits until the mount is gone, for any reason.
    pub async fn ended(&self) -> SessionEnd {
        self.session.ended().await
    }

    /// Unmounts if that has not happened, waits for work in flight, and stores written data. The
    /// volume stays open.
    pub async fn close(self) -> Result<()> {
        let Self { vfs, session, mount, .. } = self;
        let unmounted = unmount(&session, mount).await;
        let leftover = session.stop(STOP_TIMEOUT).await;
        if leftover.unfinished > 0 || leftover.receiving {
            warn!(?leftover, "requests are still in flight at the end of the mount");
        }
        drop(session);
        let flushed = vfs.close().await;
        unmounted.and(flushed)
    }
}

fn make_vfs(volume: &Volume, request: &MountRequest) -> Result<Arc<Vfs>> {
    let MountRequest { root, vfs: options, config, registry: own, memory, visibility, .. } =
        request;
    let (root, options, memory) = (*root, options.clone(), Arc::clone(memory));
    let (meta, store) = (Arc::clone(volume.meta()), Arc::clone(volume.store()));
    let metrics = OpMetrics::register(own.as_ref().unwrap_or(volume.registry()))?;
    // The metrics of the volume include what other mounts do with it.
    let common = Some(volume.registry()).filter(|_| *visibility == Visibility::All);
    let registries = own.iter().chain(common).cloned().collect();
    let ledger = request.session.ledger.clone();
    let content = Content::with_ledger(
        Arc::clone(&meta),
        Arc::clone(&store),
        options.content,
        ledger.clone(),
    );
    let (log, invalidator) = (Arc::<AccessLog>::default(), Arc::<Invalidator>::default());
    let virtual_files = VirtualFiles::new(VirtualFilesParts {
        root,
        meta: Arc::clone(&meta),
        content: Arc::clone(&content),
        store,
        registries,
        config: config.clone(),
        log: Arc::clone(&log),
        prefix: options.prefix_internal,
        invalidator: Arc::clone(&invalidator),
        memory: Arc::clone(&memory),
        visibility: *visibility,
    });
    Ok(Vfs::new(VfsParts {
        root,
        meta,
        content,
        virtual_files,
        invalidator,
        log,
        metrics,
        options,
        memory,
        ledger,
    }))
}

/// Mounts and starts a session. Both block on the kernel, so they run on a blocking thread.
async fn serve(vfs: Arc<Vfs>, request: MountRequest) -> Result<(Session, Mount)> {
    let MountRequest { point, mount: options, init, session: session_options, .. } = request;
    let runtime = Handle::current();
    let adapter = Arc::new(VfsAdapter::new(vfs));
    let max_readahead = init.max_readahead;
    let started = tokio::task::spawn_blocking(move || {
        let (mount, device) = Mount::new(&point, &options)?;
        let session =
            Session::start(device, Arc::clone(&adapter), &init, &session_options, runtime)?;
        adapter.connect_kernel(session.notifier());
        Ok((session, mount))
    });
    let (session, mount) = joined("mounting", started).await?;
    // The kernel offers no more than its own, lower limit; only root may raise it.
    if let Err(error) = mount.read_ahead(max_readahead) {
        debug!(%error, "cannot raise the kernel's readahead");
    }
    Ok((session, mount))
}

/// Unmounts, unless the mount is gone: then another may be mounted at the same path by now.
async fn unmount(session: &Session, mut mount: Mount) -> Result<()> {
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
