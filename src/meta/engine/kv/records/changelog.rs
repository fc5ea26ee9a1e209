//! The change log: one key per commit, which contains the version of the commit.

use async_trait::async_trait;
use futures::future::try_join_all;

use crate::error::Result;
use crate::meta::engine::ChangeLogRecords;
use crate::meta::engine::kv::KvEngine;
use crate::meta::engine::kv::keys::{StoreKey, prefix};
use crate::meta::engine::kv::store::{Pair, Scan};

/// Keys read and deleted by one round of trimming.
const BATCH: usize = 1000;

#[async_trait]
impl ChangeLogRecords for KvEngine {
    /// The lines of one commit are not split, so there may be some more than `limit`.
    async fn change_log(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>> {
        let mut lines = Vec::new();
        for (version, (_, value)) in self.log_page(after, limit, true).await? {
            if lines.len() >= limit {
                break;
            }
            let text = String::from_utf8_lossy(&value);
            lines.extend(text.split('\n').map(|line| (version, line.to_owned())));
        }
        Ok(lines)
    }

    async fn trim_change_log(&self, before: Option<i64>, keep: Option<u64>) -> Result<()> {
        let mut surplus = match keep {
            Some(keep) => self.log_len().await?.saturating_sub(keep),
            None => 0,
        };
        let mut after = 0;
        loop {
            let page = self.log_page(after, BATCH, before.is_some()).await?;
            let mut gone = Vec::new();
            for (version, (key, value)) in page {
                let is_old =
                    before.is_some_and(|time| written_at(&value).is_some_and(|at| at < time));
                if surplus == 0 && !is_old {
                    break;
                }
                surplus = surplus.saturating_sub(1);
                after = version;
                gone.push(key);
            }
            let is_done = gone.len() < BATCH;
            self.delete_all("trimming the change log", gone).await?;
            if is_done {
                return Ok(());
            }
        }
    }
}

impl KvEngine {
    /// Returns the next pairs of the log in the order of their versions.
    async fn log_page(&self, after: i64, limit: usize, values: bool) -> Result<Vec<(i64, Pair)>> {
        let from = after.saturating_add(1).cast_unsigned();
        let scans: Vec<Scan> = self
            .log_shards()
            .map(|shard| {
                let mut scan = Scan::prefix(prefix::log(shard)).limit(limit);
                scan.start = StoreKey::Log { shard, version: from }.encode();
                if values { scan } else { scan.keys_only() }
            })
            .collect();
        let pages = try_join_all(scans.iter().map(|scan| self.store.scan(scan))).await?;
        let mut page: Vec<(i64, Pair)> = pages
            .into_iter()
            .flatten()
            .filter_map(|pair| match StoreKey::decode(&pair.0) {
                Some(StoreKey::Log { version, .. }) => Some((version.cast_signed(), pair)),
                _ => None,
            })
            .collect();
        page.sort_by_key(|(version, _)| *version);
        page.truncate(limit);
        Ok(page)
    }

    async fn log_len(&self) -> Result<u64> {
        let is_line = |key: &[u8]| matches!(StoreKey::decode(key), Some(StoreKey::Log { .. }));
        let keys = self.keys_under(&prefix::log(None), is_line).await?;
        Ok(keys.len() as u64)
    }

    fn log_shards(&self) -> impl Iterator<Item = Option<u8>> {
        let count = self.store.properties().log_shards;
        let sharded = (0..=u8::MAX).take(count.map_or(0, usize::from)).map(Some);
        sharded.chain(count.is_none().then_some(None))
    }
}

/// Returns the unix second that a line begins with.
fn written_at(line: &[u8]) -> Option<i64> {
    let digits = line.split(|byte| *byte == b'.').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_with_the_time_it_was_written() {
        assert_eq!(written_at(b"1794789868.461127873|UNLINK(2,cl)|(1,4)"), Some(1_794_789_868));
        assert_eq!(written_at(b"garbage"), None);
    }
}
