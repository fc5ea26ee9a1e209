//! Records of what the controller has made, kept in the file system itself: any instance of the
//! controller, and any node, can read them.
//!
//! A record is the target of a symbolic link, `/.jfs-csi/<kind>/<id>`: one transaction of metadata
//! writes it, no object is needed for it, and `readlink` shows it.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::meta::record::FileKind;
use crate::meta::{Caller, EntryRef, Ino, Meta, Name, RenameMode, Timestamp};

/// The directory of everything the controller keeps, in the root of a file system.
pub const HOME: &str = ".jfs-csi";
/// The drawer of directories that are not in their place yet.
pub const MAKING: &str = "making";
/// Longest id: the name of a record that is being replaced is somewhat longer, and must fit.
pub const MAX_ID: usize = 200;
/// Longest text of a record: that of a symbolic link.
const MAX_TEXT: usize = 4095;
/// What the provisioner calls the namespace of a claim.
pub const NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";
/// Records read at once.
const AT_ONCE: usize = 32;

/// What a volume was filled with when it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Volume(String),
    Snapshot(String),
}

/// A volume that the controller has made, or is about to.
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
    /// The path follows from a pattern, so that other volumes may have the same.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub patterned: bool,
    /// Unix seconds.
    pub created: i64,
    /// What the volume's `volumeAttributes` are.
    pub context: BTreeMap<String, String>,
    /// What may change while the volume is in use, such as `upload-limit`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// A snapshot that the controller has made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotRecord {
    pub id: String,
    /// The volume that it is of.
    pub volume: String,
    /// Unix seconds, and nanoseconds of them.
    pub created: (i64, u32),
    /// Bytes that a volume needs to hold it.
    pub size: u64,
}

impl VolumeRecord {
    /// The namespace of the claim that the volume was made for, if the provisioner has said it.
    pub fn namespace(&self) -> Option<&str> {
        self.context.get(NAMESPACE).map(String::as_str)
    }
}

/// A kind of record.
pub trait Kept: Serialize + DeserializeOwned + Send {
    /// The directory of its records.
    const DRAWER: &'static str;
    fn id(&self) -> &str;
}

impl Kept for VolumeRecord {
    const DRAWER: &'static str = "volumes";
    fn id(&self) -> &str {
        &self.id
    }
}

impl Kept for SnapshotRecord {
    const DRAWER: &'static str = "snapshots";
    fn id(&self) -> &str {
        &self.id
    }
}

/// The record of that id, if there is one.
pub async fn read<T: Kept>(meta: &Meta, id: &str) -> Result<Option<T>> {
    let Ok(name) = Name::new(id) else { return Ok(None) };
    let Some(drawer) = drawer(meta, T::DRAWER).await? else { return Ok(None) };
    match meta.lookup(&Caller::root(), drawer, &name).await {
        Ok((ino, attr)) if attr.kind == FileKind::Symlink => decode(meta, id, ino).await.map(Some),
        Ok(_) | Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a record, in place of what was there. Whoever reads sees the old one or the new one.
pub async fn write<T: Kept>(meta: &Meta, record: &T) -> Result<()> {
    let text = serde_json::to_vec(record)
        .map_err(|error| Error::bad_input(format!("record of {}: {error}", record.id())))?;
    if text.len() > MAX_TEXT || record.id().len() > MAX_ID {
        return Err(Error::bad_input(format!(
            "the attributes of {} take {} bytes: more than a record can hold",
            record.id(),
            text.len()
        )));
    }
    let (root, text) = (Caller::root(), Bytes::from(text));
    let drawer = made_drawer(meta, T::DRAWER).await?;
    let name = Name::new(record.id())?;
    match meta.symlink(&root, drawer, &name, text.clone()).await {
        Err(Error::Exists) => {}
        other => return other.map(drop),
    }
    // Exchanged rather than replaced, as what is replaced would go to the trash.
    let fresh = Name::new(format!(".{}.{}", record.id(), Uuid::new_v4().simple()))?;
    meta.symlink(&root, drawer, &fresh, text).await?;
    let put = meta
        .rename(
            &root,
            EntryRef::new(drawer, &fresh),
            EntryRef::new(drawer, &name),
            RenameMode::Exchange,
        )
        .await;
    let dropped = meta.unlink_with(&root, drawer, &fresh, true).await;
    put?;
    dropped
}

/// Removes a record; one that is not there is fine.
pub async fn remove<T: Kept>(meta: &Meta, id: &str) -> Result<()> {
    let Some(drawer) = drawer(meta, T::DRAWER).await? else { return Ok(()) };
    match meta.unlink_with(&Caller::root(), drawer, &Name::new(id)?, true).await {
        Err(Error::NotFound) => Ok(()),
        other => other,
    }
}

/// The ids of all records, in order.
pub async fn ids<T: Kept>(meta: &Meta) -> Result<Vec<String>> {
    let Some(drawer) = drawer(meta, T::DRAWER).await? else { return Ok(Vec::new()) };
    let entries = meta.entries(drawer, false).await?;
    let links = entries.into_iter().filter(|entry| entry.kind == FileKind::Symlink);
    let names = links.filter_map(|entry| String::from_utf8(entry.name.as_bytes().to_vec()).ok());
    // Those with a dot are of a replacement that is under way, or was broken off.
    let mut ids: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// All records, in the order of their ids.
pub async fn all<T: Kept>(meta: &Meta) -> Result<Vec<T>> {
    let ids = ids::<T>(meta).await?;
    let read = stream::iter(ids).map(|id| async move { read::<T>(meta, &id).await });
    let records: Vec<Option<T>> = read.buffered(AT_ONCE).try_collect().await?;
    Ok(records.into_iter().flatten().collect())
}

/// Removes what was broken off and has been left behind: replacements of records, and directories that
/// never came to their place.
pub async fn tidy(meta: &Meta) -> Result<()> {
    let edge = Timestamp::now().sec - 3600;
    if let Some(making) = drawer(meta, MAKING).await? {
        for entry in meta.entries(making, true).await? {
            let old = entry.attr.as_ref().is_some_and(|attr| attr.ctime.sec < edge);
            if old {
                match meta.rmdir_with(&Caller::root(), making, &entry.name, true).await {
                    Ok(()) | Err(Error::NotFound | Error::NotEmpty) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    for kind in [VolumeRecord::DRAWER, SnapshotRecord::DRAWER] {
        let Some(drawer) = drawer(meta, kind).await? else { continue };
        for entry in meta.entries(drawer, true).await? {
            let old = entry.attr.as_ref().is_some_and(|attr| attr.ctime.sec < edge);
            if entry.name.as_bytes().starts_with(b".") && old {
                match meta.unlink_with(&Caller::root(), drawer, &entry.name, true).await {
                    Ok(()) | Err(Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(())
}

/// A directory of the controller, if it is there.
pub async fn drawer(meta: &Meta, name: &str) -> Result<Option<Ino>> {
    match meta.resolve(&format!("{HOME}/{name}")).await {
        Ok((ino, attr)) if attr.is_dir() => Ok(Some(ino)),
        Ok(_) | Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A directory of the controller, which is made if it is not there.
pub async fn made_drawer(meta: &Meta, name: &str) -> Result<Ino> {
    if let Some(ino) = drawer(meta, name).await? {
        return Ok(ino);
    }
    let home = made_dir(meta, Ino::ROOT, HOME, 0o700).await?;
    made_dir(meta, home, name, 0o700).await
}

/// A directory in another, which is made if it is not there.
pub async fn made_dir(meta: &Meta, dir: Ino, name: &str, mode: u16) -> Result<Ino> {
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

async fn decode<T: Kept>(meta: &Meta, id: &str, ino: Ino) -> Result<T> {
    let text = meta.readlink(ino).await?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::damaged(format!("/{HOME}/{}/{id}", T::DRAWER), error))
}

#[cfg(test)]
mod tests;
