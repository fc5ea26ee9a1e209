//! `ListVolumes` and `ListSnapshots`, over all known file systems.

pub mod pagination;

use std::collections::BTreeSet;
use std::sync::Arc;

use tonic::Status;

use self::pagination::{PageRequest, PageToken};
use super::file_system::FileSystem;
use super::file_systems::FileSystems;
use super::{snapshots, volumes};
use crate::csi::deadline::Deadline;
use crate::csi::paths;
use crate::csi::proto::csi::{ListSnapshotsResponse, ListVolumesResponse};
use crate::csi::proto::csi::{list_snapshots_response, list_volumes_response};
use crate::csi::records::{self, VolumeRecord};
use crate::error::Result;
use crate::meta::record::FileKind;
use crate::meta::{Ino, Meta};

/// Returns one page of volumes. An unreachable file system fails the call: a list without its
/// volumes would report them as deleted.
pub async fn volumes(
    file_systems: &FileSystems,
    page: &PageRequest,
    deadline: Deadline,
) -> Result<ListVolumesResponse, Status> {
    let mut response = ListVolumesResponse::default();
    let mut last = None;
    for (id, secret) in file_systems.known().await {
        if !page.includes_any_of(&id) {
            continue;
        }
        let file_system = file_systems.open_known(secret, deadline).await?;
        for volume in volume_ids(&file_system.meta).await? {
            if !page.includes(&id, &volume) {
                continue;
            }
            if response.entries.len() == page.limit {
                response.next_token = last.as_ref().map(PageToken::token).unwrap_or_default();
                return Ok(response);
            }
            // The volume may be deleted by now. Without a directory it is not complete yet.
            let found = match volumes::find(&file_system.meta, &volume).await? {
                Some(found) if found.dir.is_some() => found,
                _ => continue,
            };
            let status = list_volumes_response::VolumeStatus {
                published_node_ids: Vec::new(),
                volume_condition: Some(volumes::condition(&found)),
            };
            response.entries.push(list_volumes_response::Entry {
                volume: Some(volumes::to_csi(&found.record)),
                status: Some(status),
            });
            last = Some(PageToken { file_system: id.clone(), id: volume });
        }
    }
    Ok(response)
}

/// Restricts a list of snapshots to those of one volume, or to one snapshot.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotFilter<'a> {
    pub volume: Option<&'a str>,
    pub snapshot: Option<&'a str>,
}

/// Returns one page of snapshots: of one file system if it is given, otherwise of all known ones.
pub async fn snapshots(
    file_systems: &FileSystems,
    only: Option<Arc<FileSystem>>,
    filter: SnapshotFilter<'_>,
    page: &PageRequest,
    deadline: Deadline,
) -> Result<ListSnapshotsResponse, Status> {
    let mut response = ListSnapshotsResponse::default();
    let mut last = None;
    for file_system in selected(file_systems, only, page, deadline).await? {
        let volume = filter.volume;
        let listed = match filter.snapshot {
            Some(id) => {
                let found = snapshots::find(&file_system.meta, id).await?;
                let found = found.filter(|found| volume.is_none_or(|of| of == found.record.volume));
                found.map(|found| (found.record.volume, found.record.id)).into_iter().collect()
            }
            None => snapshots::list(&file_system.meta, volume).await?,
        };
        for (_, id) in listed {
            if !page.includes(&file_system.id, &id) {
                continue;
            }
            if response.entries.len() == page.limit {
                response.next_token = last.as_ref().map(PageToken::token).unwrap_or_default();
                return Ok(response);
            }
            let Some(found) = snapshots::find(&file_system.meta, &id).await? else { continue };
            response.entries.push(list_snapshots_response::Entry {
                snapshot: Some(snapshots::to_csi(&found.record)),
            });
            last = Some(PageToken { file_system: file_system.id.clone(), id });
        }
    }
    Ok(response)
}

/// Returns `only`, or opens all known file systems that the page can have entries of.
async fn selected(
    file_systems: &FileSystems,
    only: Option<Arc<FileSystem>>,
    page: &PageRequest,
    deadline: Deadline,
) -> Result<Vec<Arc<FileSystem>>> {
    if let Some(file_system) = only {
        return Ok(vec![file_system]);
    }
    let mut opened = Vec::new();
    for (id, secret) in file_systems.known().await {
        if page.includes_any_of(&id) {
            opened.push(file_systems.open_known(secret, deadline).await?);
        }
    }
    Ok(opened)
}

/// Returns the ids of all volumes, sorted: recorded ones, and those that other drivers created.
async fn volume_ids(meta: &Meta) -> Result<BTreeSet<String>> {
    let mut volume_ids: BTreeSet<String> =
        records::ids::<VolumeRecord>(meta).await?.into_iter().collect();
    let mut listing = meta.list(Ino::ROOT, false);
    while let Some(entries) = listing.next().await? {
        let dirs = entries.into_iter().filter(|entry| entry.kind == FileKind::Dir);
        let found = dirs.filter_map(|entry| String::from_utf8(entry.name.as_bytes().to_vec()).ok());
        volume_ids.extend(found.filter(|name| paths::is_dynamic(name)));
    }
    Ok(volume_ids)
}
