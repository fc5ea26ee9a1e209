//! Snapshots: clones of volumes, at `/.snapshots/<volume>/<snapshot>`.
//!
//! The directory is the truth: a clone appears whole. The record beside it only remembers when it
//! was made and how large it is, so that snapshots of other drivers are snapshots too.

use std::sync::Arc;

use tonic::Status;

use super::change::existing;
use super::delete::{discard, remove_empty};
use super::system::System;
use super::volumes::directory;
use crate::csi::place::{self, SNAPSHOTS};
use crate::csi::proto::csi::Snapshot;
use crate::csi::records::{self, SnapshotRecord};
use crate::error::{Error, Result};
use crate::meta::client::Progress;
use crate::meta::record::FileKind;
use crate::meta::{Caller, CloneMode, EntryRef, Ino, Meta, Name, Timestamp};

/// A snapshot that was found.
pub struct Found {
    pub record: SnapshotRecord,
    pub dir: Ino,
}

/// The snapshot of that id.
pub async fn find(meta: &Meta, id: &str) -> Result<Option<Found>> {
    if place::check_id("snapshot", id).is_err() {
        return Ok(None);
    }
    if let Some(record) = records::read::<SnapshotRecord>(meta, id).await? {
        let dir = directory(meta, &path(&record.volume, id)).await?;
        return Ok(dir.map(|dir| Found { record, dir }));
    }
    for volume in volumes(meta).await? {
        if let Some(dir) = directory(meta, &path(&volume, id)).await? {
            return Ok(Some(Found { record: unrecorded(meta, &volume, id, dir).await?, dir }));
        }
    }
    Ok(None)
}

/// The snapshots of a volume, or of all: which volume, which snapshot; in order.
pub async fn list(meta: &Meta, volume: Option<&str>) -> Result<Vec<(String, String)>> {
    let of = match volume {
        Some(volume) => vec![volume.to_owned()],
        None => volumes(meta).await?,
    };
    let mut all = Vec::new();
    for volume in of {
        if place::check_id("volume", &volume).is_err() {
            continue;
        }
        let Some(dir) = directory(meta, &format!("{SNAPSHOTS}/{volume}")).await? else { continue };
        let ids = dirs(meta, dir).await?;
        all.extend(ids.into_iter().map(|id| (volume.clone(), id)));
    }
    all.sort_by(|one, other| one.1.cmp(&other.1));
    Ok(all)
}

/// Takes a snapshot; one that is there already is answered as it is.
pub async fn create(meta: &Meta, id: &str, volume: &str) -> Result<Snapshot, Status> {
    if let Some(found) = find(meta, id).await? {
        if found.record.volume != volume {
            return Err(Status::already_exists(format!(
                "snapshot {id} is there already, of volume {}",
                found.record.volume
            )));
        }
        return Ok(described(&found.record));
    }
    let (_, source) = existing(meta, volume).await?;
    let top = records::made_dir(meta, Ino::ROOT, SNAPSHOTS, 0o700).await?;
    let parent = records::made_dir(meta, top, volume, 0o700).await?;
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
    Ok(described(&record))
}

/// Deletes a snapshot; one that is not there is fine.
pub async fn delete(system: &Arc<System>, id: &str) -> Result<(), Status> {
    let meta = &*system.meta;
    if let Some(found) = find(meta, id).await? {
        let top = meta.resolve(SNAPSHOTS).await?.0;
        let volume = Name::new(&found.record.volume)?;
        let parent = meta.lookup(&Caller::root(), top, &volume).await?.0;
        discard(system, (parent, &Name::new(id)?), id, found.dir).await?;
        remove_empty(meta, (top, &volume)).await?;
    }
    match records::remove::<SnapshotRecord>(meta, id).await {
        // What cannot be a name has no record.
        Err(Error::Invalid | Error::NameTooLong) => Ok(()),
        other => Ok(other?),
    }
}

/// The snapshot as CSI describes it.
pub fn described(record: &SnapshotRecord) -> Snapshot {
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

/// What is known of a snapshot that another driver has made, or whose making was broken off at the
/// end.
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
