//! One volume: opened from its setting, and closed in the right order.
//!
//! Connects metadata to data: neither knows the other.

mod backup;
mod kept_session;
mod mounted;
mod options;
pub mod storage;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use prometheus::Registry;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

use crate::chunk::{
    Cache, CacheOwner, Compression, Layout, SliceRange, Store, StoreConfig, VolumeCache,
};
use crate::error::{Error, Result, joined};
use crate::meta::record::setting::Compression as Packing;
use crate::meta::record::{Setting, Slice};
use crate::meta::{Meta, SliceStore};
use crate::object::replaceable::ReplaceableStore;
use crate::object::{self, Metrics, StoreHealth};
use crate::slice::{SliceId, SliceSize};
pub use backup::{BackupOptions, Backups};
pub use kept_session::{KeptSession, SessionRecord};
pub use mounted::{MountRequest, Mounted};
pub use options::VolumeOptions;
use storage::Overrides;

/// An open volume.
pub struct Volume {
    meta: Arc<Meta>,
    store: Arc<Store>,
    slices: Arc<dyn SliceStore>,
    registry: Registry,
    trouble: Arc<StoreHealth>,
    /// Stops following the setting, also if the volume is dropped without being closed.
    following: DropGuard,
}

impl Volume {
    /// Opens the data of a volume whose metadata is open, and makes it available to metadata: from
    /// now on garbage is collected and chunks are compacted. Follows changes of the setting that
    /// affect the object store: keys, buckets, limits.
    pub async fn open(meta: Arc<Meta>, options: VolumeOptions) -> Result<Arc<Self>> {
        // Before reading the setting, so that no change is missed.
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
            Some(cache) => {
                Some(open_cache(cache, cache_owner, &setting, layout, cache_share).await?)
            }
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
            following.clone().run_until_cancelled_owned(follow_setting(changes, objects, storage)),
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

    /// All metrics of this volume.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Closes the volume. Written data must have been flushed before. With `flush`, waits until all
    /// staged blocks are in the bucket; otherwise the next run uploads them.
    ///
    /// Metadata is closed before data: its background jobs delete and rewrite objects until they
    /// end, and closing its session deletes removed files that were still open.
    pub async fn close(&self, flush: bool) -> Result<()> {
        self.following.token().cancel();
        let flushed = if flush { self.store.flush_staged().await } else { Ok(()) };
        let closed = self.meta.close().await;
        self.store.close().await;
        flushed.and(closed)
    }

    /// As [`Volume::close`], but keeps the metadata session for the process that resumes it. Staged
    /// blocks stay on disk.
    pub async fn hand_over(&self) -> Result<()> {
        self.following.token().cancel();
        let handed_over = self.meta.hand_over().await;
        self.store.close().await;
        handed_over
    }

    /// Closes the data only: others continue to use the metadata.
    pub async fn close_data(&self) {
        self.following.token().cancel();
        self.meta.detach_slice_store(&self.slices);
        self.store.close().await;
    }

    /// Returns what is currently wrong with the object store.
    pub fn storage_trouble(&self) -> Option<String> {
        self.trouble.last_failure()
    }
}

/// Gives metadata access to the data of slices.
struct Slices {
    store: Arc<Store>,
}

impl Slices {
    fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

#[async_trait]
impl SliceStore for Slices {
    async fn delete(&self, slice: SliceSize) -> Result<()> {
        self.store.remove(slice).await
    }

    async fn rewrite(&self, slices: &[Slice], id: SliceId, tier: u8) -> Result<()> {
        let ranges: Vec<SliceRange> = slices.iter().map(slice_range).collect();
        self.store.compact(&ranges, id, tier).await
    }
}

/// Returns the bytes of a slice that a record shows.
pub fn slice_range(slice: &Slice) -> SliceRange {
    let Slice { id, size, off, len, .. } = *slice;
    let start = if id.is_hole() { 0 } else { off };
    SliceRange { slice: SliceSize { id, size }, range: start..start + len }
}

/// Returns how slices of the volume are stored as objects.
pub fn layout(setting: &Setting) -> Result<Layout> {
    let block_size = u32::try_from(setting.block_bytes()).ok().filter(|size| *size > 0);
    let block_size = block_size.ok_or_else(|| {
        Error::bad_input(format!("the setting has a block size of {} KiB", setting.block_size))
    })?;
    Ok(Layout { block_size, hash_prefix: setting.hash_prefix })
}

/// Returns how blocks of the volume are compressed.
pub fn compression(setting: &Setting) -> Result<Compression> {
    Ok(match setting.compression()? {
        Packing::None => Compression::None,
        Packing::Lz4 => Compression::Lz4,
        Packing::Zstd => Compression::Zstd,
    })
}

/// Opens the volume's part of the cache. It reads directories, so it runs off the async threads.
async fn open_cache(
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

/// Opens the object store again after each change of the setting. If that fails, the old one stays
/// in use.
async fn follow_setting(
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
                info!(volume = setting.name, "opened the object store with the changed setting");
            }
            Err(error) => {
                let volume = &setting.name;
                warn!(volume, %error, "cannot open the object store with the changed setting");
            }
        }
    }
}
