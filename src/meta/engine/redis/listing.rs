//! Listings: entries of a directory, chunks of a file.

use std::collections::HashSet;

use redis::Pipeline;

use super::super::{Cursor, EntryPage};
use super::RedisEngine;
use super::reply;
use super::volume::SCAN_STEP;
use crate::error::{Error, Result};
use crate::meta::record::{CHUNK_SIZE, Entry};
use crate::meta::{Ino, Name};

/// Keys asked for at once.
const PROBES: u64 = 4096;

impl RedisEngine {
    /// Small directories are answered whole, large ones in pages of about `limit`.
    pub(super) async fn entries(
        &self,
        dir: Ino,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<EntryPage> {
        let position = match cursor {
            Cursor::Start => 0,
            Cursor::Scan(position) => *position,
            Cursor::End => return Ok(EntryPage { entries: Vec::new(), next: Cursor::End }),
            Cursor::After(name) => {
                return Err(Error::bad_input(format!("a listing goes on by position, not {name}")));
            }
        };
        let key = self.names.entries(dir);
        let mut cmd = redis::cmd("HSCAN");
        cmd.arg(&key).arg(position).arg("COUNT").arg(limit.clamp(1, SCAN_STEP));
        let (next, items) = self.wire.ask_one(cmd).await?.page(&key)?;

        let mut seen = HashSet::with_capacity(items.len() / 2);
        let mut entries = Vec::with_capacity(items.len() / 2);
        let mut items = items.into_iter();
        while let (Some(name), Some(raw)) = (items.next(), items.next()) {
            // Nothing can be done with an entry without a name.
            if name.is_empty() || !seen.insert(name.clone()) {
                continue;
            }
            entries.push((Name::stored(name), reply::at(&key, Entry::decode(&raw))?));
        }
        let next = if next == 0 { Cursor::End } else { Cursor::Scan(next) };
        Ok(EntryPage { entries, next })
    }

    /// Asks for each chunk that the length allows, or looks through all keys if those are fewer.
    pub(super) async fn existing_chunks(&self, ino: Ino, length: u64) -> Result<Vec<u32>> {
        let count = length.div_ceil(CHUNK_SIZE);
        if count > PROBES && count > self.key_count().await? {
            return self.scan_chunks(ino, count).await;
        }
        let mut found = Vec::new();
        let mut first = 0;
        while first < count {
            let indexes: Vec<u32> = (first..count.min(first + PROBES))
                .filter_map(|index| u32::try_from(index).ok())
                .collect();
            let mut pipe = Pipeline::with_capacity(indexes.len());
            for index in &indexes {
                pipe.cmd("EXISTS").arg(self.names.chunk(ino, *index));
            }
            let mut replies = self.wire.ask(&pipe).await?;
            for index in indexes {
                if replies.int(&self.names.chunk(ino, index))? != 0 {
                    found.push(index);
                }
            }
            first += PROBES;
        }
        Ok(found)
    }

    async fn key_count(&self) -> Result<u64> {
        let keys = self.wire.ask_one(redis::cmd("DBSIZE")).await?.int("DBSIZE")?;
        Ok(u64::try_from(keys).unwrap_or(0))
    }

    async fn scan_chunks(&self, ino: Ino, count: u64) -> Result<Vec<u32>> {
        let stem = self.names.chunk_stem(ino);
        let mut found = Vec::new();
        let mut cursor = 0;
        loop {
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(cursor).arg("MATCH").arg(format!("{stem}*")).arg("COUNT").arg(SCAN_STEP);
            let (next, keys) = self.wire.ask_one(cmd).await?.page(&stem)?;
            for key in keys {
                let index = key.strip_prefix(stem.as_bytes()).map(|raw| reply::id(raw, &stem));
                if let Some(Ok(index)) = index
                    && index < count
                    && let Ok(index) = u32::try_from(index)
                {
                    found.push(index);
                }
            }
            if next == 0 {
                break;
            }
            cursor = next;
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}
