//! A volume for benchmarks: metadata in memory, objects in any store.

use std::sync::Arc;

use anyhow::{Context, Result};
use jfs::chunk::{Budget, Compression, Layout, Options, Store, StoreConfig, VolumeCache};
use jfs::meta::record::Setting;
use jfs::meta::{Caller, Ino, Meta, Name, Registration};
use jfs::object::ObjectStore;
use jfs::vfs::{Content, ContentOptions};
use uuid::Uuid;

pub const MIB: usize = 1 << 20;
pub const BLOCK: usize = 4 * MIB;

/// The parts of a volume that differ between cases.
pub struct VolumeParts {
    pub objects: Arc<dyn ObjectStore>,
    pub cache: Option<Arc<VolumeCache>>,
    pub compression: Compression,
    pub budget: usize,
    pub options: Options,
}

impl VolumeParts {
    /// Without a cache, and with memory for a few blocks only, so that reads go to the store.
    pub fn cold(objects: Arc<dyn ObjectStore>) -> Self {
        Self {
            objects,
            cache: None,
            compression: Compression::None,
            budget: 64 * MIB,
            options: Options::default(),
        }
    }
}

pub const LAYOUT: Layout = Layout { block_size: 4 << 20, hash_prefix: false };

/// A volume with one open file.
pub struct BenchVolume {
    pub meta: Arc<Meta>,
    pub content: Arc<Content>,
    pub store: Arc<Store>,
    pub ino: Ino,
}

impl BenchVolume {
    /// Creates the volume. Must be called within the runtime.
    pub async fn new(choice: VolumeParts) -> Result<Arc<Self>> {
        let url = format!("memkv://bench-{}", Uuid::new_v4());
        let options =
            jfs::meta::Options { no_background_jobs: true, ..jfs::meta::Options::default() };
        let meta = Meta::attach(&url, options).await?;
        meta.init(Setting::new("bench", Uuid::new_v4())?, false).await?;
        meta.load().await?;
        meta.start(Registration::New).await?;
        let store = Store::open(StoreConfig {
            objects: choice.objects,
            layout: LAYOUT,
            compression: choice.compression,
            cache: choice.cache,
            budget: Budget::new(choice.budget),
            options: choice.options,
        });
        let content =
            Content::new(Arc::clone(&meta), Arc::clone(&store), ContentOptions::default());
        let name = Name::new("file")?;
        let (ino, _) = meta.create(&Caller::root(), Ino::ROOT, &name, 0o644, 0, true).await?;
        Ok(Arc::new(Self { meta, content, store, ino }))
    }

    /// Writes the whole file in requests of that size, and flushes it.
    pub async fn fill(&self, bytes: &[u8], request: usize) -> Result<()> {
        for (index, part) in bytes.chunks(request).enumerate() {
            self.content.write(self.ino, (index * request) as u64, part).await?;
        }
        self.content.flush(self.ino).await.context("flush")
    }
}

/// Returns bytes that compress to about half.
pub fn content(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let words = (0..len / 8).flat_map(|word| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = if word / 64 % 2 == 0 { state } else { 7 };
        word.to_le_bytes()
    });
    words.collect()
}
