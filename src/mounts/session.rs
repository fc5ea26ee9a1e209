//! The session of one volume: its mount, which every target shows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::Registry;
use serde_json::Value;
use tracing::warn;

use super::memory::MOUNT_FLOOR;
use super::volumes::{Lease, in_words};
use super::wanted::{Limits, Wanted};
use crate::error::{Error, Result};
use crate::fuse::{Setup, Unmount, mounted_at, unmount};
use crate::meta::client::Limits as QuotaLimits;
use crate::meta::op::setattr::AttrSet;
use crate::meta::record::QuotaKey;
use crate::meta::record::version::CLIENT_VERSION;
use crate::meta::{Caller, Ino, Meta};
use crate::vfs::VfsOptions;
use crate::volume::{MountRequest, Mounted};

/// What the group of a pod may do in the root of its volume.
const GROUP_MODE: u16 = 0o2070;
/// How long it is worth telling that a session is not the first.
const REESTABLISHED: Duration = Duration::from_mins(5);

pub struct Session {
    lease: Lease,
    mounted: Mounted,
    /// As the kernel's table names it.
    device: String,
    registry: Registry,
    begun: Instant,
    /// It stands for one that was lost.
    again: bool,
}

impl Session {
    /// Mounts the directory of the volume at `point`.
    pub async fn begin(
        lease: Lease,
        wanted: &Wanted,
        point: &Path,
        again: bool,
    ) -> Result<Self, (Lease, Error)> {
        match mount(&lease, wanted, point).await {
            Ok((mounted, device, registry)) => {
                Ok(Self { lease, mounted, device, registry, begun: Instant::now(), again })
            }
            Err(error) => Err((lease, error)),
        }
    }

    pub fn meta(&self) -> &Arc<Meta> {
        self.lease.volume.meta()
    }

    pub fn lease(&self) -> &Lease {
        &self.lease
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
        &self.registry
    }

    /// Whether nobody can use it any more.
    pub fn has_ended(&self) -> bool {
        self.mounted.session().has_ended()
    }

    /// Whether it stands for one that was lost a moment ago.
    pub fn is_reestablished(&self) -> bool {
        self.again && self.begun.elapsed() < REESTABLISHED
    }

    pub fn limit(&self, limits: Limits) {
        self.mounted.limit(limits.bandwidth);
        if let Some(bytes) = limits.cache {
            self.lease.volume.store().share_cache(bytes);
        }
    }

    /// Unmounts, and stores what was written. The lease is to be given back whatever comes of it.
    pub async fn end(self) -> (Lease, Result<()>) {
        let Self { lease, mounted, .. } = self;
        (lease, mounted.close().await)
    }
}

async fn mount(
    lease: &Lease,
    wanted: &Wanted,
    point: &Path,
) -> Result<(Mounted, String, Registry)> {
    let args = &wanted.args;
    let meta = lease.volume.meta();
    let root = prepare(meta, wanted).await?;
    let setting = meta.facts().setting();
    let registry = registry(wanted, &setting.name)?;
    let vfs = args.fuse.vfs(&args.meta_cache, args.cache.max_readahead);
    let mut content = vfs.content;
    content.floor = MOUNT_FLOOR;
    let request = MountRequest {
        point: point.to_owned(),
        root,
        vfs: VfsOptions { content, ..vfs },
        mount: args.fuse.mount(&setting, args.is_read_only(), false),
        wishes: args.fuse.wishes(&setting),
        setup: Setup::default(),
        config: shown(wanted, meta, point)?,
        registry: Some(registry.clone()),
    };
    clear(point).await?;
    let mounted = Mounted::start(Arc::clone(&lease.volume), request).await?;
    let place = mounted.point().to_owned();
    let found = tokio::task::spawn_blocking(move || mounted_at(&place)).await.ok().flatten();
    if let Some(found) = found {
        return Ok((mounted, found.device, registry));
    }
    let place = point.display().to_string();
    if let Err(error) = mounted.close().await {
        warn!(%error, place, "cannot end a mount that cannot be found");
    }
    Err(Error::Unreachable { place, cause: "is not among the mounts".to_owned() })
}

/// The directory that becomes the root: there, limited, and its group's.
async fn prepare(meta: &Meta, wanted: &Wanted) -> Result<Ino> {
    let read_only = meta.facts().options.read_only;
    let root = match meta.resolve(&wanted.path).await {
        Ok((root, attr)) if attr.is_dir() => root,
        Ok(_) => return Err(Error::Refused(format!("{:?} is not a directory", wanted.path))),
        Err(Error::NotFound) if !read_only => meta.ensure_dir(&wanted.path).await?,
        Err(Error::NotFound) => {
            return Err(Error::Refused(format!("there is no directory {:?}", wanted.path)));
        }
        Err(error) => return Err(error),
    };
    if read_only {
        return Ok(root);
    }
    if let Some(capacity) = wanted.capacity.filter(|_| root != Ino::ROOT)
        && meta.quota(QuotaKey::Dir(root)).await?.is_none()
    {
        let limits = QuotaLimits { space: i64::try_from(capacity).ok(), inodes: None };
        meta.quota_set(QuotaKey::Dir(root), limits, false).await?;
    }
    if let Some(group) = wanted.group {
        let attr = meta.getattr(root).await?;
        let mode = attr.mode | GROUP_MODE;
        if attr.gid != group || attr.mode != mode {
            let set = AttrSet { gid: Some(group), ..AttrSet::default() };
            meta.setattr(&Caller::root(), root, set).await?;
            // A change of the group may have taken the bit away.
            let set = AttrSet { mode: Some(mode), ..AttrSet::default() };
            meta.setattr(&Caller::root(), root, set).await?;
        }
    }
    Ok(root)
}

/// Takes away what a process before this one has left there.
async fn clear(point: &Path) -> Result<()> {
    let point: PathBuf = point.to_owned();
    let cleared = tokio::task::spawn_blocking(move || {
        while mounted_at(&point).is_some() {
            unmount(&point, Unmount::Lazy)?;
        }
        Ok(())
    });
    cleared.await.unwrap_or(Err(Error::Interrupted))
}

fn shown(wanted: &Wanted, meta: &Meta, point: &Path) -> Result<Value> {
    wanted.args.shown(meta, &point.to_string_lossy(), None).map_err(in_words)
}

fn registry(wanted: &Wanted, name: &str) -> Result<Registry> {
    let mut labels = HashMap::from([
        ("vol_name".to_owned(), name.to_owned()),
        ("juicefs_version".to_owned(), CLIENT_VERSION.to_owned()),
        ("volume_id".to_owned(), wanted.volume.to_string()),
    ]);
    labels.extend(wanted.labels.iter().cloned());
    Registry::new_custom(Some("juicefs".to_owned()), Some(labels)).map_err(Error::bad_input)
}
