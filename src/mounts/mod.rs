//! The node's volumes: every one a session of this process, shown at the targets of pods.
//!
//! Owns the table of what is published, the record of it on disk, and what all volumes share: memory,
//! caches, connections. Knows nothing of gRPC.

pub mod access;
mod bind;
mod cache;
mod condition;
mod cover;
mod id;
mod memory;
mod pv;
mod session;
mod shared;
mod state;
mod volumes;
mod wanted;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use prometheus::Registry;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use access::Access;
pub use cache::NodeCache;
pub use condition::{Condition, Report};
pub use id::VolumeId;
pub use wanted::{Limits, Wanted};

use crate::chunk::Budget;
use crate::error::{Error, Result, joined};
use crate::fuse::{RequestMemory, Unmount, mounts_below, unmount};
use crate::meta::client::{Progress, Removal};
use crate::meta::{Caller, Meta, Name};
use crate::page;
use crate::sync::{Mutex, MutexGuard};
use crate::vfs::Visibility;
use bind::TargetRoot;
use memory::Sizes;
use pv::{Inner, Pv};
use session::{Means, Session};
use state::{State, Target};
use volumes::{Lease, Volumes};

/// How long a question about a volume waits for what is being done to it.
const PATIENCE: Duration = Duration::from_secs(3);

/// What can be chosen for a node.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub state_dir: PathBuf,
    /// The kubelet's directory, which all targets lie below.
    pub kubelet_dir: PathBuf,
    /// Bytes for data of all volumes; from the limit of this process if it is not given.
    pub budget: Option<u64>,
    /// Volumes at the same time; as many as fit into memory if it is not given.
    pub max_volumes: Option<u64>,
    /// Which virtual files volumes have.
    pub shown: Visibility,
    /// Where and how blocks are cached.
    pub cache: NodeCache,
    /// Whether directories of the cache that name no owner are taken over by the first volume with their
    /// UUID.
    pub takes_unowned_caches: bool,
}

pub struct Mounts {
    options: NodeOptions,
    sizes: Sizes,
    means: Means,
    volumes: Arc<Volumes>,
    state: Arc<State>,
    targets: TargetRoot,
    table: Mutex<HashMap<VolumeId, Arc<Pv>>>,
    /// What goes on after it was answered for.
    tasks: TaskTracker,
}

impl Mounts {
    /// Takes over what a process before this one has published: its targets are known, and its mounts,
    /// which nobody serves any more, are taken out of sight where only this driver uses them. Those at
    /// targets stay until they are published again or not wanted any more: without them, a pod would
    /// write into a directory of the node.
    pub fn open(options: NodeOptions) -> Result<Arc<Self>> {
        let state = State::open(&options.state_dir)?;
        for point in mounts_below(state.points()) {
            if let Err(error) = unmount(&point, Unmount::Lazy) {
                warn!(point = %point.display(), %error, "cannot take away a mount of an earlier run");
            }
        }
        let mut table = HashMap::new();
        for (id, record) in state.all()? {
            info!(volume = %id, targets = record.targets.len(), "was published by an earlier run");
            table.insert(id.clone(), Arc::new(Pv::inherited(id, record)));
        }
        let sizes = Sizes::new(options.budget, options.max_volumes);
        info!(?sizes, "memory");
        if let Some(limit) = memory::limit().filter(|limit| sizes.total() > *limit) {
            let (needed, limit) = (sizes.total() >> 20, limit >> 20);
            warn!("the memory limit of {limit} MiB is too small: {needed} MiB may be needed");
        }
        page::keep(bytes(sizes.pool));
        let budget = Budget::with_excess(bytes(sizes.budget), bytes(sizes.excess));
        let means = Means {
            requests: RequestMemory::new(bytes(sizes.requests), bytes(sizes.requests / 4)),
            tables: Budget::new(bytes(sizes.tables)),
            shown: options.shown,
        };
        let place = state.points().display().to_string();
        Ok(Arc::new(Self {
            volumes: Arc::new(Volumes::new(
                budget,
                sizes.blocks(),
                place,
                options.takes_unowned_caches,
            )),
            targets: TargetRoot::new(&options.kubelet_dir),
            options,
            sizes,
            means,
            state: Arc::new(state),
            table: Mutex::new(table),
            tasks: TaskTracker::new(),
        }))
    }

    /// Volumes that this node takes.
    pub fn most_volumes(&self) -> u64 {
        self.sizes.volumes
    }

    /// Shows a volume at a target, and mounts it first if it is not. Again is fine, and takes up what
    /// may change: keys, limits, a session that was lost. Answers whether it was not there before.
    pub async fn publish(&self, mut wanted: Wanted) -> Result<bool> {
        self.options.cache.govern(&mut wanted.args)?;
        self.targets.check(&wanted.target)?;
        let pv = self.pv(&wanted.volume)?;
        let mut inner = pv.turn().await;
        let published = self.publish_in(&pv, &mut inner, &wanted).await;
        if published.is_err() && inner.targets.is_empty() {
            self.end(&pv, &mut inner).await;
        }
        published
    }

    /// Takes a target away; with the last one, the session. Everything that was written is stored then.
    /// Again is fine, and so is a target that nobody knows.
    pub async fn unpublish(&self, volume: &VolumeId, target: &Path) -> Result<()> {
        let (root, path) = (self.targets.clone(), target.to_owned());
        let gone = tokio::task::spawn_blocking(move || root.unbind(&path));
        let Some(pv) = self.find(volume) else {
            return joined("unmounting a target", gone).await;
        };
        joined("unmounting a target", gone).await?;
        let mut inner = pv.turn().await;
        inner.forget(target);
        if inner.targets.is_empty() {
            self.end(&pv, &mut inner).await;
            Ok(())
        } else {
            self.note(&pv, &inner).await
        }
    }

    /// Usage and condition; an error if the volume is not published here.
    pub async fn report(&self, volume: &VolumeId) -> Result<Report> {
        let pv = self.find(volume).ok_or(Error::NotFound)?;
        let Ok(inner) = timeout(PATIENCE, pv.turn()).await else {
            let message =
                "is being published or taken away, which does not come to its end".to_owned();
            let condition = Condition { abnormal: true, message };
            return Ok(Report { usage: None, condition });
        };
        Ok(condition::report(volume, &inner).await)
    }

    /// Whether a volume is published at a target here. One that is busy may be.
    pub async fn knows(&self, volume: &VolumeId, target: &Path) -> bool {
        let Some(pv) = self.find(volume) else { return false };
        match timeout(PATIENCE, pv.turn()).await {
            Ok(inner) => inner.target(target).is_some(),
            Err(_) => true,
        }
    }

    /// What may change while a volume is mounted; nothing happens to one that is not.
    pub async fn limit(&self, volume: &VolumeId, limits: Limits) {
        let Some(pv) = self.find(volume) else { return };
        if let Some(session) = &pv.turn().await.session {
            session.limit(limits);
        }
    }

    /// The metadata of a volume that is mounted here.
    pub async fn meta(&self, volume: &VolumeId) -> Option<Arc<Meta>> {
        let pv = self.find(volume)?;
        let inner = pv.turn().await;
        inner.session.as_ref().map(|session| Arc::clone(session.meta()))
    }

    /// What is counted of everything that is open.
    pub fn registries(&self) -> Vec<Registry> {
        let mut registries = self.volumes.registries();
        registries.extend(self.all().iter().filter_map(|pv| {
            let inner = pv.turn_now()?;
            inner.session.as_ref().map(|session| Registry::clone(session.registry()))
        }));
        registries
    }

    /// Ends all sessions, all at once, and stores what was written. Targets stay, without an answer,
    /// until they are published again. Answers how many were not clean after `patience`.
    pub async fn drain(&self, patience: Duration) -> usize {
        let ends = self.all().into_iter().map(|pv| async move {
            let ended = timeout(patience, async {
                let mut inner = pv.turn().await;
                match inner.session.take() {
                    Some(session) => self.finish(&pv.id, session).await,
                    None => true,
                }
            });
            if let Ok(clean) = ended.await {
                return clean;
            }
            warn!(volume = %pv.id, "was not clean: not everything was stored in {patience:?}");
            false
        });
        let ends = join_all(ends).await;
        self.tasks.close();
        if timeout(patience, self.tasks.wait()).await.is_err() {
            warn!("directories of ephemeral volumes are left behind");
        }
        ends.into_iter().filter(|clean| !clean).count()
    }

    async fn publish_in(&self, pv: &Pv, inner: &mut Inner, wanted: &Wanted) -> Result<bool> {
        let target = Target { path: wanted.target.clone(), read_only: wanted.read_only };
        check(inner, wanted, &target)?;
        let lost = inner.session.as_ref().is_some_and(Session::has_ended);
        if lost && let Some(session) = inner.session.take() {
            warn!(volume = %pv.id, "its mount was lost and is made again");
            self.finish(&pv.id, session).await;
        }
        if let Some(session) = &mut inner.session {
            session.admit(&wanted.access).await?;
            if wanted.access.update(session.meta()).await? {
                info!(volume = %pv.id, "took up changed keys");
            }
        } else {
            let again = lost || inner.inherited;
            inner.session = Some(self.begin(wanted, again).await?);
            inner.ephemeral = wanted.ephemeral;
            inner.inherited = false;
            for known in inner.targets.clone() {
                if known.path != target.path
                    && let Err(error) = inner.show(&self.targets, &known).await
                {
                    warn!(volume = %pv.id, %error, "a target is not served again");
                }
            }
        }
        if inner.target(&target.path).is_none() {
            // Once for a pod: kubelet publishes again all the time, and files may have got another group.
            if let (Some(session), Some(group), false) =
                (&inner.session, wanted.group, target.read_only)
            {
                session.give_to(group).await?;
            }
            inner.targets.push(target.clone());
        }
        // Known before it is there: what is mounted is never unknown.
        let shown = match self.note(pv, inner).await {
            Ok(()) => inner.show(&self.targets, &target).await,
            Err(error) => Err(error),
        };
        if shown.is_err() {
            inner.forget(&target.path);
        }
        shown
    }

    async fn begin(&self, wanted: &Wanted, again: bool) -> Result<Session> {
        let lease = self.volumes.lease(&wanted.volume, &wanted.access, &wanted.args).await?;
        let (state, id) = (Arc::clone(&self.state), wanted.volume.clone());
        let point = tokio::task::spawn_blocking(move || state.point(&id));
        let begun = match joined("making a mount point", point).await {
            Ok(point) => Session::begin(lease, wanted, (&self.means, &point), again).await,
            Err(error) => Err((lease, error)),
        };
        match begun {
            Ok(session) => {
                info!(volume = %wanted.volume, path = wanted.path, "mounted");
                Ok(session)
            }
            Err((lease, error)) => {
                self.volumes.release(lease).await;
                Err(error)
            }
        }
    }

    /// Nothing is left of the volume on this node.
    async fn end(&self, pv: &Arc<Pv>, inner: &mut Inner) {
        match inner.session.take() {
            Some(session) if inner.ephemeral => self.finish_ephemeral(&pv.id, session).await,
            Some(session) => drop(self.finish(&pv.id, session).await),
            None if inner.ephemeral => {
                warn!(volume = %pv.id, "its directory is left behind: nobody knows its keys any more");
            }
            None => {}
        }
        let (state, id) = (Arc::clone(&self.state), pv.id.clone());
        let removed = tokio::task::spawn_blocking(move || {
            let point = state.point(&id)?;
            // One that is in the way is cleared when the volume comes back.
            let _ = std::fs::remove_dir(point);
            state.remove(&id)
        });
        if let Ok(Err(error)) = removed.await {
            warn!(volume = %pv.id, %error, "its record stays");
        }
        let mut table = self.table();
        // Somebody may wait for a turn on it.
        if table
            .get(&pv.id)
            .is_some_and(|known| Arc::ptr_eq(known, pv) && Arc::strong_count(pv) <= 2)
        {
            table.remove(&pv.id);
        }
    }

    /// Ends a session. Answers whether everything was stored.
    async fn finish(&self, id: &VolumeId, session: Session) -> bool {
        let (lease, stored) = session.end().await;
        if let Err(error) = &stored {
            warn!(volume = %id, %error, "was not clean: something that was written is not stored");
        } else {
            info!(volume = %id, "unmounted");
        }
        self.volumes.release(lease).await;
        stored.is_ok()
    }

    /// As [`Mounts::finish`]; the directory of the volume is removed in the background.
    async fn finish_ephemeral(&self, id: &VolumeId, session: Session) {
        let root = session.root();
        let (lease, stored) = session.end().await;
        if let Err(error) = stored {
            warn!(volume = %id, %error, "was not clean");
        }
        let (volumes, id) = (Arc::clone(&self.volumes), id.clone());
        self.tasks.spawn(async move {
            if let Err(error) = remove_dir(&lease, root).await {
                warn!(volume = %id, %error, "its directory is left behind");
            }
            volumes.release(lease).await;
        });
    }

    async fn note(&self, pv: &Pv, inner: &Inner) -> Result<()> {
        let (state, id) = (Arc::clone(&self.state), pv.id.clone());
        let point = inner.session.as_ref().map(|session| session.point().to_owned());
        let record = inner.record(&id, point.unwrap_or_default());
        let noted = tokio::task::spawn_blocking(move || state.put(&record));
        joined("noting a volume", noted).await
    }

    /// A volume, which is known from now on. What is published stays, also if it is too much.
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

/// What cannot be published beside what is.
fn check(inner: &Inner, wanted: &Wanted, target: &Target) -> Result<()> {
    if let Some(known) = inner.target(&target.path)
        && known.read_only != target.read_only
    {
        let how = if known.read_only { "read-only" } else { "writable" };
        let place = target.path.display();
        return Err(Error::Refused(format!("{place}: the volume is published there {how}")));
    }
    let others = inner.targets.iter().any(|known| known.path != target.path);
    if wanted.alone && others {
        let text = format!("volume {} is for one pod, and another has it", wanted.volume);
        return Err(Error::Refused(text));
    }
    Ok(())
}

/// Removes a directory and all that is in it, past the trash.
async fn remove_dir(lease: &Lease, dir: crate::meta::Ino) -> Result<()> {
    let meta = lease.volume.meta();
    let paths = meta.paths(dir).await?;
    let Some((parent, name)) = paths.first().and_then(|path| path.rsplit_once('/')) else {
        return Err(Error::NotFound);
    };
    let (parent, _) = meta.resolve(parent).await?;
    let how = Removal { skip_trash: true, ..Removal::default() };
    let name = Name::new(name)?;
    meta.remove_tree_as(&Caller::root(), (parent, &name), how, &Progress::default()).await
}
