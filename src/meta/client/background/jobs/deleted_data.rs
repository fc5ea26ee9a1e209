//! The jobs on deleted data: files whose data is not deleted yet, slices whose objects are not
//! deleted yet, and slices that compaction replaced and the trash keeps.

use futures::{StreamExt, stream};

use crate::error::Result;
use crate::meta::client::Meta;
use crate::meta::client::background::garbage::unreferenced;
use crate::meta::engine::DeletedFile;
use crate::meta::op::garbage::drop_slice::DropDelayed;

/// Files removed less than this many seconds ago are left to the client that removed them.
const MIN_AGE: i64 = 3600;
/// Files deleted in one run.
const MAX_FILES: usize = 600_000;
/// Files whose data is deleted together, and how many such groups at once.
const GROUP: usize = 100;
const GROUPS_AT_ONCE: usize = 4;
/// Slices listed by one request.
const MAX_SLICES: usize = 10_000;
const DAY: i64 = 86_400;

impl Meta {
    /// Deletes the data of files removed more than an hour before `now`. Returns how many were
    /// deleted.
    pub async fn clean_deleted_files(&self, now: i64) -> Result<u64> {
        let files = self.engine.deleted_files(now - MIN_AGE, MAX_FILES).await?;
        Ok(self.delete_removed_files(&files).await)
    }

    /// Deletes the data of removed files. Returns how many were deleted.
    pub async fn delete_removed_files(&self, files: &[DeletedFile]) -> u64 {
        let files: Vec<_> = files.iter().map(|file| (file.ino, file.length)).collect();
        let groups: Vec<_> = files.chunks(GROUP).map(<[_]>::to_vec).collect();
        stream::iter(groups)
            .take_while(|_| std::future::ready(!self.is_closing()))
            .map(|group| async move { self.delete_group(&group).await })
            .buffer_unordered(GROUPS_AT_ONCE)
            .fold(0, |sum, one| async move { sum + one })
            .await
    }

    /// Deletes unreferenced slices, and reference records that are redundant. Returns how many
    /// slices were deleted.
    pub async fn clean_slices(&self) -> Result<u64> {
        let mut cleaned = 0;
        while !self.is_closing() {
            let slices = self.engine.dead_slices(MAX_SLICES).await?;
            let found = slices.len();
            let deleted = self.delete_slices(slices).await;
            cleaned += deleted;
            // The remaining ones would be listed again.
            if found < MAX_SLICES || deleted == 0 {
                break;
            }
        }
        self.engine.drop_single_refs().await?;
        Ok(cleaned)
    }

    /// Releases slices that compaction replaced longer before `now` than the trash keeps files.
    /// Returns how many were deleted.
    pub async fn clean_delayed_slices(&self, now: i64) -> Result<u64> {
        let before = now - self.context.setting().trash_days * DAY - 1;
        let mut cleaned = 0;
        while !self.is_closing() {
            let lists = self.engine.delayed_slices(before, MAX_SLICES).await?;
            let found = lists.len();
            let mut dropped = 0;
            for list in lists {
                if self.is_closing() {
                    break;
                }
                let done =
                    self.run_with_receipts(&DropDelayed { id: list.id, at: list.at }).await?;
                dropped += done.output.len();
                cleaned += self.delete_slices(unreferenced(&done.output, &done.receipts)).await;
            }
            if found < MAX_SLICES || dropped == 0 {
                break;
            }
        }
        Ok(cleaned)
    }
}
