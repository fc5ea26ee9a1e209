//! Keeps the directories of namespaces apart: the directory of a new volume never equals, contains
//! or lies in one of another namespace.
//!
//! A claim fills in the path pattern of its class, and two claims may yield the same directory by
//! accident: `a-b` and `c`, `a` and `b-c`. Within a namespace they share it. Between namespaces the
//! class has to allow it.

use crate::csi::paths;
use crate::csi::records::{self, VolumeRecord};
use crate::error::{Error, Result};
use crate::meta::Meta;

use super::volumes;

/// Refuses the path of a volume if it belongs to another namespace. The error does not say to
/// which.
pub async fn check(meta: &Meta, record: &VolumeRecord) -> Result<()> {
    // A path that is the volume's own id belongs to no other volume.
    if !record.patterned && record.path == record.id {
        return Ok(());
    }
    let others = records::all::<VolumeRecord>(meta).await?;
    let foreign = |other: &VolumeRecord| {
        other.id != record.id
            && other.namespace() != record.namespace()
            && (paths::covers(&other.path, &record.path)
                || paths::covers(&record.path, &other.path))
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

/// Whether the path is, or lies in, a volume of another driver, whose namespace is unknown.
async fn is_unrecorded(meta: &Meta, record: &VolumeRecord, all: &[VolumeRecord]) -> Result<bool> {
    let top = record.path.split('/').next().unwrap_or_default();
    if !record.patterned || !paths::is_dynamic(top) || all.iter().any(|other| other.path == top) {
        return Ok(false);
    }
    Ok(volumes::directory(meta, top).await?.is_some())
}
