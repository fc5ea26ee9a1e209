//! Garbage: what waits to be deleted.

use std::collections::HashSet;

use bytes::Bytes;

use super::super::{DelayedSlices, DeletedFile};
use super::batch::Kind;
use super::names::{self, deleted_member};
use super::volume::SCAN_STEP;
use super::write::text;
use super::{RedisEngine, reply, script};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::{SliceSize, delayed_slices};

/// What clients before 1.0 assumed of a deleted file whose length they did not note.
const LEGACY_LENGTH: u64 = 1 << 30;

impl RedisEngine {
    pub(super) async fn removed_files(
        &self,
        before: i64,
        limit: usize,
    ) -> Result<Vec<DeletedFile>> {
        let key = self.names.deleted_files();
        let mut cmd = redis::cmd("ZRANGEBYSCORE");
        cmd.arg(&key).arg("-inf").arg(before).arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
        let pairs = self.wire.ask_one(cmd).await?.pairs(&key)?;
        let mut files = Vec::with_capacity(pairs.len());
        for (member, score) in pairs {
            let at = reply::score(&score, &key)?;
            let (ino, length) = parse_deleted(&key, &member)?;
            if *member != *deleted_member(ino, length).as_bytes() {
                self.renew_deleted(&member, ino, length, at).await?;
            }
            files.push(DeletedFile { ino, length, at });
        }
        Ok(files)
    }

    /// Rewrites a member of an old form, since records are removed by inode and length.
    async fn renew_deleted(&self, member: &Bytes, ino: Ino, length: u64, at: i64) -> Result<()> {
        let key = self.names.deleted_files();
        self.apply(|batch| {
            let renewed = text(deleted_member(ino, length));
            batch.call(Kind::SortedSet, "ZADD", &key, [text(at), renewed]);
            batch.call(Kind::SortedSet, "ZREM", &key, [member.clone()]);
        })
        .await?;
        Ok(())
    }

    pub(super) async fn unreferenced(&self, limit: usize) -> Result<Vec<SliceSize>> {
        let key = self.names.slice_refs();
        let mut dead = Vec::new();
        let mut cursor = 0;
        while dead.len() < limit {
            let (next, pairs) = self.scan_hash(&key, cursor).await?;
            for (field, raw) in pairs {
                // One less than the count is stored: negative means no reference.
                if reply::number(&raw, &key)? >= 0 {
                    continue;
                }
                let slice = names::parse_slice_field(&field).ok_or_else(|| odd(&key, &field))?;
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

    pub(super) async fn drop_zero_refs(&self) -> Result<()> {
        let key = self.names.slice_refs();
        let mut cursor = 0;
        loop {
            let (next, pairs) = self.scan_hash(&key, cursor).await?;
            let zero: Vec<Bytes> =
                pairs.into_iter().filter(|(_, raw)| **raw == *b"0").map(|(f, _)| f).collect();
            for some in zero.chunks(1000) {
                let mut cmd = script::DROP_FIELDS.call(&[&key]);
                cmd.arg("0");
                for field in some {
                    cmd.arg(&field[..]);
                }
                self.wire.ask_one(cmd).await?.int(&key)?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    pub(super) async fn has_ref(&self, slice: SliceSize) -> Result<bool> {
        let key = self.names.slice_refs();
        let mut cmd = redis::cmd("HEXISTS");
        cmd.arg(&key).arg(names::slice_field(slice));
        Ok(self.wire.ask_one(cmd).await?.int(&key)? != 0)
    }

    pub(super) async fn drop_zero_ref(&self, slice: SliceSize) -> Result<()> {
        let key = self.names.slice_refs();
        let mut cmd = script::DROP_FIELDS.call(&[&key]);
        cmd.arg("0").arg(names::slice_field(slice));
        self.wire.ask_one(cmd).await?.int(&key)?;
        Ok(())
    }

    pub(super) async fn delayed(&self, before: i64, limit: usize) -> Result<Vec<DelayedSlices>> {
        let key = self.names.delayed();
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let mut cursor = 0;
        while found.len() < limit {
            let (next, pairs) = self.scan_hash(&key, cursor).await?;
            for (field, raw) in pairs {
                let (id, at) =
                    names::parse_delayed_field(&field).ok_or_else(|| odd(&key, &field))?;
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

    pub(super) async fn detached_nodes(&self, before: i64) -> Result<Vec<Ino>> {
        let key = self.names.detached();
        let mut cmd = redis::cmd("ZRANGEBYSCORE");
        cmd.arg(&key).arg("-inf").arg(before);
        let members = self.wire.ask_one(cmd).await?.list(&key)?;
        members.iter().map(|raw| reply::id(raw, &key).map(Ino)).collect()
    }

    /// One step of a scan over a hash; a field may come twice.
    pub(super) async fn scan_hash(
        &self,
        key: &str,
        cursor: u64,
    ) -> Result<(u64, Vec<(Bytes, Bytes)>)> {
        let mut cmd = redis::cmd("HSCAN");
        cmd.arg(key).arg(cursor).arg("COUNT").arg(SCAN_STEP);
        let (next, items) = self.wire.ask_one(cmd).await?.page(key)?;
        let mut items = items.into_iter();
        let mut pairs = Vec::with_capacity(items.len() / 2);
        while let (Some(field), Some(value)) = (items.next(), items.next()) {
            pairs.push((field, value));
        }
        Ok((next, pairs))
    }
}

/// `inode:length`; before 1.0 also `inode` or `inode:...:length`.
fn parse_deleted(key: &str, member: &[u8]) -> Result<(Ino, u64)> {
    let parts: Vec<&[u8]> = member.split(|byte| *byte == b':').collect();
    let length = match parts.as_slice() {
        [_] => LEGACY_LENGTH,
        [_, length] | [_, _, length] => reply::id(length, key)?,
        _ => return Err(odd(key, member)),
    };
    Ok((Ino(reply::id(parts[0], key)?), length))
}

fn odd(key: &str, field: &[u8]) -> Error {
    Error::damaged(key, format!("unreadable field {:?}", String::from_utf8_lossy(field)))
}
