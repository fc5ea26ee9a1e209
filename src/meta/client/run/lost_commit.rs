//! Lost commits: whether a commit whose reply was lost took effect.
//!
//! Entries and slices are checked first: other clients cannot change them without leaving a trace.
//! Attrs contain the operation's own time, so they decide for plans that touch neither.

use crate::error::Result;
use crate::meta::engine::{Change, Engine, Key, Record};
use crate::meta::record::Slice;

/// How much of a commit the store shows.
#[derive(Debug, PartialEq, Eq)]
pub enum CommitState {
    Applied,
    /// None of its changes are there; it may still take effect.
    Absent,
    /// Neither the old nor the new state: another client has changed one of them since.
    Mixed,
}

/// Compares the store with the changes of a commit.
pub async fn check_commit(engine: &dyn Engine, changes: &[Change]) -> Result<CommitState> {
    let primary: Vec<(Key, &Change)> = changes.iter().filter_map(entry_or_chunk_key).collect();
    let probes =
        if primary.is_empty() { changes.iter().filter_map(other_key).collect() } else { primary };
    if probes.is_empty() {
        return Ok(CommitState::Mixed);
    }
    let keys: Vec<Key> = probes.iter().map(|(key, _)| key.clone()).collect();
    let records = engine.read(&keys).await?;
    let applied =
        probes.iter().zip(&records).filter(|((_, change), record)| shows(change, record)).count();
    Ok(match applied {
        0 => CommitState::Absent,
        n if n == probes.len() => CommitState::Applied,
        _ => CommitState::Mixed,
    })
}

fn entry_or_chunk_key(change: &Change) -> Option<(Key, &Change)> {
    let key = match change {
        Change::PutEntry(dir, name, _) | Change::RemoveEntry(dir, name) => {
            Key::Entry(*dir, name.clone())
        }
        Change::AppendSlices { ino, index, slices, .. }
            if slices.iter().any(|s| !s.id.is_hole()) =>
        {
            Key::Chunk(*ino, *index)
        }
        Change::ReplaceSlices { ino, index, .. } | Change::RemoveChunk { ino, index } => {
            Key::Chunk(*ino, *index)
        }
        _ => return None,
    };
    Some((key, change))
}

fn other_key(change: &Change) -> Option<(Key, &Change)> {
    let key = match change {
        Change::PutAttr(ino, _) | Change::RemoveAttr(ino) => Key::Attr(*ino),
        Change::PutXattr(ino, name, _) | Change::RemoveXattr(ino, name) => {
            Key::Xattr(*ino, name.clone())
        }
        Change::PutFlock { ino, .. } | Change::RemoveFlock { ino, .. } => Key::Flocks(*ino),
        Change::PutPlock { ino, .. } | Change::RemovePlock { ino, .. } => Key::Plocks(*ino),
        Change::AddSustained(sid, ino) | Change::RemoveSustained(sid, ino) => {
            Key::Sustained(*sid, *ino)
        }
        _ => return None,
    };
    Some((key, change))
}

/// Whether the record is as the change leaves it.
fn shows(change: &Change, record: &Record) -> bool {
    match (change, record) {
        (Change::PutEntry(_, _, put), Record::Entry(now)) => now.as_ref() == Some(put),
        (Change::RemoveEntry(..), Record::Entry(now)) => now.is_none(),
        (Change::AppendSlices { slices, .. }, Record::Chunk(now)) => contains_all(now, slices),
        (Change::ReplaceSlices { with, .. }, Record::Chunk(now)) => now.starts_with(with),
        (Change::RemoveChunk { .. }, Record::Chunk(now)) => now.is_empty(),
        (Change::PutAttr(_, put), Record::Attr(now)) => now.as_ref() == Some(put),
        (Change::RemoveAttr(_), Record::Attr(now)) => now.is_none(),
        (Change::PutXattr(_, _, put), Record::Xattr(now)) => now.as_ref() == Some(put),
        (Change::RemoveXattr(..), Record::Xattr(now)) => now.is_none(),
        (Change::PutFlock { sid, owner, kind, .. }, Record::Flocks(now)) => {
            now.iter().any(|l| l.sid == *sid && l.owner == *owner && l.kind == *kind)
        }
        (Change::RemoveFlock { sid, owner, .. }, Record::Flocks(now)) => {
            !now.iter().any(|l| l.sid == *sid && l.owner == *owner)
        }
        (Change::PutPlock { sid, owner, ranges, .. }, Record::Plocks(now)) => {
            now.iter().any(|l| l.sid == *sid && l.owner == *owner && l.ranges == *ranges)
        }
        (Change::RemovePlock { sid, owner, .. }, Record::Plocks(now)) => {
            !now.iter().any(|l| l.sid == *sid && l.owner == *owner)
        }
        (Change::AddSustained(..), Record::Sustained(is)) => *is,
        (Change::RemoveSustained(..), Record::Sustained(is)) => !*is,
        _ => false,
    }
}

fn contains_all(chunk: &[Slice], written: &[Slice]) -> bool {
    written.iter().filter(|slice| !slice.id.is_hole()).all(|slice| chunk.contains(slice))
}
