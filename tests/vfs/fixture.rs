//! Clients of one volume with data: metadata, a store over a shared bucket, and content.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use jfs::Result;
use jfs::chunk::{Budget, Compression, Layout, Options, Store, StoreConfig};
use jfs::meta::client::SliceStore;
use jfs::meta::record::{Slice, SliceSize};
use jfs::meta::{Caller, Ino, Meta, SliceId};
use jfs::object::ObjectStore;
use jfs::vfs::{
    AccessLog, Content, ContentOptions, Invalidator, OpMetrics, Reader, Vfs, VfsOptions, VfsParts,
    VirtualFiles, VirtualFilesParts, Visibility,
};
use nix::fcntl::OFlag;
use prometheus::Registry;

use crate::faulty_bucket::FaultyBucket;
use crate::layers::{Disk, Layers, PLENTY};
use crate::support::data::name;
use crate::support::volume::Volume;

/// The block size of most tests: small, so that a few bytes are many blocks.
pub const BLOCK: u32 = 64;
const LAYOUT: Layout = Layout { block_size: BLOCK, hash_prefix: false };
/// Longer than any operation takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

pub struct Client {
    pub meta: Arc<Meta>,
    pub content: Arc<Content>,
    store: Arc<Store>,
    _disk: Option<Disk>,
}

impl Client {
    pub async fn new(vol: &Volume, bucket: &Arc<FaultyBucket>) -> Self {
        Self::sized(vol.client().await, bucket.clone(), BLOCK, Budget::new(PLENTY))
    }

    /// With its own cache below it.
    pub async fn over(vol: &Volume, bucket: &Arc<FaultyBucket>, layers: Layers) -> Self {
        let disk = layers.disk(LAYOUT).await;
        let parts = StoreConfig {
            objects: bucket.clone(),
            layout: LAYOUT,
            compression: Compression::None,
            cache: disk.as_ref().map(|disk| disk.volume.clone()),
            budget: layers.budget(),
            options: layers.options(),
        };
        Self { _disk: disk, ..Self::assembled(vol.client().await, parts) }
    }

    pub fn sized(
        meta: Arc<Meta>,
        bucket: Arc<dyn ObjectStore>,
        block_size: u32,
        budget: Arc<Budget>,
    ) -> Self {
        let layout = Layout { block_size, hash_prefix: false };
        let (compression, options) = (Compression::None, Options::default());
        let objects = bucket;
        let parts = StoreConfig { objects, layout, compression, cache: None, budget, options };
        Self::assembled(meta, parts)
    }

    fn assembled(meta: Arc<Meta>, parts: StoreConfig) -> Self {
        let store = Store::open(parts);
        meta.attach_slice_store(Arc::new(Slices(store.clone())));
        let options = ContentOptions::default();
        let content = Content::new(meta.clone(), store.clone(), options);
        Self { meta, content, store, _disk: None }
    }

    /// Returns the VFS of a mount over it.
    pub fn vfs(&self, options: VfsOptions) -> Arc<Vfs> {
        let registry = Registry::new();
        let (log, invalidator) = (Arc::<AccessLog>::default(), Arc::<Invalidator>::default());
        let metrics = OpMetrics::register(&registry).unwrap();
        let virtual_files = VirtualFiles::new(VirtualFilesParts {
            meta: self.meta.clone(),
            content: self.content.clone(),
            store: self.store.clone(),
            root: Ino::ROOT,
            registries: vec![registry],
            config: serde_json::json!({}),
            log: log.clone(),
            prefix: options.prefix_internal,
            invalidator: invalidator.clone(),
            memory: Budget::new(1 << 30),
            visibility: Visibility::All,
        });
        let (meta, content) = (self.meta.clone(), self.content.clone());
        Vfs::new(VfsParts {
            root: Ino::ROOT,
            meta,
            content,
            virtual_files,
            invalidator,
            log,
            metrics,
            options,
            memory: Budget::new(1 << 30),
            ledger: None,
        })
    }

    /// Creates a file in the root and returns a handle of it.
    pub async fn create(&self, at: &str) -> Reader {
        let root = Caller::root();
        let made = self.meta.create(&root, Ino::ROOT, &name(at), 0o644, 0, true).await;
        let (ino, attr) = made.unwrap();
        self.content.reader(ino, &attr)
    }

    pub async fn open(&self, ino: Ino) -> Reader {
        self.content.open(&Caller::root(), ino, OFlag::O_RDWR).await.unwrap().1
    }

    pub async fn write(&self, ino: Ino, off: u64, bytes: &[u8]) {
        within("write", self.content.write(ino, off, bytes)).await.unwrap();
    }

    pub async fn flush(&self, ino: Ino) {
        within("flush", self.content.flush(ino)).await.unwrap();
    }

    /// Uploads everything that is staged, for other clients to find it in the bucket.
    pub async fn unstage(&self) {
        within("upload of what is staged", self.store.flush_staged()).await.unwrap();
    }

    pub async fn stored_length(&self, ino: Ino) -> u64 {
        self.meta.getattr(ino).await.unwrap().length
    }
}

/// Returns the bytes that a read returns.
pub async fn read(reader: &Reader, off: u64, len: u32) -> Vec<u8> {
    within("read", reader.read(off, len)).await.unwrap().concat()
}

/// Fails the test if this hangs.
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(output) => output,
        Err(late) => panic!("{what} hangs: {late}"),
    }
}

/// Waits until the condition is true.
pub async fn until<F: Future<Output = bool>>(what: &str, so: impl Fn() -> F) {
    within(what, async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Gives metadata access to the data.
struct Slices(Arc<Store>);

#[async_trait]
impl SliceStore for Slices {
    async fn delete(&self, slice: SliceSize) -> Result<()> {
        self.0.remove(slice).await
    }

    async fn rewrite(&self, fragments: &[Slice], id: SliceId, tier: u8) -> Result<()> {
        let mut bytes = BytesMut::new();
        for fragment in fragments {
            if fragment.id.is_hole() {
                bytes.resize(bytes.len() + fragment.len as usize, 0);
                continue;
            }
            let slice = SliceSize { id: fragment.id, size: fragment.size };
            let range = fragment.off..fragment.off + fragment.len;
            bytes.extend(self.0.read(slice, range).await?);
        }
        let mut upload = self.0.upload(id, tier);
        let block_size = self.0.layout().block_size as usize;
        for (index, block) in (0..).zip(bytes.chunks(block_size)) {
            upload.put(index, Bytes::copy_from_slice(block), None);
        }
        upload.finish().await
    }
}

/// Returns bytes that do not repeat at blocks or chunks.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(len).collect()
}
