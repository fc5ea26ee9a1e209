//! Deletes volumes.

use std::sync::Arc;

use tonic::Status;
use tracing::info;

use super::file_system::FileSystem;
use super::volumes;
use crate::csi::paths;
use crate::csi::records::{self, VolumeRecord};
use crate::csi::volume_locks::VolumeLocks;
use crate::error::{Error, Result};
use crate::meta::record::QuotaKey;
use crate::meta::{Caller, Ino, Meta, Name};

/// Deletes a volume. Its directory is moved out of the way at once and removed in the background.
/// Leaves alone what this driver has not created and what does not have the name of a dynamic
/// volume.
pub async fn delete(
    file_system: &Arc<FileSystem>,
    id: &str,
    locks: &VolumeLocks,
) -> Result<(), Status> {
    let meta = &*file_system.meta;
    let Some(found) = volumes::find(meta, id).await? else {
        info!(id, "nothing to delete: no volume of that name was created by this driver");
        return Ok(());
    };
    let path = &found.record.path;
    // When two volumes share a directory, the later deletion must see that the other volume is
    // gone.
    let _path = found.record.patterned.then(|| locks.lock("path", path)).transpose()?;
    if let Some(dir) = found.dir {
        if let Some(other) = other_user_of(meta, &found.record).await? {
            info!(id, other, "keeping /{path}: another volume uses it");
        } else {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let parent = meta.resolve(above).await?.0;
            let entry = TreeEntry { parent, name: Name::new(name)?, ino: dir };
            delete_tree(file_system, &entry, id).await?;
        }
    }
    records::remove::<VolumeRecord>(meta, id).await?;
    Ok(())
}

/// The root directory of a tree to delete, and its entry in the directory above.
pub struct TreeEntry {
    pub parent: Ino,
    pub name: Name,
    pub ino: Ino,
}

/// Deletes a tree in the background, and its quota at once.
pub async fn delete_tree(
    file_system: &Arc<FileSystem>,
    entry: &TreeEntry,
    label: &str,
) -> Result<()> {
    match file_system.delete_in_background(entry.parent, &entry.name, label).await {
        Ok(()) | Err(Error::NotFound) => {}
        Err(error) => return Err(error),
    }
    if file_system.meta.quota(QuotaKey::Dir(entry.ino)).await?.is_some() {
        file_system.meta.quota_delete(QuotaKey::Dir(entry.ino)).await?;
    }
    Ok(())
}

/// Removes a directory if it is empty.
pub async fn remove_if_empty(meta: &Meta, parent: Ino, name: &Name) -> Result<()> {
    match meta.rmdir_with(&Caller::root(), parent, name, true).await {
        Ok(()) | Err(Error::NotEmpty | Error::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns another volume whose directory is the same or lies below it.
async fn other_user_of(meta: &Meta, record: &VolumeRecord) -> Result<Option<String>> {
    // A path that is the volume's own id belongs to no other volume.
    if !record.patterned && record.path == record.id {
        return Ok(None);
    }
    let others = records::all::<VolumeRecord>(meta).await?;
    let mut others = others.into_iter().filter(|other| other.id != record.id);
    Ok(others.find(|other| paths::covers(&record.path, &other.path)).map(|other| other.id))
}
