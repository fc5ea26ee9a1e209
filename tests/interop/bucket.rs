//! The objects of a volume in a folder, laid out as the `file` storage of the Go client does.

use std::fs;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jfs::meta::record::{Slice, SliceSize};
use jfs::meta::{SliceId, SliceStore};
use jfs::{Error, Result};

const BLOCK: usize = 4 << 20;

/// The folder `{bucket}/{volume}`.
pub struct Bucket(PathBuf);

impl Bucket {
    pub fn new(bucket: &Path, volume: &str) -> Self {
        Self(bucket.join(volume))
    }

    /// Stores the bytes of a slice, block by block.
    pub fn put(&self, id: SliceId, bytes: &[u8]) {
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            let path = self.block(id, index, block.len());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, block).unwrap();
        }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        count(&self.0.join("chunks"))
    }

    fn block(&self, id: SliceId, index: usize, len: usize) -> PathBuf {
        let id = id.0;
        let (millions, thousands) = (id / 1_000_000, id / 1000);
        self.0.join(format!("chunks/{millions}/{thousands}/{id}_{index}_{len}"))
    }
}

#[async_trait]
impl SliceStore for Bucket {
    async fn delete(&self, slice: SliceSize) -> Result<()> {
        let size = slice.size as usize;
        for (index, start) in (0..size).step_by(BLOCK).enumerate() {
            let _ = fs::remove_file(self.block(slice.id, index, BLOCK.min(size - start)));
        }
        Ok(())
    }

    async fn rewrite(&self, _: &[Slice], _: SliceId, _: u8) -> Result<()> {
        // The scripts are short of what starts a compaction.
        Err(Error::NotSupported)
    }
}

fn count(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .map(|entry| entry.unwrap())
        .map(|entry| if entry.file_type().unwrap().is_dir() { count(&entry.path()) } else { 1 })
        .sum()
}
