//! Changes existing volumes: their size, and the parameters of their `VolumeAttributesClass`.

use tonic::Status;

use super::create::SizeRange;
use super::parameters::MutableParameters;
use super::volumes::{self, FoundVolume};
use crate::csi::records;
use crate::meta::record::QuotaKey;
use crate::meta::{Ino, Limits, Meta};

/// Grows a volume to the requested size, unless it is larger already. Returns its size.
pub async fn expand(meta: &Meta, id: &str, range: SizeRange) -> Result<u64, Status> {
    let (mut found, dir) = existing(meta, id).await?;
    let (current, requested) = (found.record.capacity, range.size());
    if requested == 0 {
        return Err(Status::invalid_argument("the capacity range has no size"));
    }
    if current >= requested {
        return Ok(current);
    }
    let space =
        i64::try_from(requested).map_err(|_| Status::out_of_range("the size is too large"))?;
    // The quota takes effect; the record only describes it.
    meta.quota_set(QuotaKey::Dir(dir), Limits { space: Some(space), inodes: None }, false).await?;
    if found.is_recorded {
        found.record.capacity = requested;
        records::write(meta, &found.record).await?;
    }
    Ok(requested)
}

/// Records mutable parameters, which nodes apply at the next publish. Others keep their values.
pub async fn modify(meta: &Meta, id: &str, mutable: MutableParameters) -> Result<(), Status> {
    let (found, dir) = existing(meta, id).await?;
    let mut record = found.record;
    record.parameters.extend(mutable.recorded);
    records::write(meta, &record).await?;
    if let Some(inodes) = mutable.inodes {
        let limits = Limits { space: None, inodes: Some(inodes) };
        meta.quota_set(QuotaKey::Dir(dir), limits, false).await?;
    }
    Ok(())
}

/// Returns a volume and its directory; `NOT_FOUND` if either is missing.
pub async fn existing(meta: &Meta, id: &str) -> Result<(FoundVolume, Ino), Status> {
    let found = volumes::find(meta, id).await?;
    let found = found.ok_or_else(|| Status::not_found(format!("volume {id} not found")))?;
    match found.dir {
        Some(dir) => Ok((found, dir)),
        None => Err(Status::not_found(format!("volume {id} has no directory"))),
    }
}
