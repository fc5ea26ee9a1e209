//! Creates volumes.
//!
//! The record is written first. Every later step is idempotent, so a repeated call completes one
//! that was interrupted at any point.

use tonic::Status;
use uuid::Uuid;

use super::file_system::FileSystem;
use super::parameters::{MutableParameters, Owner, Parameters};
use super::path_pattern::{self, KubeApi};
use super::volumes::{self, FoundVolume, directory};
use super::{capability, overlap, snapshots};
use crate::csi::paths;
use crate::csi::proto::csi::volume_content_source::Type;
use crate::csi::proto::csi::{CapacityRange, CreateVolumeRequest, Volume, VolumeContentSource};
use crate::csi::records::{self, PREPARED_DIR, Source, VolumeRecord};
use crate::csi::volume_locks::VolumeLocks;
use crate::error::{Error, Result};
use crate::meta::client::Progress;
use crate::meta::record::QuotaKey;
use crate::meta::{
    AttrSet, Caller, CloneMode, EntryRef, Ino, Limits, Meta, Name, RenameMode, Timestamp,
};
use crate::policy::Policy;

/// The users of a volume are unknown when it is created, so its directory is open to all. A pod
/// sees nothing else of the file system.
const DEFAULT_MODE: u16 = 0o777;

/// A volume to be created, as a request describes it.
pub struct NewVolume {
    record: VolumeRecord,
    capacity: SizeRange,
    mode: u16,
    owner: Option<Owner>,
    inodes: Option<i64>,
    /// Whether it may use a directory of another namespace.
    may_share: bool,
}

/// The acceptable sizes in bytes; 0 for no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizeRange {
    pub min: u64,
    pub max: u64,
}

impl SizeRange {
    pub fn read(range: Option<&CapacityRange>) -> Result<Self, Status> {
        let Some(range) = range else { return Ok(Self::default()) };
        let bytes = |value: i64| {
            u64::try_from(value)
                .map_err(|_| Status::invalid_argument("the capacity range has a negative size"))
        };
        let (min, max) = (bytes(range.required_bytes)?, bytes(range.limit_bytes)?);
        if max > 0 && min > max {
            return Err(Status::out_of_range("the required size exceeds the limit"));
        }
        Ok(Self { min, max })
    }

    /// Returns the size to create a volume with; 0 for no limit.
    pub fn size(self) -> u64 {
        if self.min > 0 { self.min } else { self.max }
    }

    fn contains(self, size: u64) -> bool {
        // A volume without a quota satisfies every required size, and no limit.
        let (enough, within_limit) = (size == 0 || size >= self.min, size > 0 && size <= self.max);
        enough && (self.max == 0 || within_limit)
    }
}

impl NewVolume {
    /// Reads a request. Asks the Kubernetes API for the labels and annotations that a path pattern
    /// names, and looks at nothing else.
    pub async fn read(
        request: &CreateVolumeRequest,
        kube: Option<&KubeApi>,
        policy: &Policy,
    ) -> Result<Self, Status> {
        paths::check_id("volume", &request.name)?;
        capability::check(&request.volume_capabilities)?;
        let capacity = SizeRange::read(request.capacity_range.as_ref())?;
        let parameters = Parameters::read(&request.parameters)?;
        let mutable = MutableParameters::read(&request.mutable_parameters)?;
        let flags = capability::mount_flags(&request.volume_capabilities);
        let lists: Vec<&str> =
            parameters.mount_options.as_deref().into_iter().chain(flags).collect();
        let option_subdir = paths::subdir_of(&lists, policy)?;
        let subdir = option_subdir.as_deref().or(parameters.subdir.as_deref());
        let sub_path = match &parameters.pattern {
            Some(text) => path_pattern::resolve(text, &request.parameters, kube).await?,
            None => request.name.clone(),
        };
        let sub_path = paths::normalize(&sub_path)?;
        let path = paths::path_of(subdir, &sub_path)?;
        let mut context = parameters.context;
        context.insert("subPath".to_owned(), sub_path);
        if let (None, Some(subdir)) = (option_subdir, parameters.subdir) {
            context.insert("subdir".to_owned(), subdir);
        }
        let record = VolumeRecord {
            id: request.name.clone(),
            path,
            capacity: capacity.size(),
            source: source(request.volume_content_source.as_ref())?,
            patterned: parameters.pattern.is_some(),
            created: Timestamp::now().sec,
            context,
            parameters: mutable.recorded,
        };
        let (mode, owner) = (parameters.mode.unwrap_or(DEFAULT_MODE), parameters.owner);
        let (inodes, may_share) = (mutable.inodes, parameters.may_share);
        Ok(Self { record, capacity, mode, owner, inodes, may_share })
    }
}

/// Creates the volume, or completes an interrupted creation.
pub async fn create(
    file_system: &FileSystem,
    new: NewVolume,
    locks: &VolumeLocks,
) -> Result<Volume, Status> {
    let meta = &*file_system.meta;
    let NewVolume { record, capacity, mode, owner, inodes, may_share } = new;
    // Neither the source nor a shared directory may be deleted meanwhile.
    let _source = match &record.source {
        Some(Source::Volume(id)) => Some(locks.lock_shared("volume", id)?),
        Some(Source::Snapshot(id)) => Some(locks.lock_shared("snapshot", id)?),
        None => None,
    };
    let _path = record.patterned.then(|| locks.lock("path", &record.path)).transpose()?;
    let found = match volumes::find(meta, &record.id).await? {
        // With another path, the directory of that name belongs to another volume.
        Some(found) if !found.is_recorded && record.path != found.record.path => None,
        found => found,
    };
    let record = match found {
        Some(found) if found.is_recorded => check_repeat(found, &record, capacity)?,
        Some(found) => adopt(meta, found, record, capacity).await?,
        None => {
            write_record(file_system, &record, may_share).await?;
            record
        }
    };
    let dir = match directory(meta, &record.path).await? {
        Some(dir) => dir,
        None => create_directory(meta, &record, mode, owner).await?,
    };
    set_quota(meta, dir, &record, inodes).await?;
    Ok(volumes::to_csi(&record))
}

/// Returns the existing volume if a repeated request is compatible with it.
fn check_repeat(
    found: FoundVolume,
    new: &VolumeRecord,
    capacity: SizeRange,
) -> Result<VolumeRecord, Status> {
    let known = found.record;
    let differs = if !capacity.contains(known.capacity) {
        Some("capacity")
    } else if known.source != new.source {
        Some("source")
    } else if known.patterned != new.patterned || (!known.patterned && known.path != new.path) {
        Some("path")
    } else {
        None
    };
    match differs {
        None => Ok(known),
        Some(what) => {
            Err(Status::already_exists(format!("volume {} exists with another {what}", known.id)))
        }
    }
}

/// Takes over a directory that another driver created, by writing a record for it.
async fn adopt(
    meta: &Meta,
    found: FoundVolume,
    mut record: VolumeRecord,
    capacity: SizeRange,
) -> Result<VolumeRecord, Status> {
    let current = found.record.capacity;
    if record.source.is_some() || (current > 0 && !capacity.contains(current)) {
        return Err(Status::already_exists(format!(
            "volume {} exists with another capacity or source",
            record.id
        )));
    }
    if current > 0 {
        record.capacity = current;
    }
    records::write(meta, &record).await?;
    Ok(record)
}

/// Writes the record of a new volume: from then on the volume exists, though its directory may be
/// missing.
async fn write_record(
    file_system: &FileSystem,
    record: &VolumeRecord,
    may_share: bool,
) -> Result<(), Status> {
    let meta = &*file_system.meta;
    if record.source.is_some() {
        let (_, size) = source_dir(meta, record).await?;
        if record.capacity > 0 && record.capacity < size {
            return Err(Status::out_of_range(format!(
                "the source needs {size} bytes, more than the {} bytes of the volume",
                record.capacity
            )));
        }
        if directory(meta, &record.path).await?.is_some() {
            return Err(Status::already_exists(format!(
                "/{} exists, and an existing directory cannot be filled from a source",
                record.path
            )));
        }
    }
    let _path_check = file_system.path_check.lock().await;
    if !may_share {
        overlap::check(meta, record).await?;
    }
    records::write(meta, record).await?;
    Ok(())
}

/// Returns the directory to copy, and its size in bytes.
async fn source_dir(meta: &Meta, record: &VolumeRecord) -> Result<(Ino, u64), Status> {
    match &record.source {
        Some(Source::Volume(id)) => {
            let found = volumes::find(meta, id).await?.and_then(|found| found.dir);
            let dir = found.ok_or_else(|| Status::not_found(format!("volume {id} not found")))?;
            Ok((dir, meta.summary(dir, false).await?.size))
        }
        Some(Source::Snapshot(id)) => {
            let found = snapshots::find(meta, id).await?;
            let found =
                found.ok_or_else(|| Status::not_found(format!("snapshot {id} not found")))?;
            Ok((found.dir, found.record.size))
        }
        None => Err(Status::internal("the volume has no source")),
    }
}

/// Creates the directory of the volume. It appears complete, with its owner and content.
async fn create_directory(
    meta: &Meta,
    record: &VolumeRecord,
    mode: u16,
    owner: Option<Owner>,
) -> Result<Ino, Status> {
    let root = Caller::root();
    let (above, name) = record.path.rsplit_once('/').unwrap_or(("", &record.path));
    let (parent, name) = (meta.ensure_dir(above).await?, Name::new(name)?);
    if record.source.is_some() {
        let (source, _) = source_dir(meta, record).await?;
        let mode = CloneMode { preserve: true, umask: 0 };
        return Ok(meta
            .clone_tree(&root, source, EntryRef::new(parent, &name), mode, 0, &Progress::default())
            .await?);
    }
    let Some(Owner { uid, gid }) = owner else {
        return match meta.mkdir(&root, parent, &name, mode, 0).await {
            Ok((dir, _)) => Ok(dir),
            // Another volume with the same path was created meanwhile.
            Err(Error::Exists) => Ok(meta.lookup(&root, parent, &name).await?.0),
            Err(error) => Err(error.into()),
        };
    };
    let prepared = records::ensure_directory(meta, PREPARED_DIR).await?;
    let unique = Name::new(Uuid::new_v4().simple().to_string())?;
    let (dir, _) = meta.mkdir(&root, prepared, &unique, mode, 0).await?;
    let set = AttrSet { uid: Some(uid), gid: Some(gid), mode: Some(mode), ..AttrSet::default() };
    meta.setattr(&root, dir, set).await?;
    meta.rename(
        &root,
        EntryRef::new(prepared, &unique),
        EntryRef::new(parent, &name),
        RenameMode::NoReplace,
    )
    .await?;
    Ok(dir)
}

/// Sets the quota to the exact number of bytes. Volumes that share a directory get the largest.
async fn set_quota(
    meta: &Meta,
    dir: Ino,
    record: &VolumeRecord,
    inodes: Option<i64>,
) -> Result<(), Status> {
    let current = volumes::quota_of(meta, dir).await?.unwrap_or(0);
    let is_right = record.capacity == current || (record.patterned && record.capacity < current);
    let space = (record.capacity > 0 && !is_right)
        .then(|| i64::try_from(record.capacity))
        .transpose()
        .map_err(|_| Status::out_of_range("capacity is too large"))?;
    if space.is_some() || inodes.is_some() {
        // Count a copy's usage: other clients may not have reported all usage of its source yet.
        let strict = record.source.is_some();
        meta.quota_set(QuotaKey::Dir(dir), Limits { space, inodes }, strict).await?;
    }
    Ok(())
}

fn source(content_source: Option<&VolumeContentSource>) -> Result<Option<Source>, Status> {
    match content_source.map(|content_source| &content_source.r#type) {
        None => Ok(None),
        Some(Some(Type::Volume(volume))) => Ok(Some(Source::Volume(volume.volume_id.clone()))),
        Some(Some(Type::Snapshot(one))) => Ok(Some(Source::Snapshot(one.snapshot_id.clone()))),
        Some(None) => Err(Status::invalid_argument(
            "the content source names neither a volume nor a snapshot",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(required_bytes: i64, limit_bytes: i64) -> Result<SizeRange, Status> {
        SizeRange::read(Some(&CapacityRange { required_bytes, limit_bytes }))
    }

    #[test]
    fn the_size_is_chosen_from_the_range_to_the_byte() {
        assert_eq!(SizeRange::read(None).unwrap().size(), 0);
        assert_eq!(range(1_000_001, 0).unwrap().size(), 1_000_001);
        assert_eq!(range(0, 5).unwrap().size(), 5);
        assert!(range(6, 5).is_err() && range(-1, 0).is_err());
    }

    #[test]
    fn an_existing_size_is_accepted_within_the_range() {
        let range = range(10, 20).unwrap();
        assert!(range.contains(10) && range.contains(20));
        assert!(!range.contains(9) && !range.contains(21) && !range.contains(0));
        assert!(SizeRange::default().contains(7) && SizeRange { min: 10, max: 0 }.contains(0));
    }
}
