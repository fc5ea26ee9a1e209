//! Converts a `NodePublishVolume` request into a request to `mounts`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use prost::Message;
use serde_json::Value;

use super::attributes::Attributes;
use crate::access::Access;
use crate::csi::mount_options::{self, ParsedOptions};
use crate::csi::paths;
use crate::csi::proto::csi::NodePublishVolumeRequest;
use crate::csi::proto::csi::volume_capability::{AccessType, access_mode};
use crate::error::{Error, Result};
use crate::mounts::{PublishRequest, VolumeId};
use crate::options::mount::MountArgs;
use crate::policy::{Author, Policy};

/// Validates a request. Also returns descriptions of options and attributes without effect.
pub fn publish_request(
    request: &NodePublishVolumeRequest,
    policy: &Arc<Policy>,
) -> Result<(PublishRequest, Vec<String>)> {
    let volume = VolumeId::new(&request.volume_id)?;
    let target = target(&request.target_path)?;
    let capability = request
        .volume_capability
        .as_ref()
        .ok_or_else(|| Error::bad_input("the volume capability is missing"))?;
    let mount = match &capability.access_type {
        Some(AccessType::Mount(mount)) => mount,
        Some(AccessType::Block(_)) => {
            return Err(Error::bad_input(
                "block access is not supported: a volume is a file system",
            ));
        }
        None => return Err(Error::bad_input("volume capability without access type")),
    };
    if !["", "juicefs"].contains(&mount.fs_type.as_str()) {
        return Err(Error::bad_input(format!("fsType {:?} is not juicefs", mount.fs_type)));
    }
    let mode = capability.access_mode.map(|mode| mode.mode()).unwrap_or_default();
    let mut attributes = Attributes::read(&request.volume_context)?;
    let author = author(&volume, &mut attributes, &request.volume_context, policy)?;
    let access = Access::from_secret(&request.secrets, policy)?;
    let mut lists: Vec<&str> = mount.mount_flags.iter().map(String::as_str).collect();
    lists.push(&attributes.mount_options);
    let ParsedOptions { mut args, unused: unused_options } =
        mount_options::read(policy, author, &lists)?;
    let warnings = args.check().map_err(|error| invalid_options(&error))?;
    if let Some(limit) = attributes.memory {
        args.cache.buffer_size = args.cache.buffer_size.min(limit);
    }
    let path = path(&args, &attributes, &volume)?;
    let group = match mount.volume_mount_group.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            Error::bad_input(format!("volume mount group {text:?} is not a group id"))
        })?),
    };
    let mut unused = attributes.unused;
    unused.extend(unused_options);
    unused.extend(warnings.texts());
    unused.extend(
        access.unused_variables().iter().map(|name| format!("{name} in envs of the Secret")),
    );
    let publish = PublishRequest {
        read_only: request.readonly || mode == access_mode::Mode::MultiNodeReaderOnly,
        exclusive: mode == access_mode::Mode::SingleNodeSingleWriter,
        group,
        capacity: attributes.capacity,
        ephemeral: attributes.ephemeral,
        labels: attributes.labels,
        origin: Value::String(BASE64.encode(request.encode_to_vec())),
        volume,
        target,
        access,
        args,
        path,
    };
    Ok((publish, unused))
}

/// Restores a request from its origin, as an earlier process of this driver encoded it.
pub fn from_origin(origin: &Value, policy: &Arc<Policy>) -> Result<PublishRequest> {
    // The texts show nothing of the origin, which may have secrets.
    let damaged = || Error::damaged("of a mount", "it has no valid publish request");
    let bytes = origin.as_str().and_then(|text| BASE64.decode(text).ok()).ok_or_else(damaged)?;
    let request = NodePublishVolumeRequest::decode(&bytes[..]).map_err(|_| damaged())?;
    publish_request(&request, policy).map(|(request, _)| request)
}

/// Parses the path of a published volume, as a caller gives it.
pub fn volume_path(path: &str) -> Result<PathBuf> {
    if path.is_empty() {
        return Err(Error::bad_input("the volume path is empty"));
    }
    Ok(Path::new(path).components().collect())
}

/// Parses a target path.
pub fn target(path: &str) -> Result<PathBuf> {
    if path.is_empty() {
        return Err(Error::bad_input("the target path is empty"));
    }
    let found = Path::new(path);
    let upward = found.components().any(|part| part == std::path::Component::ParentDir);
    if !found.is_absolute() || upward || found.parent().is_none() {
        return Err(Error::bad_input(format!("target path {path:?} is not absolute")));
    }
    // As in the kernel's mount table: without trailing slashes.
    Ok(found.components().collect())
}

/// Returns who wrote the attributes and options of the volume. Those of an inline volume come from
/// the pod's author. Kubelet marks inline volumes, and their ids have a form of their own.
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
    // An inline volume has no claim, even if the pod names one.
    attributes.labels.retain(|(label, _)| label != "pvc");
    Ok(Author::Pod)
}

/// Whether an id has the form that kubelet gives to inline volumes: `csi-` and a SHA-256.
fn is_inline(id: &str) -> bool {
    id.strip_prefix("csi-")
        .is_some_and(|rest| rest.len() == 64 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns the directory in the file system: `subPath` below `subdir`. An ephemeral volume has a
/// directory of its own below that, because it is deleted with the volume.
fn path(args: &MountArgs, attributes: &Attributes, volume: &VolumeId) -> Result<String> {
    let parent = args.meta.subdir.as_deref().or(attributes.subdir.as_deref()).unwrap_or_default();
    let sub_path = attributes.path.as_deref().unwrap_or_default();
    let own_dir = if attributes.ephemeral { volume.as_str() } else { "" };
    let whole = format!("{parent}/{sub_path}/{own_dir}");
    // A static PV may show the whole file system.
    if whole.split('/').all(|part| part.is_empty() || part == ".") {
        return Ok("/".to_owned());
    }
    paths::normalize(&whole)
}

fn invalid_options(error: &impl std::fmt::Display) -> Error {
    Error::BadInput(format!("mount options: {error:#}"))
}

#[cfg(test)]
mod tests;
