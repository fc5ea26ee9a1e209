//! Listings: the entries of a directory, the chunks of a file.

use std::collections::HashSet;

use redis::Pipeline;

use super::super::RedisEngine;
use super::super::client::reply;
use super::volume::SCAN_STEP;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::engine::{Cursor, EntryPage};
use crate::meta::record::{CHUNK_SIZE, Entry};

/// Keys checked in one request.
const KEYS_PER_REQUEST: u64 = 4096;

impl RedisEngine {
    /// Returns a small directory completely, a large one in pages of about `limit` entries.
    pub(crate) async fn entries(
        &self,
        dir: Ino,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<EntryPage> {
        let position = match cursor {
            Cursor::Start => 0,
            Cursor::Scan(position) => *position,
            Cursor::End => return Ok(EntryPage::end()),
            Cursor::After(_) => {
                return Err(Error::bad_input(
                    "a listing in Redis continues at a position, not after a name",
                ));
            }
        };
        let key = self.keyspace.entries(dir);
        let mut cmd = redis::cmd("HSCAN");
        cmd.arg(&key).arg(position).arg("COUNT").arg(limit.clamp(1, SCAN_STEP));
        let (next, items) = self.client.query_one(cmd).await?.page(&key)?;

        let mut seen = HashSet::with_capacity(items.len() / 2);
        let mut page = EntryPage::end();
        let mut items = items.into_iter();
        while let (Some(name), Some(raw)) = (items.next(), items.next()) {
            if seen.insert(name.clone()) {
                page.add(name, Entry::decode(&raw).ok());
            }
        }
        if next != 0 {
            page.next = Cursor::Scan(next);
        }
        Ok(page)
    }

    /// Checks each chunk that the length allows, or scans all keys if there are fewer of those.
    pub(crate) async fn existing_chunks(&self, ino: Ino, length: u64) -> Result<Vec<u32>> {
        let count = length.div_ceil(CHUNK_SIZE);
        if count > KEYS_PER_REQUEST && count > self.key_count().await? {
            return self.scan_chunks(ino, count).await;
        }
        let mut found = Vec::new();
        let mut first = 0;
        while first < count {
            let indexes: Vec<u32> = (first..count.min(first + KEYS_PER_REQUEST))
                .filter_map(|index| u32::try_from(index).ok())
                .collect();
            let mut pipe = Pipeline::with_capacity(indexes.len());
            for index in &indexes {
                pipe.cmd("EXISTS").arg(self.keyspace.chunk(ino, *index));
            }
            let mut replies = self.client.query(&pipe).await?;
            for index in indexes {
                if replies.int(&self.keyspace.chunk(ino, index))? != 0 {
                    found.push(index);
                }
            }
            first += KEYS_PER_REQUEST;
        }
        Ok(found)
    }

    /// As [`RedisEngine::existing_chunks`], for many small files: one command counts the files that have
    /// a chunk at some index. Only if some have it and some do not, there is one command for each.
    pub(crate) async fn existing_chunks_of(&self, files: &[(Ino, u64)]) -> Result<Vec<Vec<u32>>> {
        let counts: Vec<u64> =
            files.iter().map(|(_, length)| length.div_ceil(CHUNK_SIZE)).collect();
        let most = counts.iter().copied().max().unwrap_or(0);
        let mut found = vec![Vec::new(); files.len()];
        let mut rounds = Vec::new();
        let mut pipe = Pipeline::new();
        for index in (0..most).filter_map(|index| u32::try_from(index).ok()) {
            let asked: Vec<usize> =
                (0..files.len()).filter(|at| counts[*at] > u64::from(index)).collect();
            pipe.cmd("EXISTS");
            for at in &asked {
                pipe.arg(self.keyspace.chunk(files[*at].0, index));
            }
            rounds.push((index, asked));
        }
        let mut replies = self.client.query(&pipe).await?;
        let mut unclear = Vec::new();
        for (index, asked) in rounds {
            let count = replies.int("EXISTS")?;
            if count == i64::try_from(asked.len()).unwrap_or(i64::MAX) {
                for at in asked {
                    found[at].push(index);
                }
            } else if count != 0 {
                unclear.extend(asked.into_iter().map(|at| (at, index)));
            }
        }
        let mut pipe = Pipeline::with_capacity(unclear.len());
        for (at, index) in &unclear {
            pipe.cmd("EXISTS").arg(self.keyspace.chunk(files[*at].0, *index));
        }
        if !unclear.is_empty() {
            let mut replies = self.client.query(&pipe).await?;
            for (at, index) in unclear {
                if replies.int("EXISTS")? != 0 {
                    found[at].push(index);
                }
            }
        }
        for chunks in &mut found {
            chunks.sort_unstable();
        }
        Ok(found)
    }

    async fn key_count(&self) -> Result<u64> {
        let keys = self.client.query_one(redis::cmd("DBSIZE")).await?.int("DBSIZE")?;
        Ok(u64::try_from(keys).unwrap_or(0))
    }

    async fn scan_chunks(&self, ino: Ino, count: u64) -> Result<Vec<u32>> {
        let stem = self.keyspace.chunk_stem(ino);
        let mut found = Vec::new();
        let mut cursor = 0;
        loop {
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(cursor).arg("MATCH").arg(format!("{stem}*")).arg("COUNT").arg(SCAN_STEP);
            let (next, keys) = self.client.query_one(cmd).await?.page(&stem)?;
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
