//! Leaked objects: collected while objects are listed, and deleted after metadata was asked again.

use std::collections::HashSet;

use futures::{StreamExt, stream};
use tracing::warn;

use crate::cli::volume_scan::ScannedVolume;
use crate::cli::volume_scan::slices::{PAGE, named};
use crate::meta::client::Progress as Cancel;
use crate::meta::engine::Cursor;

/// Objects that no slice of the first scan has.
pub struct Leaked<'a> {
    volume: &'a ScannedVolume,
    at_once: usize,
    /// With the slice that might need it.
    objects: Vec<(Option<u64>, String)>,
}

impl<'a> Leaked<'a> {
    pub fn new(volume: &'a ScannedVolume, at_once: usize) -> Self {
        Self { volume, at_once, objects: Vec::new() }
    }

    /// Adds an object, with the id of its slice if the first scan did not find that. An object that
    /// does not fit into its slice is none of its blocks, whatever happens meanwhile.
    pub fn add(&mut self, slice: Option<u64>, key: String) {
        self.objects.push((slice, key));
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Deletes the objects whose slices metadata still does not refer to. Returns how many could
    /// not be deleted.
    pub async fn delete(&mut self, cancel: &Cancel) -> anyhow::Result<u64> {
        let objects = std::mem::take(&mut self.objects);
        if objects.is_empty() {
            return Ok(0);
        }
        let ids: HashSet<u64> = objects.iter().filter_map(|(slice, _)| *slice).collect();
        let known = self.known(&ids, cancel).await?;
        let unknown =
            objects.into_iter().filter(|(slice, _)| slice.is_none_or(|id| !known.contains(&id)));
        let store = &self.volume.objects;
        let deletions = stream::iter(unknown).map(|(_, key)| async move {
            cancel.check()?;
            Ok::<_, anyhow::Error>(match store.delete(&key).await {
                Ok(()) => 0,
                Err(error) => {
                    warn!(key, %error, "cannot delete a leaked object");
                    1
                }
            })
        });
        let mut deletions = deletions.buffer_unordered(self.at_once.max(1));
        let mut failed = 0;
        while let Some(one) = deletions.next().await {
            failed += one?;
        }
        Ok(failed)
    }

    /// The slices among these that metadata refers to by now.
    async fn known(&self, ids: &HashSet<u64>, cancel: &Cancel) -> anyhow::Result<HashSet<u64>> {
        let engine = self.volume.meta.engine();
        let mut known = HashSet::new();
        let mut cursor = Cursor::Start;
        while cursor != Cursor::End {
            cancel.check()?;
            let page = engine.scan_chunks(&cursor, PAGE).await?;
            let slices = page.records.iter().flat_map(named).map(|slice| slice.id.0);
            known.extend(slices.filter(|id| ids.contains(id)));
            cursor = page.next;
        }
        Ok(known)
    }
}
