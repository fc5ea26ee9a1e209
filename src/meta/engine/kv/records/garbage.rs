//! Listings of what is waiting for deletion, and reference records of slices.

use std::ops::ControlFlow;

use async_trait::async_trait;

use crate::error::Result;
use crate::meta::engine::kv::KvEngine;
use crate::meta::engine::kv::keys::{StoreKey, prefix};
use crate::meta::engine::kv::store::Scan;
use crate::meta::engine::kv::values;
use crate::meta::engine::{DelayedSlices, DeletedFile, GarbageRecords};
use crate::meta::record::{SliceSize, delayed_slices};
use crate::meta::{Ino, SliceId};

/// Reference records checked and deleted by one transaction.
const BATCH: usize = 100;

#[async_trait]
impl GarbageRecords for KvEngine {
    async fn deleted_files(&self, before: i64, limit: usize) -> Result<Vec<DeletedFile>> {
        let mut files = Vec::new();
        self.walk(Scan::prefix(prefix::DELETED_FILES.to_vec()), |key, value| {
            if files.len() == limit {
                return Ok(ControlFlow::Break(()));
            }
            if let Some(StoreKey::DeletedFile { ino, length }) = StoreKey::decode(key) {
                let at = values::decode_time(Some(&value))?;
                if at <= before {
                    files.push(DeletedFile { ino, length, at });
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(files)
    }

    async fn dead_slices(&self, limit: usize) -> Result<Vec<SliceSize>> {
        let mut slices = Vec::new();
        self.walk_slice_refs(|slice, beyond_first| {
            if slices.len() == limit {
                return ControlFlow::Break(());
            }
            if beyond_first < 0 {
                slices.push(slice);
            }
            ControlFlow::Continue(())
        })
        .await?;
        Ok(slices)
    }

    async fn has_slice_ref(&self, slice: SliceSize) -> Result<bool> {
        let key = StoreKey::SliceRef(slice.id, slice.size).encode();
        Ok(self.store.get(&[key]).await?.iter().any(Option::is_some))
    }

    async fn drop_single_ref(&self, slice: SliceSize) -> Result<()> {
        self.delete_zero_refs(&[StoreKey::SliceRef(slice.id, slice.size).encode()]).await
    }

    async fn drop_single_refs(&self) -> Result<()> {
        let mut zero = Vec::new();
        self.walk_slice_refs(|slice, beyond_first| {
            if beyond_first == 0 {
                zero.push(StoreKey::SliceRef(slice.id, slice.size).encode());
            }
            ControlFlow::Continue(())
        })
        .await?;
        for keys in zero.chunks(BATCH) {
            self.delete_zero_refs(keys).await?;
        }
        // This runs hourly in one elected client, so the store's own clean-up runs with it.
        self.store.drop_old_versions().await
    }

    async fn delayed_slices(&self, before: i64, limit: usize) -> Result<Vec<DelayedSlices>> {
        let mut lists = Vec::new();
        if before < 0 {
            return Ok(lists);
        }
        // Keys begin with the time, so the range ends where later times begin.
        let mut scan = Scan::prefix(prefix::DELAYED.to_vec());
        scan.end = StoreKey::Delayed { at: before.saturating_add(1), id: SliceId(0) }.encode();
        self.walk(scan, |key, value| {
            if lists.len() == limit {
                return Ok(ControlFlow::Break(()));
            }
            if let Some(StoreKey::Delayed { at, id }) = StoreKey::decode(key) {
                lists.push(DelayedSlices { id, at, slices: delayed_slices::decode(&value)? });
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(lists)
    }

    async fn detached(&self, before: i64) -> Result<Vec<Ino>> {
        let mut nodes = Vec::new();
        self.walk(Scan::prefix(prefix::DETACHED.to_vec()), |key, value| {
            if let Some(StoreKey::Detached(ino)) = StoreKey::decode(key)
                && values::decode_time(Some(&value))? <= before
            {
                nodes.push(ino);
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(nodes)
    }
}

impl KvEngine {
    async fn delete_zero_refs(&self, keys: &[Vec<u8>]) -> Result<()> {
        self.update("dropping single references", keys, |values| {
            let mut writes = Vec::new();
            for (key, value) in keys.iter().zip(values) {
                if value.is_some() && values::decode_number(value.as_ref())? == 0 {
                    writes.push((key.clone(), None));
                }
            }
            Ok((writes, ()))
        })
        .await
    }

    async fn walk_slice_refs(
        &self,
        mut visit: impl FnMut(SliceSize, i64) -> ControlFlow<()> + Send,
    ) -> Result<()> {
        self.walk(Scan::prefix(prefix::SLICE_REFS.to_vec()), |key, value| {
            let Some(StoreKey::SliceRef(id, size)) = StoreKey::decode(key) else {
                return Ok(ControlFlow::Continue(()));
            };
            Ok(visit(SliceSize { id, size }, values::decode_number(Some(&value))?))
        })
        .await
    }
}
