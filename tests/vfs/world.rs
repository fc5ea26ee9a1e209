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
    AccessLog, Content, ContentOptions, Internal, Notices, OpMetrics, Reader, Vfs, VfsOptions,
    VfsParts, internal,
};
use nix::fcntl::OFlag;
use prometheus::Registry;

use crate::below::{Below, Disk, PLENTY};
use crate::bucket::Bucket;
use crate::support::data::name;
use crate::support::volume::Volume;

/// Blocks of most tests: small, so that a few bytes are many blocks.
pub const BLOCK: u32 = 64;
const LAYOUT: Layout = Layout { block_size: BLOCK, hash_prefix: false };
/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

pub struct Client {
    pub meta: Arc<Meta>,
    pub content: Arc<Content>,
    store: Arc<Store>,
    _disk: Option<Disk>,
}

impl Client {
    pub async fn new(vol: &Volume, bucket: &Arc<Bucket>) -> Self {
        Self::sized(vol.client().await, bucket.clone(), BLOCK, Budget::new(PLENTY))
    }

    /// With a cache of its own below it.
    pub async fn over(vol: &Volume, bucket: &Arc<Bucket>, below: Below) -> Self {
        let disk = below.disk(LAYOUT).await;
        let parts = StoreConfig {
            objects: bucket.clone(),
            layout: LAYOUT,
            compression: Compression::None,
            cache: disk.as_ref().map(|disk| disk.volume.clone()),
            budget: below.budget(),
            options: below.options(),
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

    /// The whole file system of a mount over it.
    pub fn vfs(&self, options: VfsOptions) -> Arc<Vfs> {
        let registry = Registry::new();
        let (log, notices) = (Arc::<AccessLog>::default(), Arc::<Notices>::default());
        let metrics = OpMetrics::register(&registry).unwrap();
        let internal = Internal::new(internal::Parts {
            meta: self.meta.clone(),
            content: self.content.clone(),
            store: self.store.clone(),
            root: Ino::ROOT,
            registries: vec![registry],
            config: serde_json::json!({}),
            log: log.clone(),
            prefix: options.prefix_internal,
            notices: notices.clone(),
            memory: Budget::new(1 << 30),
            shown: internal::Shown::All,
        });
        let (meta, content) = (self.meta.clone(), self.content.clone());
        Vfs::new(VfsParts {
            root: Ino::ROOT,
            meta,
            content,
            internal,
            notices,
            log,
            metrics,
            options,
            memory: Budget::new(1 << 30),
        })
    }

    /// A new file in the root, and a handle of it.
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

    /// Whatever is staged is in the bucket after that, where other clients find it.
    pub async fn unstage(&self) {
        within("upload of what is staged", self.store.flush_staged()).await.unwrap();
    }

    pub async fn stored_length(&self, ino: Ino) -> u64 {
        self.meta.getattr(ino).await.unwrap().length
    }
}

/// The bytes that a read answers.
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

/// Waits until it is so.
pub async fn until<F: Future<Output = bool>>(what: &str, so: impl Fn() -> F) {
    within(what, async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// What metadata asks of the data side.
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

/// Bytes that do not repeat where blocks or chunks would.
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
