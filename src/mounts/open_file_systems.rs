//! The file systems that are open on this node, shared by mounts.
//!
//! Mounts of one file system with the same credentials and options share a metadata client, a block
//! store and an upload pool. Other credentials open their own client, and so have to log in. A
//! mount with a bandwidth limit has its own block store over the shared metadata. Mounts with the
//! same cache directories share one cache, in which each file system has its own part.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus::Registry;
use tracing::{info, warn};

use super::memory::VOLUME_FLOOR;
use super::ref_counted::RefCountedMap;
use super::volume_id::VolumeId;
use crate::access::Access;
use crate::chunk::{Budget, Cache, CacheOptions, CacheOwner};
use crate::error::{Error, Result};
use crate::meta::record::version::CLIENT_VERSION;
use crate::meta::{Ino, Meta, Options, Registration, Sid};
use crate::options::mount::MountArgs;
use crate::volume::{Backups, Volume, VolumeOptions};

/// Memory for a backup of metadata. They take turns.
const BACKUP_MEMORY: usize = 32 << 20;

/// All open file systems.
pub struct OpenFileSystems {
    budget: Arc<Budget>,
    /// The mount point that the sessions of this node register.
    mount_point: String,
    /// Whether cache directories without an owner are taken over.
    takes_unowned: bool,
    /// The maximum number of blocks in a cache on disk.
    max_blocks: u64,
    metas: RefCountedMap<Arc<Meta>>,
    open: RefCountedMap<Arc<Volume>>,
    /// One for each metadata client.
    backups: RefCountedMap<Option<Arc<Backups>>>,
    caches: RefCountedMap<Arc<Cache>>,
}

/// A file system in use by one mount, to be released.
pub struct OpenFileSystem {
    pub volume: Arc<Volume>,
    pub cache: Option<Arc<Cache>>,
    meta_key: String,
    volume_key: String,
    cache_key: String,
}

impl OpenFileSystems {
    pub fn new(
        budget: Arc<Budget>,
        max_blocks: u64,
        mount_point: String,
        takes_unowned: bool,
    ) -> Self {
        let (metas, open, caches) =
            (RefCountedMap::default(), RefCountedMap::default(), RefCountedMap::default());
        let backups = RefCountedMap::default();
        Self { budget, mount_point, takes_unowned, max_blocks, metas, open, backups, caches }
    }

    /// Opens the file system for a mount of `id` with these options, or shares an open one. If it is
    /// opened, it resumes the session of an earlier process, if one is given.
    pub async fn acquire(
        &self,
        id: &VolumeId,
        access: &Access,
        args: &MountArgs,
        resume: Option<Sid>,
    ) -> Result<OpenFileSystem> {
        let registration = resume.map_or(Registration::New, Registration::Resume);
        let options = self.meta_options(args);
        let meta_key = format!("{} {} {options:?}", access.id(), access.credential());
        let is_new = AtomicBool::new(false);
        let connect = || async {
            is_new.store(true, Ordering::Relaxed);
            let meta = access.connect(options).await?;
            if let Err(error) = meta.start(registration).await {
                if resume.is_none() {
                    close_meta(meta).await;
                }
                return Err(error);
            }
            Ok(meta)
        };
        let meta = self.metas.acquire(&meta_key, connect).await?;
        let acquired = async {
            // Another mount's access may have changed the stored keys.
            if !is_new.load(Ordering::Relaxed) {
                access.update_keys(&meta).await?;
                // A quota that was just set applies from the first write.
                meta.refresh().await?;
            }
            let opened = self.acquire_data(id, access, args, &meta_key, &meta).await?;
            self.share_backups(access, args, &opened).await;
            Ok(opened)
        };
        match acquired.await {
            Ok(opened) => Ok(opened),
            Err(error) => {
                self.metas.release(&meta_key, close_meta).await;
                Err(error)
            }
        }
    }

    /// Releases a file system. The last user closes it; the next one uploads what is staged on
    /// disk.
    pub async fn release(&self, opened: OpenFileSystem) {
        self.release_by(opened, false).await;
    }

    /// As [`OpenFileSystems::release`], but keeps the session for the process that resumes it.
    pub async fn hand_over(&self, opened: OpenFileSystem) {
        self.release_by(opened, true).await;
    }

    async fn release_by(&self, opened: OpenFileSystem, keeps_session: bool) {
        let OpenFileSystem { volume, cache, meta_key, volume_key, cache_key } = opened;
        drop(volume);
        // Before the metadata that they use.
        self.backups.release(&meta_key, |backups| async { drop(backups) }).await;
        self.open.release(&volume_key, |volume| async move { volume.close_data().await }).await;
        if keeps_session {
            self.metas.release(&meta_key, hand_meta_over).await;
        } else {
            self.metas.release(&meta_key, close_meta).await;
        }
        if cache.is_some() {
            drop(cache);
            self.caches.release(&cache_key, |cache| async move { cache.close().await }).await;
        }
    }

    /// Returns the metrics of all open file systems.
    pub fn registries(&self) -> Vec<Registry> {
        self.open.all().iter().map(|volume| volume.registry().clone()).collect()
    }

    /// Starts backups of the metadata with its first user. The mount works without them.
    async fn share_backups(&self, access: &Access, args: &MountArgs, opened: &OpenFileSystem) {
        let start = || async {
            let options = args.meta.backups(args.is_read_only(), BACKUP_MEMORY);
            let Some(options) = options else { return Ok(None) };
            let (meta, registry) = (opened.volume.meta(), opened.volume.registry());
            let setting = meta.context().setting();
            let started = args
                .storage
                .overrides(&setting, access.overrides())
                .map_err(option_error)
                .and_then(|storage| Backups::start(Arc::clone(meta), storage, options, registry));
            Ok(started
                .map_err(|error| {
                    warn!(file_system = setting.name, %error, "the metadata is not backed up");
                })
                .ok()
                .map(Arc::new))
        };
        // It never fails.
        let _ = self.backups.acquire(&opened.meta_key, start).await;
    }

    async fn acquire_data(
        &self,
        id: &VolumeId,
        access: &Access,
        args: &MountArgs,
        meta_key: &str,
        meta: &Arc<Meta>,
    ) -> Result<OpenFileSystem> {
        let (cache, cache_key) = self.cache(args).await?;
        let volume_key = volume_key(id, args, meta_key);
        let open = || self.open(id, access, args, Arc::clone(meta), cache.clone());
        match self.open.acquire(&volume_key, open).await {
            Ok(volume) => {
                let meta_key = meta_key.to_owned();
                Ok(OpenFileSystem { volume, cache, meta_key, volume_key, cache_key })
            }
            Err(error) => {
                if cache.is_some() {
                    self.caches
                        .release(&cache_key, |cache| async move { cache.close().await })
                        .await;
                }
                Err(error)
            }
        }
    }

    async fn open(
        &self,
        id: &VolumeId,
        access: &Access,
        args: &MountArgs,
        meta: Arc<Meta>,
        cache: Option<Arc<Cache>>,
    ) -> Result<Arc<Volume>> {
        let setting = meta.context().setting();
        let storage = args.storage.overrides(&setting, access.overrides()).map_err(option_error)?;
        let buffer = usize::try_from(args.cache.buffer()).unwrap_or(usize::MAX);
        let options = VolumeOptions {
            storage,
            data: args.cache.data(&args.storage, args.is_read_only()),
            budget: self.budget.share(VOLUME_FLOOR, buffer),
            cache,
            cache_owner: Some(CacheOwner { id: access.id(), takes_unowned: self.takes_unowned }),
            cache_share: Some(args.cache.cache_size),
            registry: registry(id, args, &setting.name)?,
            root: Ino::ROOT,
        };
        info!(file_system = setting.name, "opened");
        Volume::open(meta, options).await
    }

    async fn cache(&self, args: &MountArgs) -> Result<(Option<Arc<Cache>>, String)> {
        let Some(options) = args.cache.cache(&args.storage).map_err(option_error)? else {
            return Ok((None, String::new()));
        };
        let items = if options.items == 0 { self.max_blocks } else { options.items };
        let options = CacheOptions {
            items: items.min(self.max_blocks),
            memory: Some(Arc::clone(&self.budget)),
            ..options
        };
        // The first user's options configure the cache. Its size is the share of each file system.
        let key = format!("{:?}", options.dirs);
        let cache = self.caches.acquire(&key, || Cache::open(options)).await?;
        Ok((Some(cache), key))
    }

    fn meta_options(&self, args: &MountArgs) -> Options {
        let read_only = args.is_read_only();
        let options = args.meta.options(
            &args.meta_cache,
            &self.mount_point,
            args.storage.max_deletes,
            read_only,
        );
        // Each mount has its own root.
        Options { subdir: String::new(), ..options }
    }
}

async fn close_meta(meta: Arc<Meta>) {
    let name = meta.context().setting().name.clone();
    match meta.close().await {
        Ok(()) => info!(file_system = name, "closed"),
        Err(error) => warn!(file_system = name, %error, "cannot close the file system cleanly"),
    }
}

async fn hand_meta_over(meta: Arc<Meta>) {
    let name = meta.context().setting().name.clone();
    match meta.hand_over().await {
        Ok(()) => info!(file_system = name, "handed over"),
        Err(error) => {
            warn!(file_system = name, %error, "not all usage was stored at the hand-over");
        }
    }
}

/// The key of a block store: mounts share it if they transfer data in the same way and without
/// limits.
fn volume_key(id: &VolumeId, args: &MountArgs, meta_key: &str) -> String {
    let mut key = format!("{meta_key} {:?} {:?}", args.storage, args.cache);
    if has_own_store(args) {
        // Writing to a string does not fail.
        let _ = write!(key, " {id}");
    }
    key
}

fn has_own_store(args: &MountArgs) -> bool {
    args.storage.upload_limit.is_some() || args.storage.download_limit.is_some()
}

fn registry(id: &VolumeId, args: &MountArgs, name: &str) -> Result<Registry> {
    let mut labels = HashMap::from([
        ("vol_name".to_owned(), name.to_owned()),
        ("juicefs_version".to_owned(), CLIENT_VERSION.to_owned()),
    ]);
    if has_own_store(args) {
        labels.insert("volume_id".to_owned(), id.to_string());
    }
    Registry::new_custom(Some("juicefs".to_owned()), Some(labels)).map_err(Error::bad_input)
}

/// Converts the error of an option, with all its causes.
pub fn option_error(error: impl std::fmt::Display) -> Error {
    Error::BadInput(format!("{error:#}"))
}
