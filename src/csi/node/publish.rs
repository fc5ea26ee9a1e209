//! From a request to publish to what is wanted.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::attributes::Attributes;
use crate::csi::options::{self, Said};
use crate::csi::place;
use crate::csi::proto::csi::NodePublishVolumeRequest;
use crate::csi::proto::csi::volume_capability::{AccessType, access_mode};
use crate::error::{Error, Result};
use crate::mounts::{Access, VolumeId, Wanted};
use crate::options::mount::MountArgs;
use crate::policy::{Author, Policy};

/// What is wanted, and what was said that has no effect.
pub fn wanted(
    request: &NodePublishVolumeRequest,
    policy: &Arc<Policy>,
) -> Result<(Wanted, Vec<String>)> {
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
    let mut attributes = Attributes::read(&request.volume_context)?;
    let author = author(&volume, &mut attributes, &request.volume_context, policy)?;
    let access = Access::from_secret(&request.secrets, policy)?;
    let mut lists: Vec<&str> = mount.mount_flags.iter().map(String::as_str).collect();
    lists.push(&attributes.mount_options);
    let Said { mut args, unused: without_effect } = options::read(policy, author, &lists)?;
    let warnings = args.check().map_err(|error| options_fault(&error))?;
    if let Some(limit) = attributes.memory {
        args.cache.buffer_size = args.cache.buffer_size.min(limit);
    }
    let path = path(&args, &attributes, &volume)?;
    let group = match mount.volume_mount_group.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            Error::bad_input(format!("volume mount group {text:?} is not the number of a group"))
        })?),
    };
    let mut unused = attributes.unused;
    unused.extend(without_effect);
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
pub fn shown_at(path: &str) -> Result<PathBuf> {
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

/// Who has written the attributes and options of the volume. A pod's author writes those of an inline
/// one, which kubelet marks, and gives a name of its own kind.
fn author(
    volume: &VolumeId,
    attributes: &mut Attributes,
    context: &HashMap<String, String>,
    policy: &Policy,
) -> Result<Author> {
    attributes.ephemeral |= is_inline(volume.as_str());
    if !attributes.ephemeral {
        return Ok(Author::Administrator);
    }
    policy.check_inline()?;
    let mut names: Vec<&String> = context.keys().collect();
    names.sort();
    names.into_iter().try_for_each(|name| policy.check_inline_attribute(name))?;
    // There is no claim, whatever a pod says.
    attributes.labels.retain(|(label, _)| label != "pvc");
    Ok(Author::Pod)
}

/// Whether kubelet calls inline volumes like that: `csi-` and a SHA-256.
fn is_inline(id: &str) -> bool {
    id.strip_prefix("csi-")
        .is_some_and(|rest| rest.len() == 64 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The directory of the file system: what the options say, and the attribute below it. An ephemeral
/// volume has one of its own in there: it is removed in the end, and nobody else's must be.
fn path(args: &MountArgs, attributes: &Attributes, volume: &VolumeId) -> Result<String> {
    let above = args.meta.subdir.as_deref().or(attributes.subdir.as_deref()).unwrap_or_default();
    let below = attributes.path.as_deref().unwrap_or_default();
    let own = if attributes.ephemeral { volume.as_str() } else { "" };
    let whole = format!("{above}/{below}/{own}");
    // A PV by hand may show all of the file system.
    if whole.split('/').all(|part| part.is_empty() || part == ".") {
        return Ok("/".to_owned());
    }
    place::clean(&whole)
}

fn options_fault(error: &impl std::fmt::Display) -> Error {
    Error::BadInput(format!("mount options: {error:#}"))
}

#[cfg(test)]
mod tests;
