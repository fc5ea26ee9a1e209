//! Garbage: files and slices that wait to be deleted.

use std::collections::HashSet;

use bytes::Bytes;

use super::super::client::reply;
use super::super::transaction::batch::ValueType;
use super::super::transaction::write::text;
use super::super::{RedisEngine, scripts};
use super::keyspace::{self, deleted_member};
use super::volume::SCAN_STEP;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::engine::{DelayedSlices, DeletedFile};
use crate::meta::record::{SliceSize, delayed_slices};

/// The length that clients before 1.0 assumed for a deleted file if they had not stored it.
const LEGACY_LENGTH: u64 = 1 << 30;

impl RedisEngine {
    pub(crate) async fn removed_files(
        &self,
        before: i64,
        limit: usize,
    ) -> Result<Vec<DeletedFile>> {
        let key = self.keyspace.deleted_files();
        let mut cmd = redis::cmd("ZRANGEBYSCORE");
        cmd.arg(&key).arg("-inf").arg(before).arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
        let pairs = self.client.query_one(cmd).await?.pairs(&key)?;
        let mut files = Vec::with_capacity(pairs.len());
        for (member, score) in pairs {
            let at = reply::score(&score, &key)?;
            let (ino, length) = parse_deleted(&key, &member)?;
            if *member != *deleted_member(ino, length).as_bytes() {
                self.rewrite_deleted(&member, ino, length, at).await?;
            }
            files.push(DeletedFile { ino, length, at });
        }
        Ok(files)
    }

    /// Rewrites a member of an old format, since records are removed by inode and length.
    async fn rewrite_deleted(&self, member: &Bytes, ino: Ino, length: u64, at: i64) -> Result<()> {
        let key = self.keyspace.deleted_files();
        self.apply(|batch| {
            let rewritten = text(deleted_member(ino, length));
            batch.call(ValueType::SortedSet, "ZADD", &key, [text(at), rewritten]);
            batch.call(ValueType::SortedSet, "ZREM", &key, [member.clone()]);
        })
        .await?;
        Ok(())
    }

    pub(crate) async fn unreferenced(&self, limit: usize) -> Result<Vec<SliceSize>> {
        let key = self.keyspace.slice_refs();
        let mut dead = Vec::new();
        let mut cursor = 0;
        while dead.len() < limit {
            let (next, pairs) = self.scan_hash(&key, cursor).await?;
            for (field, raw) in pairs {
                // The stored number is one less than the count: negative means no reference.
                if reply::number(&raw, &key)? >= 0 {
                    continue;
                }
                let slice = keyspace::parse_slice_field(&field)
                    .ok_or_else(|| unreadable_field(&key, &field))?;
                if !slice.id.is_hole() && slice.size > 0 {
                    dead.push(slice);
                }
            }
            if next == 0 {
                break;
            }
            cursor = next;
        }
        dead.sort_unstable();
        dead.dedup();
        dead.truncate(limit);
        Ok(dead)
    }

    pub(crate) async fn drop_zero_refs(&self) -> Result<()> {
        let key = self.keyspace.slice_refs();
        let mut cursor = 0;
        loop {
            let (next, pairs) = self.scan_hash(&key, cursor).await?;
            let zero: Vec<Bytes> =
                pairs.into_iter().filter(|(_, raw)| **raw == *b"0").map(|(f, _)| f).collect();
            for some in zero.chunks(1000) {
                let mut cmd = scripts::DROP_FIELDS.call(&[&key]);
                cmd.arg("0");
                for field in some {
                    cmd.arg(&field[..]);
                }
                self.client.query_one(cmd).await?.int(&key)?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    pub(crate) async fn has_ref(&self, slice: SliceSize) -> Result<bool> {
        let key = self.keyspace.slice_refs();
        let mut cmd = redis::cmd("HEXISTS");
        cmd.arg(&key).arg(keyspace::slice_field(slice));
        Ok(self.client.query_one(cmd).await?.int(&key)? != 0)
    }

    pub(crate) async fn drop_zero_ref(&self, slice: SliceSize) -> Result<()> {
        let key = self.keyspace.slice_refs();
        let mut cmd = scripts::DROP_FIELDS.call(&[&key]);
        cmd.arg("0").arg(keyspace::slice_field(slice));
        self.client.query_one(cmd).await?.int(&key)?;
        Ok(())
    }

    pub(crate) async fn delayed(&self, before: i64, limit: usize) -> Result<Vec<DelayedSlices>> {
        let key = self.keyspace.delayed();
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let mut cursor = 0;
        while found.len() < limit {
            let (next, pairs) = self.scan_hash(&key, cursor).await?;
            for (field, raw) in pairs {
                let (id, at) = keyspace::parse_delayed_field(&field)
                    .ok_or_else(|| unreadable_field(&key, &field))?;
                if at <= before && seen.insert((id, at)) {
                    let slices = reply::at(&key, delayed_slices::decode(&raw))?;
                    found.push(DelayedSlices { id, at, slices });
                }
                if found.len() == limit {
                    break;
                }
            }
            if next == 0 {
                break;
            }
            cursor = next;
        }
        Ok(found)
    }

    pub(crate) async fn detached_nodes(&self, before: i64) -> Result<Vec<Ino>> {
        let key = self.keyspace.detached();
        let mut cmd = redis::cmd("ZRANGEBYSCORE");
        cmd.arg(&key).arg("-inf").arg(before);
        let members = self.client.query_one(cmd).await?.list(&key)?;
        members.iter().map(|raw| reply::id(raw, &key).map(Ino)).collect()
    }

    /// Returns the next cursor and one page of a hash. A field may appear twice in a scan.
    pub(crate) async fn scan_hash(
        &self,
        key: &str,
        cursor: u64,
    ) -> Result<(u64, Vec<(Bytes, Bytes)>)> {
        let mut cmd = redis::cmd("HSCAN");
        cmd.arg(key).arg(cursor).arg("COUNT").arg(SCAN_STEP);
        let (next, items) = self.client.query_one(cmd).await?.page(key)?;
        Ok((next, reply::pairs(items)))
    }
}

/// Parses `inode:length`; clients before 1.0 also wrote `inode` or `inode:...:length`.
fn parse_deleted(key: &str, member: &[u8]) -> Result<(Ino, u64)> {
    let parts: Vec<&[u8]> = member.split(|byte| *byte == b':').collect();
    let length = match parts.as_slice() {
        [_] => LEGACY_LENGTH,
        [_, length] | [_, _, length] => reply::id(length, key)?,
        _ => return Err(unreadable_field(key, member)),
    };
    Ok((Ino(reply::id(parts[0], key)?), length))
}

fn unreadable_field(key: &str, field: &[u8]) -> Error {
    Error::damaged(key, format!("unreadable field {:?}", String::from_utf8_lossy(field)))
}
