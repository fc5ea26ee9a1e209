//! The jobs on slices: objects whose deletion failed, and slices kept for the days of the trash.

use crate::error::Result;
use crate::meta::Meta;
use crate::meta::client::garbage::dead;
use crate::meta::op::drop_slice::DropDelayed;

const LIMIT: usize = 10_000;
const DAY: i64 = 86_400;

impl Meta {
    /// Deletes slices without references, and references that say nothing. Answers how many slices
    /// went.
    pub async fn clean_slices(&self) -> Result<u64> {
        let mut cleaned = 0;
        while !self.is_closing() {
            let slices = self.engine.dead_slices(LIMIT).await?;
            let found = slices.len();
            let deleted = self.delete_slices(slices).await;
            cleaned += deleted;
            // Those that stay would be found again.
            if found < LIMIT || deleted == 0 {
                break;
            }
        }
        self.engine.drop_single_refs().await?;
        Ok(cleaned)
    }

    /// Releases slices that compaction replaced more than the trash's days before `now`. Answers how
    /// many of them went.
    pub async fn clean_delayed_slices(&self, now: i64) -> Result<u64> {
        let before = now - self.facts.setting().trash_days * DAY - 1;
        let mut cleaned = 0;
        while !self.is_closing() {
            let lists = self.engine.delayed_slices(before, LIMIT).await?;
            let found = lists.len();
            let mut dropped = 0;
            for list in lists {
                if self.is_closing() {
                    break;
                }
                let done = self.run_counted(&DropDelayed { id: list.id, at: list.at }).await?;
                dropped += done.output.len();
                cleaned += self.delete_slices(dead(&done.output, &done.receipts)).await;
            }
            if found < LIMIT || dropped == 0 {
                break;
            }
        }
        Ok(cleaned)
    }
}
