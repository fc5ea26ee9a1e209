//! The session of one volume: its mount, which every target shows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{IntGauge, Registry};
use serde_json::Value;
use tracing::{info, warn};

use super::access::Access;
use super::memory::{MOUNT_FLOOR, TABLES_FLOOR};
use super::volumes::{Lease, in_words};
use super::wanted::{Limits, Wanted};
use crate::chunk::Budget;
use crate::error::{Error, Result, joined};
use crate::fuse::{RequestMemory, SessionOptions, Unmount, mounted_at, unmount};
use crate::meta::client::{Limits as QuotaLimits, Progress};
use crate::meta::record::QuotaKey;
use crate::meta::record::version::CLIENT_VERSION;
use crate::meta::{Ino, Meta};
use crate::vfs::VfsOptions;
use crate::vfs::Visibility;
use crate::volume::{MountRequest, Mounted};

/// How long it is worth telling that a session is not the first.
const REESTABLISHED: Duration = Duration::from_mins(5);

/// What all sessions of a node share.
pub struct Means {
    /// For requests in flight.
    pub requests: Arc<RequestMemory>,
    /// For what is open.
    pub tables: Arc<Budget>,
    /// Which virtual files there are.
    pub shown: Visibility,
}

pub struct Session {
    lease: Lease,
    mounted: Mounted,
    /// As the kernel's table names it.
    device: String,
    registry: Registry,
    /// Whether something is wrong with it, as was found last.
    abnormal: IntGauge,
    begun: Instant,
    /// Of the file system that it shows.
    file_system: String,
    /// Of whoever used it last.
    credential: String,
    /// It stands for one that was lost.
    again: bool,
}

impl Session {
    /// Mounts the directory of the volume at `point`.
    pub async fn begin(
        lease: Lease,
        wanted: &Wanted,
        (means, point): (&Means, &Path),
        again: bool,
    ) -> Result<Self, (Lease, Error)> {
        match mount(&lease, wanted, means, point).await {
            Ok((mounted, device, (registry, abnormal))) => {
                let (file_system, credential) =
                    (wanted.access.id(), wanted.access.credential().to_owned());
                let begun = Instant::now();
                Ok(Self {
                    lease,
                    mounted,
                    device,
                    registry,
                    abnormal,
                    begun,
                    file_system,
                    credential,
                    again,
                })
            }
            Err(error) => Err((lease, error)),
        }
    }

    pub fn meta(&self) -> &Arc<Meta> {
        self.lease.volume.meta()
    }

    /// Whether an access may use the session: it is to the same file system, and either with the
    /// credentials of whoever used it last or with others that work by themselves.
    pub async fn admit(&mut self, access: &Access) -> Result<()> {
        if access.id() != self.file_system {
            return Err(Error::Refused(format!(
                "the volume is published from another file system than {} at {}",
                access.name(),
                access.place()
            )));
        }
        if access.credential() == self.credential {
            return Ok(());
        }
        access.prove(self.meta()).await?;
        access.credential().clone_into(&mut self.credential);
        Ok(())
    }

    /// Gives the volume to the group of a pod, with all that is in it, if its root is not the group's yet.
    pub async fn give_to(&self, group: u32) -> Result<()> {
        let (meta, progress) = (self.meta(), Progress::default());
        if !meta.facts().options.read_only
            && meta.give_to_group(self.root(), group, &progress).await?
        {
            info!(group, nodes = progress.done(), at = %self.point().display(), "given to a group");
        }
        Ok(())
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

    /// Takes note of its condition. Answers whether it was another before.
    pub fn note(&self, abnormal: bool) -> bool {
        let before = self.abnormal.get() != 0;
        self.abnormal.set(abnormal.into());
        before != abnormal
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
    means: &Means,
    point: &Path,
) -> Result<(Mounted, String, (Registry, IntGauge))> {
    let args = &wanted.args;
    let meta = lease.volume.meta();
    let root = prepare(meta, wanted).await?;
    let setting = meta.facts().setting();
    let registry = registry(wanted, &setting.name)?;
    let abnormal = abnormal(&registry)?;
    let vfs = args.fuse.vfs(&args.meta_cache, args.cache.max_readahead);
    let mut content = vfs.content;
    content.floor = MOUNT_FLOOR;
    let request = MountRequest {
        point: point.to_owned(),
        root,
        // Whoever walks a volume, as backups do, must not come upon files that never end.
        vfs: VfsOptions { content, hide_internal: true, ..vfs },
        mount: args.fuse.mount(&setting, args.is_read_only(), false),
        init: args.fuse.wishes(&setting),
        session: SessionOptions { memory: Arc::clone(&means.requests) },
        memory: means.tables.share(TABLES_FLOOR, means.tables.capacity() / 4),
        visibility: means.shown,
        config: shown(wanted, meta, point)?,
        registry: Some(registry.clone()),
    };
    clear(point).await?;
    let mounted = Mounted::start(Arc::clone(&lease.volume), request).await?;
    let place = mounted.point().to_owned();
    let found = tokio::task::spawn_blocking(move || mounted_at(&place)).await.ok().flatten();
    if let Some(found) = found {
        return Ok((mounted, found.device, (registry, abnormal)));
    }
    let place = point.display().to_string();
    if let Err(error) = mounted.close().await {
        warn!(%error, place, "cannot end a mount that cannot be found");
    }
    Err(Error::Unreachable { place, cause: "is not among the mounts".to_owned() })
}

/// The directory that becomes the root: there, and limited.
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
    joined("unmounting", cleared).await
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

fn abnormal(registry: &Registry) -> Result<IntGauge> {
    let help =
        "1 if something is wrong with the volume, as found when its stats were asked for last.";
    let gauge = IntGauge::new("volume_abnormal", help).map_err(Error::bad_input)?;
    registry.register(Box::new(gauge.clone())).map_err(Error::bad_input)?;
    Ok(gauge)
}
