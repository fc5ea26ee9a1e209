//! Scans of the whole volume: all chunks, all delayed slices.

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::meta::engine::kv::KvEngine;
use crate::meta::engine::kv::keys::{StoreKey, prefix};
use crate::meta::engine::kv::store::Scan;
use crate::meta::engine::{Cursor, DelayedSlices, ScanPage, Scans, StoredChunk};
use crate::meta::record::{chunk, delayed_slices};

#[async_trait]
impl Scans for KvEngine {
    /// The chunks are among the other records of their nodes, so a page may hold few of them.
    async fn scan_chunks(&self, cursor: &Cursor, limit: usize) -> Result<ScanPage<StoredChunk>> {
        self.scan_page(prefix::NODES, cursor, limit, |key, value| {
            let Some(StoreKey::Chunk(ino, index)) = StoreKey::decode(key) else { return Ok(None) };
            Ok(Some(StoredChunk { ino, index, slices: chunk::decode(value).ok() }))
        })
        .await
    }

    async fn scan_delayed(&self, cursor: &Cursor, limit: usize) -> Result<ScanPage<DelayedSlices>> {
        self.scan_page(prefix::DELAYED, cursor, limit, |key, value| {
            let Some(StoreKey::Delayed { at, id }) = StoreKey::decode(key) else { return Ok(None) };
            Ok(Some(DelayedSlices { id, at, slices: delayed_slices::decode(value)? }))
        })
        .await
    }
}

impl KvEngine {
    /// Reads the next `limit` keys that begin with `prefix` and returns those that `read` selects.
    async fn scan_page<T>(
        &self,
        prefix: &[u8],
        cursor: &Cursor,
        limit: usize,
        read: impl Fn(&[u8], &[u8]) -> Result<Option<T>> + Send,
    ) -> Result<ScanPage<T>> {
        let limit = limit.max(1);
        let mut scan = Scan::prefix(prefix.to_vec()).limit(limit);
        match cursor {
            Cursor::Start => {}
            Cursor::After(key) => scan = scan.after(key),
            Cursor::End => return Ok(ScanPage { records: Vec::new(), next: Cursor::End }),
            Cursor::Scan(_) => return Err(Error::bad_input("this scan continues after a key")),
        }
        let pairs = self.store.scan(&scan).await?;
        let next = match pairs.last() {
            Some((last, _)) if pairs.len() >= limit => Cursor::After(last.clone().into()),
            _ => Cursor::End,
        };
        let mut records = Vec::new();
        for (key, value) in &pairs {
            records.extend(read(key, value)?);
        }
        Ok(ScanPage { records, next })
    }
}
