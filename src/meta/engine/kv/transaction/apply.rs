//! Applying changes: which keys each kind of change writes.

use std::collections::HashSet;

use bytes::{Bytes, BytesMut};

use super::write_buffer::WriteBuffer;
use crate::error::{Error, Result};
use crate::meta::engine::Change;
use crate::meta::engine::kv::keys::{StoreKey, prefix};
use crate::meta::engine::kv::values::{self, fixed};
use crate::meta::record::chunk::SLICE_LEN;
use crate::meta::record::{Attr, Flock, Plock, QuotaKey, Slice, SliceSize, chunk, delayed_slices};
use crate::meta::{Ino, LockOwner, Sid};

/// Applies changes in order to the loaded values.
pub(super) struct Applier<'a> {
    buffer: &'a mut WriteBuffer,
    /// Slices that this plan names for the first time: each has at most one record in a chunk.
    fresh: HashSet<SliceSize>,
    log_key: Vec<u8>,
}

impl<'a> Applier<'a> {
    pub fn new(buffer: &'a mut WriteBuffer, changes: &[Change], log_key: Vec<u8>) -> Self {
        let fresh = changes.iter().filter_map(|change| match change {
            Change::NewSlice(slice) => Some(*slice),
            _ => None,
        });
        Self { buffer, fresh: fresh.collect(), log_key }
    }

    /// Returns one number per change, as [`Txn::commit`](crate::meta::engine::Txn::commit) does.
    pub fn apply(&mut self, changes: &[Change]) -> Result<Vec<i64>> {
        changes.iter().map(|change| self.apply_one(change)).collect()
    }

    fn apply_one(&mut self, change: &Change) -> Result<i64> {
        match change {
            Change::PutAttr(ino, attr) => self.put(&StoreKey::Attr(*ino), attr.encode()),
            Change::RemoveAttr(ino) => self.delete(&StoreKey::Attr(*ino)),
            Change::TouchDir { ino, links, at } => {
                let key = StoreKey::Attr(*ino);
                let raw = self.buffer.value(&key.encode()).cloned().ok_or(Error::NotFound)?;
                let mut dir = Attr::decode(&raw)?;
                dir.touch(*links, *at);
                self.put(&key, dir.encode());
            }
            Change::PutEntry(dir, name, entry) => {
                self.put(&StoreKey::Entry(*dir, name.clone()), fixed(entry.encode()));
            }
            Change::RemoveEntry(dir, name) => self.delete(&StoreKey::Entry(*dir, name.clone())),
            Change::AddParent { ino, parent, count } => {
                self.add(&StoreKey::Parent { ino: *ino, parent: *parent }, *count)?;
            }
            Change::RemoveParents(ino) => self.buffer.delete_prefix(&prefix::parents(*ino)),
            Change::PutSymlink(ino, target) => self.put(&StoreKey::Symlink(*ino), target.clone()),
            Change::RemoveSymlink(ino) => self.delete(&StoreKey::Symlink(*ino)),
            Change::PutXattr(ino, name, value) => {
                self.put(&StoreKey::Xattr(*ino, name.clone()), value.clone());
            }
            Change::RemoveXattr(ino, name) => self.delete(&StoreKey::Xattr(*ino, name.clone())),
            Change::RemoveXattrs(ino) => self.buffer.delete_prefix(&prefix::xattrs(*ino)),

            Change::AppendSlices { ino, index, slices, if_present } => {
                return self.append(*ino, *index, slices, *if_present);
            }
            Change::ReplaceSlices { ino, index, count, with } => {
                self.replace(*ino, *index, *count, with)?;
            }
            Change::RemoveChunk { ino, index } => self.delete(&StoreKey::Chunk(*ino, *index)),

            Change::TrackSlice(slice) => {
                self.put(&StoreKey::SliceRef(slice.id, slice.size), values::encode_number(0));
            }
            Change::AddSliceRef { slice, by } => {
                let beyond_first = self.add(&StoreKey::SliceRef(slice.id, slice.size), *by)?;
                return Ok(beyond_first + 1);
            }
            Change::RemoveSliceRef(slice) => self.delete(&StoreKey::SliceRef(slice.id, slice.size)),
            Change::PutDelayed { id, at, slices } => {
                let raw = delayed_slices::encode(slices);
                if !raw.is_empty() {
                    self.put(&StoreKey::Delayed { at: *at, id: *id }, raw);
                }
            }
            Change::RemoveDelayed { id, at } => {
                self.delete(&StoreKey::Delayed { at: *at, id: *id });
            }

            Change::AddSustained(sid, ino) => {
                self.put(&StoreKey::Sustained(*sid, *ino), values::MARK);
            }
            Change::RemoveSustained(sid, ino) => self.delete(&StoreKey::Sustained(*sid, *ino)),
            Change::PutDeletedFile { ino, length, at } => {
                let key = StoreKey::DeletedFile { ino: *ino, length: *length };
                self.put(&key, values::encode_time(*at));
            }
            Change::RemoveDeletedFile { ino, length } => {
                self.delete(&StoreKey::DeletedFile { ino: *ino, length: *length });
            }
            Change::PutDetached(ino, at) => {
                self.put(&StoreKey::Detached(*ino), values::encode_time(*at));
            }
            Change::RemoveDetached(ino) => self.delete(&StoreKey::Detached(*ino)),

            // A plain write has no reference record, and usage is flushed outside commits.
            Change::NewSlice(_) | Change::AddUsage { .. } => {}
            Change::PutDirStat(ino, stat) => {
                self.put(&StoreKey::DirStat(*ino), fixed(stat.encode()));
            }
            Change::RemoveDirStat(ino) => self.delete(&StoreKey::DirStat(*ino)),
            Change::RemoveDirQuota(ino) => self.delete(&StoreKey::Quota(QuotaKey::Dir(*ino))),

            Change::PutFlock { ino, sid, owner, kind } => {
                self.lock_flock(*ino, Flock { sid: *sid, owner: *owner, kind: *kind })?;
            }
            Change::RemoveFlock { ino, sid, owner } => self.unlock_flock(*ino, *sid, *owner)?,
            Change::PutPlock { ino, sid, owner, ranges } => {
                self.lock_plock(*ino, Plock { sid: *sid, owner: *owner, ranges: ranges.clone() })?;
            }
            Change::RemovePlock { ino, sid, owner } => self.unlock_plock(*ino, *sid, *owner)?,

            Change::Log(line) => self.log(line),
        }
        Ok(0)
    }

    fn put(&mut self, key: &StoreKey, value: Bytes) {
        self.buffer.put(key.encode(), value);
    }

    fn delete(&mut self, key: &StoreKey) {
        self.buffer.delete(key.encode());
    }

    fn add(&mut self, key: &StoreKey, by: i64) -> Result<i64> {
        let key = key.encode();
        let sum = values::decode_number(self.buffer.value(&key))? + by;
        self.buffer.put(key, values::encode_number(sum));
        Ok(sum)
    }

    fn append(&mut self, ino: Ino, index: u32, slices: &[Slice], if_present: bool) -> Result<i64> {
        let key = StoreKey::Chunk(ino, index).encode();
        let old = self.chunk(&key, ino, index)?;
        if if_present && old.is_empty() {
            return Ok(0);
        }
        let mut new = BytesMut::with_capacity(old.len() + slices.len() * SLICE_LEN);
        new.extend_from_slice(&old);
        for slice in slices {
            let record = chunk::encode(std::slice::from_ref(slice));
            // The record of a slice just written exists only if this very write was applied before
            // and its response was lost.
            let is_fresh = self.fresh.contains(&SliceSize { id: slice.id, size: slice.size });
            if is_fresh && old.chunks_exact(SLICE_LEN).any(|stored| stored == record) {
                continue;
            }
            new.extend_from_slice(&record);
        }
        let count = new.len() / SLICE_LEN;
        if new.len() > old.len() {
            self.buffer.put(key, new.freeze());
        }
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// The caller has checked that the chunk has at least `count` records.
    fn replace(&mut self, ino: Ino, index: u32, count: usize, with: &[Slice]) -> Result<()> {
        let key = StoreKey::Chunk(ino, index).encode();
        let old = self.chunk(&key, ino, index)?;
        let rest = old.get(count * SLICE_LEN..).ok_or(Error::Invalid)?;
        let mut new = BytesMut::from(chunk::encode(with));
        new.extend_from_slice(rest);
        if new.is_empty() {
            self.buffer.delete(key);
        } else {
            self.buffer.put(key, new.freeze());
        }
        Ok(())
    }

    /// Returns the stored bytes of a chunk, after checking that they are whole records.
    fn chunk(&self, key: &[u8], ino: Ino, index: u32) -> Result<Bytes> {
        let raw = self.buffer.value(key).cloned().unwrap_or_default();
        if !raw.len().is_multiple_of(SLICE_LEN) {
            return Err(Error::damaged(
                format!("chunk {index} of inode {ino}"),
                format!("{} bytes, not a multiple of {SLICE_LEN}", raw.len()),
            ));
        }
        Ok(raw)
    }

    fn lock_flock(&mut self, ino: Ino, lock: Flock) -> Result<()> {
        let mut locks = self.flocks(ino)?;
        match locks.iter_mut().find(|held| held.sid == lock.sid && held.owner == lock.owner) {
            Some(held) => *held = lock,
            None => locks.push(lock),
        }
        self.put(&StoreKey::Flocks(ino), values::encode_flocks(&locks));
        Ok(())
    }

    fn unlock_flock(&mut self, ino: Ino, sid: Sid, owner: LockOwner) -> Result<()> {
        let mut locks = self.flocks(ino)?;
        locks.retain(|held| held.sid != sid || held.owner != owner);
        if locks.is_empty() {
            self.delete(&StoreKey::Flocks(ino));
        } else {
            self.put(&StoreKey::Flocks(ino), values::encode_flocks(&locks));
        }
        Ok(())
    }

    fn flocks(&self, ino: Ino) -> Result<Vec<Flock>> {
        let raw = self.buffer.value(&StoreKey::Flocks(ino).encode());
        values::decode_flocks(raw.map_or(&[], AsRef::as_ref))
    }

    fn lock_plock(&mut self, ino: Ino, lock: Plock) -> Result<()> {
        let mut locks = self.plocks(ino)?;
        match locks.iter_mut().find(|held| held.sid == lock.sid && held.owner == lock.owner) {
            Some(held) => *held = lock,
            None => locks.push(lock),
        }
        self.put(&StoreKey::Plocks(ino), values::encode_plocks(&locks));
        Ok(())
    }

    fn unlock_plock(&mut self, ino: Ino, sid: Sid, owner: LockOwner) -> Result<()> {
        let mut locks = self.plocks(ino)?;
        locks.retain(|held| held.sid != sid || held.owner != owner);
        if locks.is_empty() {
            self.delete(&StoreKey::Plocks(ino));
        } else {
            self.put(&StoreKey::Plocks(ino), values::encode_plocks(&locks));
        }
        Ok(())
    }

    fn plocks(&self, ino: Ino) -> Result<Vec<Plock>> {
        let raw = self.buffer.value(&StoreKey::Plocks(ino).encode());
        values::decode_plocks(raw.map_or(&[], AsRef::as_ref))
    }

    /// All lines of a commit share one key. A line itself never contains a line break.
    fn log(&mut self, line: &str) {
        let mut lines =
            BytesMut::from(self.buffer.value(&self.log_key).map_or(&b""[..], AsRef::as_ref));
        if !lines.is_empty() {
            lines.extend_from_slice(b"\n");
        }
        lines.extend_from_slice(line.as_bytes());
        self.buffer.put(self.log_key.clone(), lines.freeze());
    }
}
