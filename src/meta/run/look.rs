//! Looking: whether a commit whose answer was lost took effect.
//!
//! Names and slices are judged first: they are what other clients cannot change without it showing.
//! Attrs carry the operation's own time, so they settle plans that touch neither.

use crate::error::Result;
use crate::meta::engine::{Change, Engine, Key, Record};
use crate::meta::record::Slice;

#[derive(Debug, PartialEq, Eq)]
pub enum Look {
    Applied,
    /// Nothing of it is there; it may still arrive.
    Absent,
    /// Neither the old nor the new state: someone else went on from one of them.
    Mixed,
}

pub async fn look(engine: &dyn Engine, changes: &[Change]) -> Result<Look> {
    let firm: Vec<(Key, &Change)> = changes.iter().filter_map(firm_probe).collect();
    let probes =
        if firm.is_empty() { changes.iter().filter_map(soft_probe).collect() } else { firm };
    if probes.is_empty() {
        return Ok(Look::Mixed);
    }
    let keys: Vec<Key> = probes.iter().map(|(key, _)| key.clone()).collect();
    let records = engine.read(&keys).await?;
    let there =
        probes.iter().zip(&records).filter(|((_, change), record)| shows(change, record)).count();
    Ok(match there {
        0 => Look::Absent,
        n if n == probes.len() => Look::Applied,
        _ => Look::Mixed,
    })
}

fn firm_probe(change: &Change) -> Option<(Key, &Change)> {
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

fn soft_probe(change: &Change) -> Option<(Key, &Change)> {
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

fn shows(change: &Change, record: &Record) -> bool {
    match (change, record) {
        (Change::PutEntry(_, _, put), Record::Entry(now)) => now.as_ref() == Some(put),
        (Change::RemoveEntry(..), Record::Entry(now)) => now.is_none(),
        (Change::AppendSlices { slices, .. }, Record::Chunk(now)) => holds(now, slices),
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

fn holds(chunk: &[Slice], written: &[Slice]) -> bool {
    written.iter().filter(|slice| !slice.id.is_hole()).all(|slice| chunk.contains(slice))
}
