//! Records of volumes and snapshots, kept in the file system itself, where every controller and
//! node can read them.
//!
//! A record is the target of a symbolic link, `/.jfs-csi/<kind>/<id>`. One metadata transaction
//! writes it, it needs no object, and `readlink` shows it.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::meta::record::FileKind;
use crate::meta::{Caller, EntryRef, Ino, Meta, Name, RenameMode, Timestamp};

/// The directory of the controller, in the root of a file system.
pub const CONTROLLER_DIR: &str = ".jfs-csi";
/// The directory where new directories are prepared before they move to their paths.
pub const PREPARED_DIR: &str = "making";
/// The longest id. Replacing a record needs a temporary name that is somewhat longer.
pub const MAX_ID: usize = 200;
/// The longest text of a record: that of a symbolic link.
const MAX_RECORD: usize = 4095;
/// The provisioner's name for the namespace of a claim.
pub const NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";
/// Records that are read concurrently.
const CONCURRENT_READS: usize = 32;

/// What a volume was copied from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Volume(String),
    Snapshot(String),
}

/// A volume that the controller has created or is about to create.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeRecord {
    pub id: String,
    /// From the root of the file system.
    pub path: String,
    /// Bytes; 0 for no limit.
    pub capacity: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The path comes from a pattern, so other volumes may have the same.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub patterned: bool,
    /// Unix seconds.
    pub created: i64,
    /// The `volumeAttributes` of the volume.
    pub context: BTreeMap<String, String>,
    /// Parameters that may change while the volume is in use, such as `upload-limit`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// A snapshot that the controller has created.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotRecord {
    pub id: String,
    /// The volume that it is a copy of.
    pub volume: String,
    /// Unix seconds and nanoseconds.
    pub created: (i64, u32),
    /// The capacity in bytes that a volume needs to hold it.
    pub size: u64,
}

impl VolumeRecord {
    /// Returns the namespace of the volume's claim, if the provisioner named it.
    pub fn namespace(&self) -> Option<&str> {
        self.context.get(NAMESPACE).map(String::as_str)
    }
}

/// A kind of record.
pub trait ControllerRecord: Serialize + DeserializeOwned + Send {
    /// The directory of these records.
    const DIRECTORY: &'static str;
    fn id(&self) -> &str;
}

impl ControllerRecord for VolumeRecord {
    const DIRECTORY: &'static str = "volumes";
    fn id(&self) -> &str {
        &self.id
    }
}

impl ControllerRecord for SnapshotRecord {
    const DIRECTORY: &'static str = "snapshots";
    fn id(&self) -> &str {
        &self.id
    }
}

/// Reads a record by its id.
pub async fn read<T: ControllerRecord>(meta: &Meta, id: &str) -> Result<Option<T>> {
    let Ok(name) = Name::new(id) else { return Ok(None) };
    let Some(dir) = find_directory(meta, T::DIRECTORY).await? else { return Ok(None) };
    match meta.lookup(&Caller::root(), dir, &name).await {
        Ok((ino, attr)) if attr.kind == FileKind::Symlink => decode(meta, id, ino).await.map(Some),
        Ok(_) | Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a record. Readers see either the old one or the new one.
pub async fn write<T: ControllerRecord>(meta: &Meta, record: &T) -> Result<()> {
    let text = serde_json::to_vec(record)
        .map_err(|error| Error::bad_input(format!("record of {}: {error}", record.id())))?;
    if text.len() > MAX_RECORD || record.id().len() > MAX_ID {
        return Err(Error::bad_input(format!(
            "the attributes of {} take {} bytes, more than a record can hold",
            record.id(),
            text.len()
        )));
    }
    let (root, text) = (Caller::root(), Bytes::from(text));
    let dir = ensure_directory(meta, T::DIRECTORY).await?;
    let name = Name::new(record.id())?;
    match meta.symlink(&root, dir, &name, text.clone()).await {
        Err(Error::Exists) => {}
        other => return other.map(drop),
    }
    // Exchange the names: a replaced link would go to the trash.
    let temporary = Name::new(format!(".{}.{}", record.id(), Uuid::new_v4().simple()))?;
    meta.symlink(&root, dir, &temporary, text).await?;
    let put = meta
        .rename(
            &root,
            EntryRef::new(dir, &temporary),
            EntryRef::new(dir, &name),
            RenameMode::Exchange,
        )
        .await;
    let dropped = meta.unlink_with(&root, dir, &temporary, true).await;
    put?;
    dropped
}

/// Removes a record. Succeeds if there is none.
pub async fn remove<T: ControllerRecord>(meta: &Meta, id: &str) -> Result<()> {
    let Some(dir) = find_directory(meta, T::DIRECTORY).await? else { return Ok(()) };
    match meta.unlink_with(&Caller::root(), dir, &Name::new(id)?, true).await {
        Err(Error::NotFound) => Ok(()),
        other => other,
    }
}

/// Returns the ids of all records, sorted.
pub async fn ids<T: ControllerRecord>(meta: &Meta) -> Result<Vec<String>> {
    let Some(dir) = find_directory(meta, T::DIRECTORY).await? else { return Ok(Vec::new()) };
    let entries = meta.entries(dir, false).await?;
    let links = entries.into_iter().filter(|entry| entry.kind == FileKind::Symlink);
    let names = links.filter_map(|entry| String::from_utf8(entry.name.as_bytes().to_vec()).ok());
    // Names with a dot belong to replacements that are in progress or were interrupted.
    let mut ids: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Returns all records, sorted by id.
pub async fn all<T: ControllerRecord>(meta: &Meta) -> Result<Vec<T>> {
    let ids = ids::<T>(meta).await?;
    let read = stream::iter(ids).map(|id| async move { read::<T>(meta, &id).await });
    let records: Vec<Option<T>> = read.buffered(CONCURRENT_READS).try_collect().await?;
    Ok(records.into_iter().flatten().collect())
}

/// Removes what interrupted calls left behind: replacements of records, and prepared directories
/// that were never moved to their paths.
pub async fn remove_leftovers(meta: &Meta) -> Result<()> {
    let cutoff = Timestamp::now().sec - 3600;
    if let Some(prepared) = find_directory(meta, PREPARED_DIR).await? {
        for entry in meta.entries(prepared, true).await? {
            let old = entry.attr.as_ref().is_some_and(|attr| attr.ctime.sec < cutoff);
            if old {
                match meta.rmdir_with(&Caller::root(), prepared, &entry.name, true).await {
                    Ok(()) | Err(Error::NotFound | Error::NotEmpty) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    for kind in [VolumeRecord::DIRECTORY, SnapshotRecord::DIRECTORY] {
        let Some(dir) = find_directory(meta, kind).await? else { continue };
        for entry in meta.entries(dir, true).await? {
            let old = entry.attr.as_ref().is_some_and(|attr| attr.ctime.sec < cutoff);
            if entry.name.as_bytes().starts_with(b".") && old {
                match meta.unlink_with(&Caller::root(), dir, &entry.name, true).await {
                    Ok(()) | Err(Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(())
}

/// Returns a directory of the controller, if it exists.
pub async fn find_directory(meta: &Meta, name: &str) -> Result<Option<Ino>> {
    match meta.resolve(&format!("{CONTROLLER_DIR}/{name}")).await {
        Ok((ino, attr)) if attr.is_dir() => Ok(Some(ino)),
        Ok(_) | Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a directory of the controller; creates it if it is missing.
pub async fn ensure_directory(meta: &Meta, name: &str) -> Result<Ino> {
    if let Some(ino) = find_directory(meta, name).await? {
        return Ok(ino);
    }
    let top = ensure_subdirectory(meta, Ino::ROOT, CONTROLLER_DIR, 0o700).await?;
    ensure_subdirectory(meta, top, name, 0o700).await
}

/// Returns a subdirectory; creates it if it is missing.
pub async fn ensure_subdirectory(meta: &Meta, dir: Ino, name: &str, mode: u16) -> Result<Ino> {
    let (root, name) = (Caller::root(), Name::new(name)?);
    match meta.mkdir(&root, dir, &name, mode, 0).await {
        Ok((ino, _)) => Ok(ino),
        Err(Error::Exists) => {
            let (ino, attr) = meta.lookup(&root, dir, &name).await?;
            attr.into_dir().map(|_| ino)
        }
        Err(error) => Err(error),
    }
}

async fn decode<T: ControllerRecord>(meta: &Meta, id: &str, ino: Ino) -> Result<T> {
    let text = meta.readlink(ino).await?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::damaged(format!("/{CONTROLLER_DIR}/{}/{id}", T::DIRECTORY), error))
}

#[cfg(test)]
mod tests;
