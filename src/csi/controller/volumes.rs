//! Finds the volumes of a file system and describes them to the caller.

use std::collections::HashMap;

use crate::csi::paths;
use crate::csi::proto::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
use crate::csi::proto::csi::{Volume, VolumeCondition, VolumeContentSource};
use crate::csi::records::{self, Source, VolumeRecord};
use crate::error::{Error, Result};
use crate::meta::record::QuotaKey;
use crate::meta::{Ino, Meta};

/// A volume and its directory.
pub struct FoundVolume {
    pub record: VolumeRecord,
    /// `None` if the creation was interrupted, or the directory was removed.
    pub dir: Option<Ino>,
    /// Whether the volume has a record; otherwise another driver created it.
    pub is_recorded: bool,
}

/// Finds a volume by its id. Without a record, a directory of that name in the root is a volume of
/// another driver, if the name has the form of a dynamic volume. Its quota is its size.
pub async fn find(meta: &Meta, id: &str) -> Result<Option<FoundVolume>> {
    if paths::check_id("volume", id).is_err() {
        return Ok(None);
    }
    match records::read::<VolumeRecord>(meta, id).await? {
        Some(mut record) => {
            let dir = directory(meta, &record.path).await?;
            if let Some(dir) = dir {
                record.capacity = quota_of(meta, dir).await?.unwrap_or(record.capacity);
            }
            Ok(Some(FoundVolume { record, dir, is_recorded: true }))
        }
        None if paths::is_dynamic(id) => unrecorded(meta, id).await,
        None => Ok(None),
    }
}

/// Finds a volume that another driver created.
pub async fn unrecorded(meta: &Meta, id: &str) -> Result<Option<FoundVolume>> {
    let Some(dir) = directory(meta, id).await? else { return Ok(None) };
    let capacity = quota_of(meta, dir).await?.unwrap_or(0);
    let mut record = VolumeRecord {
        id: id.to_owned(),
        path: id.to_owned(),
        capacity,
        ..VolumeRecord::default()
    };
    record.context.insert("subPath".to_owned(), id.to_owned());
    Ok(Some(FoundVolume { record, dir: Some(dir), is_recorded: false }))
}

/// Returns the directory at a path, if it exists.
pub async fn directory(meta: &Meta, path: &str) -> Result<Option<Ino>> {
    match meta.resolve(path).await {
        Ok((ino, attr)) if attr.is_dir() => Ok(Some(ino)),
        Ok(_) => Err(Error::bad_input(format!("/{path} is not a directory"))),
        Err(Error::NotFound) => Ok(None),
        Err(Error::NotDirectory) => {
            Err(Error::bad_input(format!("/{path}: a part of the path is not a directory")))
        }
        Err(error) => Err(error),
    }
}

/// Returns the space quota of a directory in bytes, if it has one.
pub async fn quota_of(meta: &Meta, dir: Ino) -> Result<Option<u64>> {
    let quota = meta.quota(QuotaKey::Dir(dir)).await?;
    Ok(quota.and_then(|quota| u64::try_from(quota.max_space).ok()).filter(|max| *max > 0))
}

/// Converts a record to the CSI message.
pub fn to_csi(record: &VolumeRecord) -> Volume {
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

/// Returns the condition of a volume, as far as metadata shows it.
pub fn condition(found: &FoundVolume) -> VolumeCondition {
    match found.dir {
        Some(_) => VolumeCondition { abnormal: false, message: "the volume exists".to_owned() },
        None => VolumeCondition {
            abnormal: true,
            message: format!("the directory /{} is missing", found.record.path),
        },
    }
}
