//! Whose directory it is: a new volume never lies in, around or over one of another namespace.
//!
//! A pattern is filled in by whoever makes a claim, and two claims may come to the same directory by
//! accident: `a-b` and `c`, `a` and `b-c`. Within a namespace that is sharing; between namespaces it
//! is for the class to allow.

use crate::csi::place;
use crate::csi::records::{self, VolumeRecord};
use crate::error::{Error, Result};
use crate::meta::Meta;

use super::volumes;

/// Refuses the place of a volume if it belongs to another namespace. Nothing is told of whose it is.
pub async fn check(meta: &Meta, record: &VolumeRecord) -> Result<()> {
    // A path that is the volume's own name is nobody else's.
    if !record.patterned && record.path == record.id {
        return Ok(());
    }
    let others = records::all::<VolumeRecord>(meta).await?;
    let foreign = |other: &VolumeRecord| {
        other.id != record.id
            && other.namespace() != record.namespace()
            && (place::covers(&other.path, &record.path)
                || place::covers(&record.path, &other.path))
    };
    if others.iter().any(foreign) || is_unrecorded(meta, record, &others).await? {
        return Err(Error::Forbidden(format!(
            "/{} belongs to another namespace; shareAcrossNamespaces: \"true\" in the StorageClass \
             would allow it",
            record.path
        )));
    }
    Ok(())
}

/// Whether it is, or lies in, a volume of another driver, of which nobody knows the namespace.
async fn is_unrecorded(meta: &Meta, record: &VolumeRecord, all: &[VolumeRecord]) -> Result<bool> {
    let top = record.path.split('/').next().unwrap_or_default();
    if !record.patterned || !place::is_dynamic(top) || all.iter().any(|other| other.path == top) {
        return Ok(false);
    }
    Ok(volumes::directory(meta, top).await?.is_some())
}
