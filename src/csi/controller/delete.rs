//! Deleting volumes.

use std::sync::Arc;

use tonic::Status;
use tracing::info;

use super::system::System;
use super::volumes;
use crate::csi::busy::Busy;
use crate::csi::place;
use crate::csi::records::{self, VolumeRecord};
use crate::error::{Error, Result};
use crate::meta::record::QuotaKey;
use crate::meta::{Caller, Ino, Meta, Name};

/// Deletes the volume: its directory is out of the way at once, and removed in the background. What
/// this driver has not made, and what does not have the name of a dynamic volume, is left alone.
pub async fn delete(system: &Arc<System>, id: &str, busy: &Busy) -> Result<(), Status> {
    let meta = &*system.meta;
    let Some(found) = volumes::find(meta, id).await? else {
        info!(id, "nothing is deleted: there is no volume of that name that was made here");
        return Ok(());
    };
    let path = &found.record.path;
    // Of two that share a directory, the second to be deleted must see that the first is gone.
    let _path = found.record.patterned.then(|| busy.begin("path", path)).transpose()?;
    if let Some(dir) = found.dir {
        if let Some(other) = user_of(meta, &found.record).await? {
            info!(id, other, "/{path} is kept: another volume uses it");
        } else {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let parent = meta.resolve(above).await?.0;
            discard(system, (parent, &Name::new(name)?), id, dir).await?;
        }
    }
    records::remove::<VolumeRecord>(meta, id).await?;
    Ok(())
}

/// Takes a directory away, and its quota with it.
pub async fn discard(
    system: &Arc<System>,
    place: (Ino, &Name),
    label: &str,
    dir: Ino,
) -> Result<()> {
    match system.discard(place, label).await {
        Ok(()) | Err(Error::NotFound) => {}
        Err(error) => return Err(error),
    }
    if system.meta.quota(QuotaKey::Dir(dir)).await?.is_some() {
        system.meta.quota_delete(QuotaKey::Dir(dir)).await?;
    }
    Ok(())
}

/// Removes a directory that is of no use when it is empty; one that is not stays.
pub async fn remove_empty(meta: &Meta, (dir, name): (Ino, &Name)) -> Result<()> {
    match meta.rmdir_with(&Caller::root(), dir, name, true).await {
        Ok(()) | Err(Error::NotEmpty | Error::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Another volume whose directory is the same or lies in it.
async fn user_of(meta: &Meta, record: &VolumeRecord) -> Result<Option<String>> {
    // A path that is the volume's own name is nobody else's.
    if !record.patterned && record.path == record.id {
        return Ok(None);
    }
    let others = records::all::<VolumeRecord>(meta).await?;
    let mut others = others.into_iter().filter(|other| other.id != record.id);
    Ok(others.find(|other| place::covers(&record.path, &other.path)).map(|other| other.id))
}
