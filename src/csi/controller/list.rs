//! Lists over all file systems that are known.

use std::collections::BTreeSet;
use std::sync::Arc;

use tonic::Status;

use super::fleet::Fleet;
use super::pages::{Page, Position};
use super::system::System;
use super::{snapshots, volumes};
use crate::csi::deadline::Deadline;
use crate::csi::place;
use crate::csi::proto::csi::{ListSnapshotsResponse, ListVolumesResponse};
use crate::csi::proto::csi::{list_snapshots_response, list_volumes_response};
use crate::csi::records::{self, VolumeRecord};
use crate::error::Result;
use crate::meta::record::FileKind;
use crate::meta::{Ino, Meta};

/// Volumes of one page. A file system that cannot be reached fails the call: a list that lacks its
/// volumes would say that they are gone.
pub async fn volumes(
    fleet: &Fleet,
    page: &Page,
    deadline: Deadline,
) -> Result<ListVolumesResponse, Status> {
    let mut response = ListVolumesResponse::default();
    let mut last = None;
    for (id, given) in fleet.known().await {
        if !page.reaches(&id) {
            continue;
        }
        let system = fleet.open_known(given, deadline).await?;
        for volume in names(&system.meta).await? {
            if !page.has(&id, &volume) {
                continue;
            }
            if response.entries.len() == page.room {
                response.next_token = last.as_ref().map(Position::token).unwrap_or_default();
                return Ok(response);
            }
            // It may be gone by now, and one that is not complete is not there yet.
            let found = match volumes::find(&system.meta, &volume).await? {
                Some(found) if found.dir.is_some() => found,
                _ => continue,
            };
            let status = list_volumes_response::VolumeStatus {
                published_node_ids: Vec::new(),
                volume_condition: Some(volumes::condition(&found)),
            };
            response.entries.push(list_volumes_response::Entry {
                volume: Some(volumes::described(&found.record)),
                status: Some(status),
            });
            last = Some(Position { system: id.clone(), id: volume });
        }
    }
    Ok(response)
}

/// Snapshots of one page: of one file system if it is given, else of all that are known.
pub async fn snapshots(
    fleet: &Fleet,
    only: Option<Arc<System>>,
    (volume, snapshot): (Option<&str>, Option<&str>),
    page: &Page,
    deadline: Deadline,
) -> Result<ListSnapshotsResponse, Status> {
    let mut response = ListSnapshotsResponse::default();
    let mut last = None;
    for system in systems(fleet, only, page, deadline).await? {
        let listed = match snapshot {
            Some(id) => {
                let found = snapshots::find(&system.meta, id).await?;
                let found = found.filter(|found| volume.is_none_or(|of| of == found.record.volume));
                found.map(|found| (found.record.volume, found.record.id)).into_iter().collect()
            }
            None => snapshots::list(&system.meta, volume).await?,
        };
        for (_, id) in listed {
            if !page.has(&system.id, &id) {
                continue;
            }
            if response.entries.len() == page.room {
                response.next_token = last.as_ref().map(Position::token).unwrap_or_default();
                return Ok(response);
            }
            let Some(found) = snapshots::find(&system.meta, &id).await? else { continue };
            response.entries.push(list_snapshots_response::Entry {
                snapshot: Some(snapshots::described(&found.record)),
            });
            last = Some(Position { system: system.id.clone(), id });
        }
    }
    Ok(response)
}

async fn systems(
    fleet: &Fleet,
    only: Option<Arc<System>>,
    page: &Page,
    deadline: Deadline,
) -> Result<Vec<Arc<System>>> {
    if let Some(system) = only {
        return Ok(vec![system]);
    }
    let mut systems = Vec::new();
    for (id, given) in fleet.known().await {
        if page.reaches(&id) {
            systems.push(fleet.open_known(given, deadline).await?);
        }
    }
    Ok(systems)
}

/// The ids of all volumes, in order: those with a record, and those that follow the conventions.
async fn names(meta: &Meta) -> Result<BTreeSet<String>> {
    let mut names: BTreeSet<String> =
        records::ids::<VolumeRecord>(meta).await?.into_iter().collect();
    let mut listing = meta.list(Ino::ROOT, false);
    while let Some(entries) = listing.next().await? {
        let dirs = entries.into_iter().filter(|entry| entry.kind == FileKind::Dir);
        let found = dirs.filter_map(|entry| String::from_utf8(entry.name.as_bytes().to_vec()).ok());
        names.extend(found.filter(|name| place::is_dynamic(name)));
    }
    Ok(names)
}
