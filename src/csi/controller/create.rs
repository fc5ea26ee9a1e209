//! Making volumes.
//!
//! The record is written first and says what is to be there; everything after it can be done again,
//! so that a call that was broken off anywhere is finished by the next one.

use tonic::Status;
use uuid::Uuid;

use super::parameters::{Mutable, Parameters};
use super::system::System;
use super::volumes::{self, Found, directory};
use super::{capability, neighbours, snapshots};
use crate::csi::busy::Busy;
use crate::csi::kube::Kube;
use crate::csi::proto::csi::volume_content_source::Type;
use crate::csi::proto::csi::{CapacityRange, CreateVolumeRequest, Volume, VolumeContentSource};
use crate::csi::records::{self, MAKING, Source, VolumeRecord};
use crate::csi::{pattern, place};
use crate::error::{Error, Result};
use crate::meta::client::Progress;
use crate::meta::record::QuotaKey;
use crate::meta::{
    AttrSet, Caller, CloneMode, EntryRef, Ino, Limits, Meta, Name, RenameMode, Timestamp,
};
use crate::policy::Policy;

/// Who uses a volume is not known when it is made, so it is open to all; the pod sees nothing else.
const MODE: u16 = 0o777;

/// A volume that is asked for.
pub struct Wanted {
    record: VolumeRecord,
    capacity: Range,
    mode: u16,
    owner: Option<(u32, u32)>,
    inodes: Option<i64>,
    /// Whether it may use a directory of another namespace.
    shares: bool,
}

/// Sizes that are acceptable, in bytes; 0 for no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    pub least: u64,
    pub most: u64,
}

impl Range {
    pub fn read(range: Option<&CapacityRange>) -> Result<Self, Status> {
        let Some(range) = range else { return Ok(Self::default()) };
        let bytes = |value: i64| {
            u64::try_from(value)
                .map_err(|_| Status::invalid_argument("a size of the capacity range is negative"))
        };
        let (least, most) = (bytes(range.required_bytes)?, bytes(range.limit_bytes)?);
        if most > 0 && least > most {
            return Err(Status::out_of_range("the required size is above the limit"));
        }
        Ok(Self { least, most })
    }

    /// The size that is chosen.
    pub fn size(self) -> u64 {
        if self.least > 0 { self.least } else { self.most }
    }

    fn admits(self, size: u64) -> bool {
        // Without a limit, a volume is as large as anyone could want.
        let (enough, little) = (size == 0 || size >= self.least, size > 0 && size <= self.most);
        enough && (self.most == 0 || little)
    }
}

impl Wanted {
    /// What a request asks for; nothing is looked at but the request, and Kubernetes for what a
    /// pattern names.
    pub async fn read(
        request: &CreateVolumeRequest,
        kube: Option<&Kube>,
        policy: &Policy,
    ) -> Result<Self, Status> {
        place::check_id("volume", &request.name)?;
        capability::check(&request.volume_capabilities)?;
        let capacity = Range::read(request.capacity_range.as_ref())?;
        let parameters = Parameters::read(&request.parameters)?;
        let mutable = Mutable::read(&request.mutable_parameters)?;
        let flags = capability::mount_flags(&request.volume_capabilities);
        let lists: Vec<&str> =
            parameters.mount_options.as_deref().into_iter().chain(flags).collect();
        let said = place::subdir_of(&lists, policy)?;
        let subdir = said.as_deref().or(parameters.subdir.as_deref());
        let sub_path = match &parameters.pattern {
            Some(text) => pattern::resolve(text, &request.parameters, kube).await?,
            None => request.name.clone(),
        };
        let sub_path = place::clean(&sub_path)?;
        let path = place::path_of(subdir, &sub_path)?;
        let mut context = parameters.context;
        context.insert("subPath".to_owned(), sub_path);
        if let (None, Some(subdir)) = (said, parameters.subdir) {
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
            parameters: mutable.kept,
        };
        let (mode, owner) = (parameters.mode.unwrap_or(MODE), parameters.owner);
        let (inodes, shares) = (mutable.inodes, parameters.shares);
        Ok(Self { record, capacity, mode, owner, inodes, shares })
    }
}

/// Makes the volume, or finishes what was begun.
pub async fn create(system: &System, wanted: Wanted, busy: &Busy) -> Result<Volume, Status> {
    let meta = &*system.meta;
    let Wanted { record, capacity, mode, owner, inodes, shares } = wanted;
    // Neither the source nor a directory that is shared may go meanwhile.
    let _source = match &record.source {
        Some(Source::Volume(id)) => Some(busy.share("volume", id)?),
        Some(Source::Snapshot(id)) => Some(busy.share("snapshot", id)?),
        None => None,
    };
    let _path = record.patterned.then(|| busy.begin("path", &record.path)).transpose()?;
    let found = match volumes::find(meta, &record.id).await? {
        // A directory of that name is another volume's, if this one lies elsewhere.
        Some(found) if !found.is_recorded && record.path != found.record.path => None,
        found => found,
    };
    let record = match found {
        Some(found) if found.is_recorded => same(found, &record, capacity)?,
        Some(found) => adopt(meta, found, record, capacity).await?,
        None => {
            begin(system, &record, shares).await?;
            record
        }
    };
    let dir = match directory(meta, &record.path).await? {
        Some(dir) => dir,
        None => make(meta, &record, mode, owner).await?,
    };
    limit(meta, dir, &record, inodes).await?;
    Ok(volumes::described(&record))
}

/// A repeat must ask for what there is.
fn same(found: Found, wanted: &VolumeRecord, capacity: Range) -> Result<VolumeRecord, Status> {
    let known = found.record;
    let differs = if !capacity.admits(known.capacity) {
        Some("capacity")
    } else if known.source != wanted.source {
        Some("source")
    } else if known.patterned != wanted.patterned || (!known.patterned && known.path != wanted.path)
    {
        Some("path")
    } else {
        None
    };
    match differs {
        None => Ok(known),
        Some(what) => Err(Status::already_exists(format!(
            "volume {} is there already, with another {what}",
            known.id
        ))),
    }
}

/// A directory that follows the conventions becomes a volume of ours.
async fn adopt(
    meta: &Meta,
    found: Found,
    mut record: VolumeRecord,
    capacity: Range,
) -> Result<VolumeRecord, Status> {
    let has = found.record.capacity;
    if record.source.is_some() || (has > 0 && !capacity.admits(has)) {
        return Err(Status::already_exists(format!(
            "volume {} is there already, with another capacity or source",
            record.id
        )));
    }
    if has > 0 {
        record.capacity = has;
    }
    records::write(meta, &record).await?;
    Ok(record)
}

/// From here on the volume is one, though it may lack its directory.
async fn begin(system: &System, record: &VolumeRecord, shares: bool) -> Result<(), Status> {
    let meta = &*system.meta;
    if record.source.is_some() {
        let (_, size) = content(meta, record).await?;
        if record.capacity > 0 && record.capacity < size {
            return Err(Status::out_of_range(format!(
                "the source needs {size} bytes, more than the {} of the volume",
                record.capacity
            )));
        }
        if directory(meta, &record.path).await?.is_some() {
            return Err(Status::already_exists(format!(
                "/{} is there already, and cannot be filled from a source",
                record.path
            )));
        }
    }
    let _placing = system.placing.lock().await;
    if !shares {
        neighbours::check(meta, record).await?;
    }
    records::write(meta, record).await?;
    Ok(())
}

/// The directory that a volume is to be a copy of, and the bytes that it holds.
async fn content(meta: &Meta, record: &VolumeRecord) -> Result<(Ino, u64), Status> {
    match &record.source {
        Some(Source::Volume(id)) => {
            let found = volumes::find(meta, id).await?.and_then(|found| found.dir);
            let dir = found.ok_or_else(|| Status::not_found(format!("there is no volume {id}")))?;
            Ok((dir, meta.summary(dir, false).await?.size))
        }
        Some(Source::Snapshot(id)) => {
            let found = snapshots::find(meta, id).await?;
            let found =
                found.ok_or_else(|| Status::not_found(format!("there is no snapshot {id}")))?;
            Ok((found.dir, found.record.size))
        }
        None => Err(Status::internal("the volume has no source")),
    }
}

/// Puts the directory in its place, complete: nobody sees a part of it.
async fn make(
    meta: &Meta,
    record: &VolumeRecord,
    mode: u16,
    owner: Option<(u32, u32)>,
) -> Result<Ino, Status> {
    let root = Caller::root();
    let (above, name) = record.path.rsplit_once('/').unwrap_or(("", &record.path));
    let (parent, name) = (meta.ensure_dir(above).await?, Name::new(name)?);
    if record.source.is_some() {
        let (source, _) = content(meta, record).await?;
        let mode = CloneMode { preserve: true, umask: 0 };
        return Ok(meta
            .clone_tree(&root, source, EntryRef::new(parent, &name), mode, 0, &Progress::default())
            .await?);
    }
    let Some((uid, gid)) = owner else {
        return match meta.mkdir(&root, parent, &name, mode, 0).await {
            Ok((dir, _)) => Ok(dir),
            // A volume with the same path was faster.
            Err(Error::Exists) => Ok(meta.lookup(&root, parent, &name).await?.0),
            Err(error) => Err(error.into()),
        };
    };
    let making = records::made_drawer(meta, MAKING).await?;
    let fresh = Name::new(Uuid::new_v4().simple().to_string())?;
    let (dir, _) = meta.mkdir(&root, making, &fresh, mode, 0).await?;
    let set = AttrSet { uid: Some(uid), gid: Some(gid), mode: Some(mode), ..AttrSet::default() };
    meta.setattr(&root, dir, set).await?;
    meta.rename(
        &root,
        EntryRef::new(making, &fresh),
        EntryRef::new(parent, &name),
        RenameMode::NoReplace,
    )
    .await?;
    Ok(dir)
}

/// Sets the quota, exactly. Of volumes that share a directory, the largest counts.
async fn limit(
    meta: &Meta,
    dir: Ino,
    record: &VolumeRecord,
    inodes: Option<i64>,
) -> Result<(), Status> {
    let has = volumes::quota_of(meta, dir).await?.unwrap_or(0);
    let is_right = record.capacity == has || (record.patterned && record.capacity < has);
    let space = (record.capacity > 0 && !is_right)
        .then(|| i64::try_from(record.capacity))
        .transpose()
        .map_err(|_| Status::out_of_range("the capacity is too large"))?;
    if space.is_some() || inodes.is_some() {
        // Usage of a copy is counted, as what other clients have not told of its source is not known.
        let strict = record.source.is_some();
        meta.quota_set(QuotaKey::Dir(dir), Limits { space, inodes }, strict).await?;
    }
    Ok(())
}

fn source(given: Option<&VolumeContentSource>) -> Result<Option<Source>, Status> {
    match given.map(|given| &given.r#type) {
        None => Ok(None),
        Some(Some(Type::Volume(volume))) => Ok(Some(Source::Volume(volume.volume_id.clone()))),
        Some(Some(Type::Snapshot(one))) => Ok(Some(Source::Snapshot(one.snapshot_id.clone()))),
        Some(None) => {
            Err(Status::invalid_argument("the content source names no volume or snapshot"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(required_bytes: i64, limit_bytes: i64) -> Result<Range, Status> {
        Range::read(Some(&CapacityRange { required_bytes, limit_bytes }))
    }

    #[test]
    fn a_size_is_chosen_within_the_range_and_to_the_byte() {
        assert_eq!(Range::read(None).unwrap().size(), 0);
        assert_eq!(range(1_000_001, 0).unwrap().size(), 1_000_001);
        assert_eq!(range(0, 5).unwrap().size(), 5);
        assert!(range(6, 5).is_err() && range(-1, 0).is_err());
    }

    #[test]
    fn an_existing_size_does_if_it_lies_within_the_range() {
        let range = range(10, 20).unwrap();
        assert!(range.admits(10) && range.admits(20));
        assert!(!range.admits(9) && !range.admits(21) && !range.admits(0));
        assert!(Range::default().admits(7) && Range { least: 10, most: 0 }.admits(0));
    }
}
