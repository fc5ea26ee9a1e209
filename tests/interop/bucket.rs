//! The objects of a volume in a folder, in the layout of the `file` storage.

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

    /// Reads the part of a slice that a fragment shows, or returns `None` if its objects are gone.
    pub fn get(&self, fragment: &Slice) -> Option<Vec<u8>> {
        let size = fragment.size as usize;
        let mut slice = Vec::with_capacity(size);
        for (index, start) in (0..size).step_by(BLOCK).enumerate() {
            slice.extend(fs::read(self.block(fragment.id, index, BLOCK.min(size - start))).ok()?);
        }
        let start = fragment.off as usize;
        Some(slice[start..start + fragment.len as usize].to_vec())
    }

    /// Returns the number of blocks.
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

    async fn rewrite(&self, fragments: &[Slice], id: SliceId, _tier: u8) -> Result<()> {
        let mut bytes = Vec::new();
        for fragment in fragments {
            if fragment.id.is_hole() {
                bytes.resize(bytes.len() + fragment.len as usize, 0);
            } else {
                bytes.extend(self.get(fragment).ok_or(Error::NotFound)?);
            }
        }
        self.put(id, &bytes);
        Ok(())
    }
}

fn count(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .map(|entry| entry.unwrap())
        .map(|entry| if entry.file_type().unwrap().is_dir() { count(&entry.path()) } else { 1 })
        .sum()
}
