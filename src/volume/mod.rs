//! One volume: what its setting says, put together, and taken apart in the right order.
//!
//! Wires metadata to data: neither knows the other.

mod mounted;
mod options;
mod slices;
pub mod storage;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use prometheus::Registry;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

use crate::chunk::{Cache, CacheOwner, Compression, Layout, Store, StoreConfig, VolumeCache};
use crate::error::{Error, Result, joined};
use crate::meta::record::Setting;
use crate::meta::record::setting::Compression as Packing;
use crate::meta::{Meta, SliceStore};
use crate::object::replaceable::ReplaceableStore;
use crate::object::{self, Metrics, StoreHealth};
pub use mounted::{MountRequest, Mounted};
pub use options::VolumeOptions;
use slices::Slices;
use storage::Overrides;

/// An open volume.
pub struct Volume {
    meta: Arc<Meta>,
    store: Arc<Store>,
    slices: Arc<dyn SliceStore>,
    registry: Registry,
    trouble: Arc<StoreHealth>,
    /// Ends what follows the setting, also if the volume is dropped without being closed.
    following: DropGuard,
}

impl Volume {
    /// Opens the data of a volume whose metadata is open, and serves metadata with it: from now on
    /// garbage is collected and chunks are compacted. Follows changes of the setting that concern
    /// the store of objects: keys, buckets, limits.
    pub async fn open(meta: Arc<Meta>, options: VolumeOptions) -> Result<Arc<Self>> {
        // Before the setting is looked at: what changes from now on is not missed.
        let changes = meta.setting_changes();
        let setting = meta.context().setting();
        let VolumeOptions {
            storage,
            mut data,
            budget,
            cache,
            cache_owner,
            cache_share,
            registry,
            root,
        } = options;
        let metrics = Metrics::register(&registry)?;
        let trouble = Arc::clone(metrics.health());
        let storage = Overrides { metrics: Some(metrics), ..storage };
        let objects =
            Arc::new(ReplaceableStore::new(object::open(&storage::spec(&setting, &storage)?)?));
        let layout = layout(&setting)?;
        let cache = match cache {
            Some(cache) => Some(part_of(cache, cache_owner, &setting, layout, cache_share).await?),
            None => None,
        };
        data.read_only |= meta.context().options.read_only;
        let store = Store::open(StoreConfig {
            objects: objects.clone(),
            layout,
            compression: compression(&setting)?,
            cache,
            budget,
            options: data,
        });
        store.register(&registry)?;
        meta.register_metrics(&registry, root)?;
        let slices: Arc<dyn SliceStore> = Arc::new(Slices::new(Arc::clone(&store)));
        meta.attach_slice_store(Arc::clone(&slices));

        let following = CancellationToken::new();
        tokio::spawn(
            following.clone().run_until_cancelled_owned(follow(changes, objects, storage)),
        );
        Ok(Arc::new(Self {
            meta,
            store,
            slices,
            registry,
            trouble,
            following: following.drop_guard(),
        }))
    }

    pub fn meta(&self) -> &Arc<Meta> {
        &self.meta
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Everything that is counted of this volume.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Closes the volume. What was written must have been flushed before. With `flush`, waits until
    /// everything that is staged is in the bucket; otherwise the next run uploads it.
    ///
    /// Metadata goes before data: its jobs delete and rewrite until they end, and with its session
    /// go removed files that were still open.
    pub async fn close(&self, flush: bool) -> Result<()> {
        self.following.token().cancel();
        let flushed = if flush { self.store.flush_staged().await } else { Ok(()) };
        let closed = self.meta.close().await;
        self.store.close().await;
        flushed.and(closed)
    }

    /// Closes the data alone: others go on with the metadata.
    pub async fn close_data(&self) {
        self.following.token().cancel();
        self.meta.detach_slice_store(&self.slices);
        self.store.close().await;
    }

    /// What is wrong with the store of objects at the moment.
    pub fn storage_trouble(&self) -> Option<String> {
        self.trouble.last_failure()
    }
}

/// How slices of the volume become objects.
pub fn layout(setting: &Setting) -> Result<Layout> {
    let block_size = u32::try_from(setting.block_bytes()).ok().filter(|size| *size > 0);
    let block_size = block_size.ok_or_else(|| {
        Error::bad_input(format!("the setting has a block size of {} KiB", setting.block_size))
    })?;
    Ok(Layout { block_size, hash_prefix: setting.hash_prefix })
}

/// How blocks of the volume are packed.
pub fn compression(setting: &Setting) -> Result<Compression> {
    Ok(match setting.compression()? {
        Packing::None => Compression::None,
        Packing::Lz4 => Compression::Lz4,
        Packing::Zstd => Compression::Zstd,
    })
}

/// The volume's part of the cache. Looks at directories, so it is asked off the async threads.
async fn part_of(
    cache: Arc<Cache>,
    owner: Option<CacheOwner>,
    setting: &Setting,
    layout: Layout,
    share: Option<u64>,
) -> Result<Arc<VolumeCache>> {
    let uuid = setting.uuid.clone();
    let opened = tokio::task::spawn_blocking(move || {
        cache.owned_volume(&uuid, owner.as_ref(), layout, share)
    });
    joined("opening the cache", opened).await
}

/// Opens the store of objects anew with each change of the setting. One that cannot be opened leaves
/// the old one in use.
async fn follow(
    mut changes: watch::Receiver<Arc<Setting>>,
    objects: Arc<ReplaceableStore>,
    storage: Overrides,
) {
    while changes.changed().await.is_ok() {
        let setting = changes.borrow_and_update().clone();
        let opened = storage::spec(&setting, &storage).and_then(|spec| object::open(&spec));
        match opened {
            Ok(store) => {
                objects.set(store);
                info!(volume = setting.name, "the setting has changed");
            }
            Err(error) => {
                warn!(volume = setting.name, %error, "cannot follow the changed setting");
            }
        }
    }
}
