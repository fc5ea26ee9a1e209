//! Snapshots: clones of volumes, at `/.snapshots/<volume>/<snapshot>`.
//!
//! A snapshot exists if its directory does: a clone appears complete. Its record only adds the
//! creation time and the size, so snapshots of other drivers are snapshots too.

use std::sync::Arc;

use tonic::Status;

use super::delete::{TreeEntry, delete_tree, remove_if_empty};
use super::file_system::FileSystem;
use super::update::existing;
use super::volumes::directory;
use crate::csi::paths::{self, SNAPSHOTS};
use crate::csi::proto::csi::Snapshot;
use crate::csi::records::{self, SnapshotRecord};
use crate::error::{Error, Result};
use crate::meta::client::Progress;
use crate::meta::record::FileKind;
use crate::meta::{Caller, CloneMode, EntryRef, Ino, Meta, Name, Timestamp};

/// A snapshot and its directory.
pub struct FoundSnapshot {
    pub record: SnapshotRecord,
    pub dir: Ino,
}

/// Finds a snapshot by its id.
pub async fn find(meta: &Meta, id: &str) -> Result<Option<FoundSnapshot>> {
    if paths::check_id("snapshot", id).is_err() {
        return Ok(None);
    }
    if let Some(record) = records::read::<SnapshotRecord>(meta, id).await? {
        let dir = directory(meta, &path(&record.volume, id)).await?;
        return Ok(dir.map(|dir| FoundSnapshot { record, dir }));
    }
    for volume in volumes(meta).await? {
        if let Some(dir) = directory(meta, &path(&volume, id)).await? {
            return Ok(Some(FoundSnapshot {
                record: unrecorded(meta, &volume, id, dir).await?,
                dir,
            }));
        }
    }
    Ok(None)
}

/// Returns the snapshots of one volume, or of all, as pairs of volume and snapshot sorted by
/// snapshot.
pub async fn list(meta: &Meta, volume: Option<&str>) -> Result<Vec<(String, String)>> {
    let of = match volume {
        Some(volume) => vec![volume.to_owned()],
        None => volumes(meta).await?,
    };
    let mut all = Vec::new();
    for volume in of {
        if paths::check_id("volume", &volume).is_err() {
            continue;
        }
        let Some(dir) = directory(meta, &format!("{SNAPSHOTS}/{volume}")).await? else { continue };
        let ids = dirs(meta, dir).await?;
        all.extend(ids.into_iter().map(|id| (volume.clone(), id)));
    }
    all.sort_by(|one, other| one.1.cmp(&other.1));
    Ok(all)
}

/// Creates a snapshot, or returns the existing one.
pub async fn create(meta: &Meta, id: &str, volume: &str) -> Result<Snapshot, Status> {
    if let Some(found) = find(meta, id).await? {
        if found.record.volume != volume {
            return Err(Status::already_exists(format!(
                "snapshot {id} exists, of volume {}",
                found.record.volume
            )));
        }
        return Ok(to_csi(&found.record));
    }
    let (_, source) = existing(meta, volume).await?;
    let top = records::ensure_subdirectory(meta, Ino::ROOT, SNAPSHOTS, 0o700).await?;
    let parent = records::ensure_subdirectory(meta, top, volume, 0o700).await?;
    let now = Timestamp::now();
    let mode = CloneMode { preserve: true, umask: 0 };
    let name = Name::new(id)?;
    let progress = Progress::default();
    let dir = meta
        .clone_tree(&Caller::root(), source, EntryRef::new(parent, &name), mode, 0, &progress)
        .await?;
    let record = SnapshotRecord {
        id: id.to_owned(),
        volume: volume.to_owned(),
        created: (now.sec, now.nsec),
        size: meta.summary(dir, false).await?.size,
    };
    records::write(meta, &record).await?;
    Ok(to_csi(&record))
}

/// Deletes a snapshot. Succeeds if there is none.
pub async fn delete(file_system: &Arc<FileSystem>, id: &str) -> Result<(), Status> {
    let meta = &*file_system.meta;
    if let Some(found) = find(meta, id).await? {
        let top = meta.resolve(SNAPSHOTS).await?.0;
        let volume = Name::new(&found.record.volume)?;
        let parent = meta.lookup(&Caller::root(), top, &volume).await?.0;
        let entry = TreeEntry { parent, name: Name::new(id)?, ino: found.dir };
        delete_tree(file_system, &entry, id).await?;
        remove_if_empty(meta, top, &volume).await?;
    }
    match records::remove::<SnapshotRecord>(meta, id).await {
        // An id that is not a valid name has no record.
        Err(Error::Invalid | Error::NameTooLong) => Ok(()),
        other => Ok(other?),
    }
}

/// Converts a record to the CSI message.
pub fn to_csi(record: &SnapshotRecord) -> Snapshot {
    let (seconds, nanos) = record.created;
    let nanos = i32::try_from(nanos).unwrap_or(0);
    Snapshot {
        size_bytes: i64::try_from(record.size).unwrap_or(i64::MAX),
        snapshot_id: record.id.clone(),
        source_volume_id: record.volume.clone(),
        creation_time: Some(prost_types::Timestamp { seconds, nanos }),
        ready_to_use: true,
        group_snapshot_id: String::new(),
    }
}

/// Describes a snapshot without a record: another driver created it, or its creation was
/// interrupted before the record was written.
async fn unrecorded(meta: &Meta, volume: &str, id: &str, dir: Ino) -> Result<SnapshotRecord> {
    let made = meta.getattr(dir).await?.ctime;
    Ok(SnapshotRecord {
        id: id.to_owned(),
        volume: volume.to_owned(),
        created: (made.sec, made.nsec),
        size: meta.summary(dir, false).await?.size,
    })
}

async fn volumes(meta: &Meta) -> Result<Vec<String>> {
    match directory(meta, SNAPSHOTS).await? {
        Some(dir) => dirs(meta, dir).await,
        None => Ok(Vec::new()),
    }
}

async fn dirs(meta: &Meta, dir: Ino) -> Result<Vec<String>> {
    let entries = meta.entries(dir, false).await?;
    let dirs = entries.into_iter().filter(|entry| entry.kind == FileKind::Dir);
    let names = dirs.filter_map(|entry| String::from_utf8(entry.name.as_bytes().to_vec()).ok());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    Ok(names)
}

fn path(volume: &str, id: &str) -> String {
    format!("{SNAPSHOTS}/{volume}/{id}")
}
