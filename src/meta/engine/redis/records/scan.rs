//! Scans of the whole volume: all chunks, all delayed slices.

use redis::Pipeline;

use super::super::RedisEngine;
use super::super::client::reply;
use super::keyspace;
use super::volume::SCAN_STEP;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::engine::{Cursor, DelayedSlices, ScanPage, StoredChunk};
use crate::meta::record::{chunk, delayed_slices};

impl RedisEngine {
    /// Returns the chunks among the next keys of the database: often fewer than `limit`, since other
    /// keys are in between.
    pub(crate) async fn all_chunks(
        &self,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<ScanPage<StoredChunk>> {
        let stem = self.keyspace.chunks_stem();
        let Some(position) = position(cursor)? else { return Ok(end()) };
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(position).arg("MATCH").arg(format!("{stem}[0-9]*_*"));
        cmd.arg("COUNT").arg(limit.clamp(1, SCAN_STEP));
        let (next, keys) = self.client.query_one(cmd).await?.page(&stem)?;
        let mut found = Vec::with_capacity(keys.len());
        let mut pipe = Pipeline::with_capacity(keys.len());
        for key in &keys {
            if let Some((ino, index)) = parse_chunk(&stem, key) {
                pipe.cmd("LRANGE").arg(&key[..]).arg(0).arg(-1);
                found.push((ino, index));
            }
        }
        let mut records = Vec::with_capacity(found.len());
        if !found.is_empty() {
            let mut replies = self.client.query(&pipe).await?;
            for (ino, index) in found {
                let slices = match replies.list(&stem) {
                    Ok(items) => items.iter().map(|raw| chunk::decode(raw)).collect::<Result<_>>(),
                    Err(error) => Err(error),
                };
                let slices = match slices {
                    // Removed since its key was found.
                    Ok(slices) if Vec::is_empty(&slices) => continue,
                    Ok(slices) => Some(slices.into_iter().flatten().collect()),
                    Err(Error::Damaged { .. }) => None,
                    Err(error) => return Err(error),
                };
                records.push(StoredChunk { ino, index, slices });
            }
        }
        Ok(ScanPage { records, next: following(next) })
    }

    pub(crate) async fn all_delayed(
        &self,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<ScanPage<DelayedSlices>> {
        let key = self.keyspace.delayed();
        let Some(position) = position(cursor)? else { return Ok(end()) };
        let mut cmd = redis::cmd("HSCAN");
        cmd.arg(&key).arg(position).arg("COUNT").arg(limit.clamp(1, SCAN_STEP));
        let (next, items) = self.client.query_one(cmd).await?.page(&key)?;
        let mut records = Vec::with_capacity(items.len() / 2);
        for (field, raw) in reply::pairs(items) {
            let (id, at) = keyspace::parse_delayed_field(&field).ok_or_else(|| {
                let field = String::from_utf8_lossy(&field).into_owned();
                Error::damaged(&key, format!("unreadable field {field:?}"))
            })?;
            let slices = reply::at(&key, delayed_slices::decode(&raw))?;
            records.push(DelayedSlices { id, at, slices });
        }
        Ok(ScanPage { records, next: following(next) })
    }
}

/// Returns the position of a cursor; none at the end.
fn position(cursor: &Cursor) -> Result<Option<u64>> {
    match cursor {
        Cursor::Start => Ok(Some(0)),
        Cursor::Scan(position) => Ok(Some(*position)),
        Cursor::End => Ok(None),
        Cursor::After(_) => Err(Error::bad_input("a scan in Redis continues at a position")),
    }
}

fn following(next: u64) -> Cursor {
    if next == 0 { Cursor::End } else { Cursor::Scan(next) }
}

fn end<T>() -> ScanPage<T> {
    ScanPage { records: Vec::new(), next: Cursor::End }
}

/// Parses `c{inode}_{index}`.
fn parse_chunk(stem: &str, key: &[u8]) -> Option<(Ino, u32)> {
    let rest = std::str::from_utf8(key.strip_prefix(stem.as_bytes())?).ok()?;
    let (ino, index) = rest.split_once('_')?;
    Some((Ino(ino.parse().ok()?), index.parse().ok()?))
}
