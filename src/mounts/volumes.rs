//! The volumes that are open on this node, shared by all mounts that can share them.
//!
//! Mounts of one file system with the same credentials and options have one metadata client, one store of
//! blocks and one pool of uploads. Other credentials open a client of their own, and so prove themselves.
//! A mount that limits its own bandwidth has a store of its own, over the same metadata. Mounts that name
//! the same cache directories have one cache, in which each file system has its own part.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus::Registry;
use tracing::{info, warn};

use super::access::Access;
use super::id::VolumeId;
use super::memory::VOLUME_FLOOR;
use super::shared::Shared;
use crate::chunk::{Budget, Cache, CacheOptions, CacheOwner};
use crate::error::{Error, Result};
use crate::meta::record::version::CLIENT_VERSION;
use crate::meta::{Ino, Meta, Options, Registration};
use crate::options::mount::MountArgs;
use crate::volume::{Volume, VolumeOptions};

pub struct Volumes {
    budget: Arc<Budget>,
    /// What sessions of this node say about where they are.
    place: String,
    /// Whether directories of the cache without an owner are taken over.
    takes_unowned: bool,
    /// Of a cache on disk.
    most_blocks: u64,
    metas: Shared<Arc<Meta>>,
    open: Shared<Arc<Volume>>,
    caches: Shared<Arc<Cache>>,
}

/// A volume that somebody uses, to be given back.
pub struct Lease {
    pub volume: Arc<Volume>,
    pub cache: Option<Arc<Cache>>,
    meta_key: String,
    volume_key: String,
    cache_key: String,
}

impl Volumes {
    pub fn new(budget: Arc<Budget>, most_blocks: u64, place: String, takes_unowned: bool) -> Self {
        let (metas, open, caches) = (Shared::default(), Shared::default(), Shared::default());
        Self { budget, place, takes_unowned, most_blocks, metas, open, caches }
    }

    /// The volume for a mount of `id` with these options, opened if nobody has it open.
    pub async fn lease(&self, id: &VolumeId, access: &Access, args: &MountArgs) -> Result<Lease> {
        let options = self.meta_options(args);
        let meta_key = format!("{} {} {options:?}", access.id(), access.credential());
        let fresh = AtomicBool::new(false);
        let connect = || async {
            fresh.store(true, Ordering::Relaxed);
            let meta = access.connect(options).await?;
            if let Err(error) = meta.start(Registration::New).await {
                close_meta(meta).await;
                return Err(error);
            }
            Ok(meta)
        };
        let meta = self.metas.join(&meta_key, connect).await?;
        let leased = async {
            // The keys of the store may have been changed since by somebody else.
            if !fresh.load(Ordering::Relaxed) {
                access.update(&meta).await?;
                // A quota that was set a moment ago counts from the first byte that is written.
                meta.refresh().await?;
            }
            self.lease_data(id, access, args, &meta_key, &meta).await
        };
        match leased.await {
            Ok(lease) => Ok(lease),
            Err(error) => {
                self.metas.leave(&meta_key, close_meta).await;
                Err(error)
            }
        }
    }

    /// Gives a volume back. The last one closes it; what is staged on disk is uploaded by the next.
    pub async fn release(&self, lease: Lease) {
        let Lease { volume, cache, meta_key, volume_key, cache_key } = lease;
        drop(volume);
        self.open.leave(&volume_key, |volume| async move { volume.close_data().await }).await;
        self.metas.leave(&meta_key, close_meta).await;
        if cache.is_some() {
            drop(cache);
            self.caches.leave(&cache_key, |cache| async move { cache.close().await }).await;
        }
    }

    /// What is counted of every volume.
    pub fn registries(&self) -> Vec<Registry> {
        self.open.all().iter().map(|volume| volume.registry().clone()).collect()
    }

    async fn lease_data(
        &self,
        id: &VolumeId,
        access: &Access,
        args: &MountArgs,
        meta_key: &str,
        meta: &Arc<Meta>,
    ) -> Result<Lease> {
        let (cache, cache_key) = self.cache(args).await?;
        let volume_key = volume_key(id, args, meta_key);
        let open = || self.open(id, access, args, Arc::clone(meta), cache.clone());
        match self.open.join(&volume_key, open).await {
            Ok(volume) => {
                let meta_key = meta_key.to_owned();
                Ok(Lease { volume, cache, meta_key, volume_key, cache_key })
            }
            Err(error) => {
                if cache.is_some() {
                    self.caches.leave(&cache_key, |cache| async move { cache.close().await }).await;
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
        let storage = args.storage.overrides(&setting, access.overrides()).map_err(in_words)?;
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
        info!(volume = setting.name, "opened");
        Volume::open(meta, options).await
    }

    async fn cache(&self, args: &MountArgs) -> Result<(Option<Arc<Cache>>, String)> {
        let Some(options) = args.cache.cache(&args.storage).map_err(in_words)? else {
            return Ok((None, String::new()));
        };
        let items = if options.items == 0 { self.most_blocks } else { options.items };
        let options = CacheOptions {
            items: items.min(self.most_blocks),
            memory: Some(Arc::clone(&self.budget)),
            ..options
        };
        // The first one says how it is kept; its size is what each may take of it.
        let key = format!("{:?}", options.dirs);
        let cache = self.caches.join(&key, || Cache::open(options)).await?;
        Ok((Some(cache), key))
    }

    fn meta_options(&self, args: &MountArgs) -> Options {
        let read_only = args.is_read_only();
        let options =
            args.meta.options(&args.meta_cache, &self.place, args.storage.max_deletes, read_only);
        // Each mount has its own root.
        Options { subdir: String::new(), ..options }
    }
}

async fn close_meta(meta: Arc<Meta>) {
    let name = meta.context().setting().name.clone();
    match meta.close().await {
        Ok(()) => info!(volume = name, "closed"),
        Err(error) => warn!(volume = name, %error, "was not closed in good order"),
    }
}

/// Who moves data in the same way can share a store. A limit of one's own is not shared.
fn volume_key(id: &VolumeId, args: &MountArgs, meta_key: &str) -> String {
    let mut key = format!("{meta_key} {:?} {:?}", args.storage, args.cache);
    if is_own(args) {
        // Writing to a string does not fail.
        let _ = write!(key, " {id}");
    }
    key
}

fn is_own(args: &MountArgs) -> bool {
    args.storage.upload_limit.is_some() || args.storage.download_limit.is_some()
}

fn registry(id: &VolumeId, args: &MountArgs, name: &str) -> Result<Registry> {
    let mut labels = HashMap::from([
        ("vol_name".to_owned(), name.to_owned()),
        ("juicefs_version".to_owned(), CLIENT_VERSION.to_owned()),
    ]);
    if is_own(args) {
        labels.insert("volume_id".to_owned(), id.to_string());
    }
    Registry::new_custom(Some("juicefs".to_owned()), Some(labels)).map_err(Error::bad_input)
}

/// What is wrong with an option, in its own words.
pub fn in_words(error: impl std::fmt::Display) -> Error {
    Error::BadInput(format!("{error:#}"))
}
