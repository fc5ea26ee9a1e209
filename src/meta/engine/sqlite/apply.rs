//! Applying changes: which rows each kind of change writes.

use super::db::Db;
use super::errors::DbResult;
use super::tables::{
    changelog, chunk, counter, entry, garbage, lock, node, session, slice, usage, xattr,
};
use crate::meta::engine::Change;
use crate::meta::record::{Counter, QuotaKey};

/// Applies all changes in order, inside the caller's transaction. Returns one number per change.
pub fn changes(db: &Db, changes: &[Change]) -> DbResult<Vec<i64>> {
    changes.iter().map(|change| apply(db, change)).collect()
}

fn apply(db: &Db, change: &Change) -> DbResult<i64> {
    match change {
        Change::AppendSlices { ino, index, slices, if_present } => {
            return chunk::append(db, *ino, *index, slices, *if_present);
        }
        Change::AddSliceRef { slice, by } => return slice::add_refs(db, *slice, *by),

        Change::PutAttr(ino, attr) => node::put(db, *ino, attr)?,
        Change::RemoveAttr(ino) => node::remove(db, *ino)?,
        Change::TouchDir { ino, links, at } => node::touch(db, *ino, *links, *at)?,
        Change::PutEntry(dir, name, to) => entry::put(db, *dir, name, *to)?,
        Change::RemoveEntry(dir, name) => entry::remove(db, *dir, name)?,
        // Parents are counted from the entries.
        Change::AddParent { .. } | Change::RemoveParents(_) => {}
        Change::PutSymlink(ino, target) => xattr::put_symlink(db, *ino, target)?,
        Change::RemoveSymlink(ino) => xattr::remove_symlink(db, *ino)?,
        Change::PutXattr(ino, name, value) => xattr::put_xattr(db, *ino, name, value)?,
        Change::RemoveXattr(ino, name) => xattr::remove_xattr(db, *ino, name)?,
        Change::RemoveXattrs(ino) => xattr::remove_xattrs(db, *ino)?,

        Change::ReplaceSlices { ino, index, count, with } => {
            chunk::replace(db, *ino, *index, *count, with)?;
        }
        Change::RemoveChunk { ino, index } => chunk::remove(db, *ino, *index)?,
        Change::NewSlice(slice) | Change::TrackSlice(slice) => slice::insert(db, *slice)?,
        Change::RemoveSliceRef(slice) => slice::remove(db, *slice)?,
        Change::PutDelayed { id, at, slices } => slice::put_delayed(db, *id, *at, slices)?,
        Change::RemoveDelayed { id, at } => slice::remove_delayed(db, *id, *at)?,

        Change::AddSustained(sid, ino) => session::add_sustained(db, *sid, *ino)?,
        Change::RemoveSustained(sid, ino) => session::remove_sustained(db, *sid, *ino)?,
        Change::PutDeletedFile { ino, length, at } => garbage::put_file(db, *ino, *length, *at)?,
        Change::RemoveDeletedFile { ino, .. } => garbage::remove_file(db, *ino)?,
        Change::PutDetached(ino, at) => garbage::put_detached(db, *ino, *at)?,
        Change::RemoveDetached(ino) => garbage::remove_detached(db, *ino)?,

        Change::AddUsage { space, inodes } => {
            for (counter, by) in [(Counter::UsedSpace, *space), (Counter::TotalInodes, *inodes)] {
                if by != 0 {
                    counter::add(db, counter, by)?;
                }
            }
        }
        Change::PutDirStat(ino, stat) => usage::put_dir_stat(db, *ino, stat)?,
        Change::RemoveDirStat(ino) => usage::remove_dir_stat(db, *ino)?,
        Change::RemoveDirQuota(ino) => usage::remove_quota(db, QuotaKey::Dir(*ino))?,

        Change::PutFlock { ino, sid, owner, kind } => {
            lock::put_flock(db, *ino, *sid, *owner, *kind)?;
        }
        Change::RemoveFlock { ino, sid, owner } => lock::remove_flock(db, *ino, *sid, *owner)?,
        Change::PutPlock { ino, sid, owner, ranges } => {
            lock::put_plock(db, *ino, *sid, *owner, ranges)?;
        }
        Change::RemovePlock { ino, sid, owner } => lock::remove_plock(db, *ino, *sid, *owner)?,

        Change::Log(line) => changelog::append(db, line)?,
    }
    Ok(0)
}
