//! Changing volumes that are there: their size, and what their `VolumeAttributesClass` says.

use tonic::Status;

use super::create::Range;
use super::parameters::Mutable;
use super::volumes::{self, Found};
use crate::csi::records;
use crate::meta::record::QuotaKey;
use crate::meta::{Ino, Limits, Meta};

/// Makes a volume at least as large as asked for; answers how large it is then.
pub async fn expand(meta: &Meta, id: &str, range: Range) -> Result<u64, Status> {
    let (mut found, dir) = existing(meta, id).await?;
    let (has, wanted) = (found.record.capacity, range.size());
    if wanted == 0 {
        return Err(Status::invalid_argument("no size was given"));
    }
    if has >= wanted {
        return Ok(has);
    }
    let space = i64::try_from(wanted).map_err(|_| Status::out_of_range("the size is too large"))?;
    // First what counts, then what tells of it.
    meta.quota_set(QuotaKey::Dir(dir), Limits { space: Some(space), inodes: None }, false).await?;
    if found.is_recorded {
        found.record.capacity = wanted;
        records::write(meta, &found.record).await?;
    }
    Ok(wanted)
}

/// Keeps parameters that nodes take up. Those that are not given stay as they are.
pub async fn modify(meta: &Meta, id: &str, mutable: Mutable) -> Result<(), Status> {
    let (found, dir) = existing(meta, id).await?;
    let mut record = found.record;
    record.parameters.extend(mutable.kept);
    records::write(meta, &record).await?;
    if let Some(inodes) = mutable.inodes {
        let limits = Limits { space: None, inodes: Some(inodes) };
        meta.quota_set(QuotaKey::Dir(dir), limits, false).await?;
    }
    Ok(())
}

/// A volume that is there, and its directory.
pub async fn existing(meta: &Meta, id: &str) -> Result<(Found, Ino), Status> {
    let found = volumes::find(meta, id).await?;
    let found = found.ok_or_else(|| Status::not_found(format!("there is no volume {id}")))?;
    match found.dir {
        Some(dir) => Ok((found, dir)),
        None => Err(Status::not_found(format!("volume {id} has no directory"))),
    }
}
