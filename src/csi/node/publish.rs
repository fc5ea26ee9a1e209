//! From a request to publish to what is wanted.

use std::path::{Path, PathBuf};

use super::attributes::Attributes;
use crate::csi::proto::csi::NodePublishVolumeRequest;
use crate::csi::proto::csi::volume_capability::{AccessType, access_mode};
use crate::error::{Error, Result};
use crate::mounts::{Access, VolumeId, Wanted};
use crate::options::mount::MountArgs;

/// What is wanted, and what was said that has no effect.
pub fn wanted(request: &NodePublishVolumeRequest) -> Result<(Wanted, Vec<String>)> {
    let volume = VolumeId::new(&request.volume_id)?;
    let target = target(&request.target_path)?;
    let capability = request
        .volume_capability
        .as_ref()
        .ok_or_else(|| Error::bad_input("the volume capability is missing"))?;
    let mount = match &capability.access_type {
        Some(AccessType::Mount(mount)) => mount,
        Some(AccessType::Block(_)) => {
            return Err(Error::bad_input("a volume is a file system and cannot be a block device"));
        }
        None => return Err(Error::bad_input("the capability says neither mount nor block")),
    };
    if !["", "juicefs"].contains(&mount.fs_type.as_str()) {
        return Err(Error::bad_input(format!("fsType {:?}: it is juicefs", mount.fs_type)));
    }
    let mode = capability.access_mode.map(|mode| mode.mode()).unwrap_or_default();
    let attributes = Attributes::read(&request.volume_context)?;
    let access = Access::from_secret(&request.secrets)?;
    let mut lists: Vec<&str> = mount.mount_flags.iter().map(String::as_str).collect();
    lists.push(&attributes.mount_options);
    let mut args = MountArgs::from_lists(lists).map_err(|error| options_fault(&error))?;
    let warnings = args.check().map_err(|error| options_fault(&error))?;
    if let Some(limit) = attributes.memory {
        args.cache.buffer_size = args.cache.buffer_size.min(limit);
    }
    let path = path(&args, &attributes, &volume);
    let group = match mount.volume_mount_group.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            Error::bad_input(format!("volume mount group {text:?} is not the number of a group"))
        })?),
    };
    let mut unused = attributes.unused;
    let mut of_a_process = args.general.of_a_process();
    of_a_process.extend(args.metrics.metrics.as_ref().map(|_| "metrics"));
    let why = "there is one process for all volumes";
    unused.extend(of_a_process.iter().map(|name| format!("mount option {name}: {why}")));
    unused.extend(warnings.texts());
    unused.extend(access.unused().iter().map(|name| format!("{name}: of the Secret's envs")));
    let wanted = Wanted {
        read_only: request.readonly || mode == access_mode::Mode::MultiNodeReaderOnly,
        alone: mode == access_mode::Mode::SingleNodeSingleWriter,
        group,
        capacity: attributes.capacity,
        ephemeral: attributes.ephemeral,
        labels: attributes.labels,
        volume,
        target,
        access,
        args,
        path,
    };
    Ok((wanted, unused))
}

/// Where somebody says that a volume is published; it need not be.
pub fn place(path: &str) -> Result<PathBuf> {
    if path.is_empty() {
        return Err(Error::bad_input("the volume path is empty"));
    }
    Ok(Path::new(path).components().collect())
}

/// A path that can be a target.
pub fn target(path: &str) -> Result<PathBuf> {
    if path.is_empty() {
        return Err(Error::bad_input("the target path is empty"));
    }
    let found = Path::new(path);
    let upward = found.components().any(|part| part == std::path::Component::ParentDir);
    if !found.is_absolute() || upward || found.parent().is_none() {
        return Err(Error::bad_input(format!("target path {path:?} is not absolute")));
    }
    // As the kernel lists it: without slashes at the end.
    Ok(found.components().collect())
}

/// The directory of the file system: what the options say, and the attribute below it. An ephemeral
/// volume has one of its own in there: it is removed in the end, and nobody else's must be.
fn path(args: &MountArgs, attributes: &Attributes, volume: &VolumeId) -> String {
    let above = args.meta.subdir.as_deref().or(attributes.subdir.as_deref()).unwrap_or_default();
    let below = attributes.path.as_deref().unwrap_or_default();
    let own = if attributes.ephemeral { volume.as_str() } else { "" };
    format!("{above}/{below}/{own}")
}

fn options_fault(error: &impl std::fmt::Display) -> Error {
    Error::BadInput(format!("mount options: {error:#}"))
}
