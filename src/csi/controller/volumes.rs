//! Volumes of a file system: finding them, and what they are to the caller.

use std::collections::HashMap;

use crate::csi::place;
use crate::csi::proto::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
use crate::csi::proto::csi::{Volume, VolumeCondition, VolumeContentSource};
use crate::csi::records::{self, Source, VolumeRecord};
use crate::error::{Error, Result};
use crate::meta::record::QuotaKey;
use crate::meta::{Ino, Meta};

/// A volume that was found.
pub struct Found {
    pub record: VolumeRecord,
    /// None for one whose making was broken off, or whose directory someone has taken away.
    pub dir: Option<Ino>,
    /// Whether there is a record; otherwise it was made by another driver.
    pub is_recorded: bool,
}

/// The volume of that id. Without a record, it is one that follows the conventions: a directory of
/// its name in the root, if the name is of the shape of a dynamic volume; its quota is its size.
pub async fn find(meta: &Meta, id: &str) -> Result<Option<Found>> {
    if place::check_id("volume", id).is_err() {
        return Ok(None);
    }
    match records::read::<VolumeRecord>(meta, id).await? {
        Some(mut record) => {
            let dir = directory(meta, &record.path).await?;
            if let Some(dir) = dir {
                record.capacity = quota_of(meta, dir).await?.unwrap_or(record.capacity);
            }
            Ok(Some(Found { record, dir, is_recorded: true }))
        }
        None if place::is_dynamic(id) => unrecorded(meta, id).await,
        None => Ok(None),
    }
}

/// A volume by the conventions of other drivers.
pub async fn unrecorded(meta: &Meta, id: &str) -> Result<Option<Found>> {
    let Some(dir) = directory(meta, id).await? else { return Ok(None) };
    let capacity = quota_of(meta, dir).await?.unwrap_or(0);
    let mut record = VolumeRecord {
        id: id.to_owned(),
        path: id.to_owned(),
        capacity,
        ..VolumeRecord::default()
    };
    record.context.insert("subPath".to_owned(), id.to_owned());
    Ok(Some(Found { record, dir: Some(dir), is_recorded: false }))
}

/// The directory at a path, if it is there.
pub async fn directory(meta: &Meta, path: &str) -> Result<Option<Ino>> {
    match meta.resolve(path).await {
        Ok((ino, attr)) if attr.is_dir() => Ok(Some(ino)),
        Ok(_) => Err(Error::bad_input(format!("/{path} is not a directory"))),
        Err(Error::NotFound) => Ok(None),
        Err(Error::NotDirectory) => Err(Error::bad_input(format!("/{path} leads through a file"))),
        Err(error) => Err(error),
    }
}

/// The size that a directory is limited to, if it is.
pub async fn quota_of(meta: &Meta, dir: Ino) -> Result<Option<u64>> {
    let quota = meta.quota(QuotaKey::Dir(dir)).await?;
    Ok(quota.and_then(|quota| u64::try_from(quota.max_space).ok()).filter(|max| *max > 0))
}

/// The volume as CSI describes it.
pub fn described(record: &VolumeRecord) -> Volume {
    let mut context: HashMap<String, String> =
        record.context.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    if record.capacity > 0 {
        context.insert("capacity".to_owned(), record.capacity.to_string());
    }
    Volume {
        capacity_bytes: i64::try_from(record.capacity).unwrap_or(i64::MAX),
        volume_id: record.id.clone(),
        volume_context: context,
        content_source: record.source.as_ref().map(content),
        accessible_topology: Vec::new(),
    }
}

fn content(source: &Source) -> VolumeContentSource {
    let source = match source {
        Source::Volume(id) => Type::Volume(VolumeSource { volume_id: id.clone() }),
        Source::Snapshot(id) => Type::Snapshot(SnapshotSource { snapshot_id: id.clone() }),
    };
    VolumeContentSource { r#type: Some(source) }
}

/// Whether all is well with it, as far as metadata tells.
pub fn condition(found: &Found) -> VolumeCondition {
    match found.dir {
        Some(_) => VolumeCondition { abnormal: false, message: "the volume is there".to_owned() },
        None => VolumeCondition {
            abnormal: true,
            message: format!("the directory /{} is missing", found.record.path),
        },
    }
}
