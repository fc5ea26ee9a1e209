//! The access types and modes that volumes support.

use tonic::Status;

use crate::csi::proto::csi::VolumeCapability;
use crate::csi::proto::csi::volume_capability::AccessType;
use crate::csi::proto::csi::volume_capability::access_mode::Mode;

/// Refuses an empty list, and a list with an unsupported capability.
pub fn check(capabilities: &[VolumeCapability]) -> Result<(), Status> {
    if capabilities.is_empty() {
        return Err(Status::invalid_argument("volume capabilities are missing"));
    }
    match capabilities.iter().find_map(unsupported_reason) {
        Some(why) => Err(Status::invalid_argument(why)),
        None => Ok(()),
    }
}

/// Returns why a capability is not supported, or `None` if it is.
pub fn unsupported_reason(capability: &VolumeCapability) -> Option<String> {
    match &capability.access_type {
        Some(AccessType::Mount(_)) => {}
        Some(AccessType::Block(_)) => {
            return Some("block access is not supported: a volume is a file system".to_owned());
        }
        None => return Some("volume capability without access type".to_owned()),
    }
    let Some(mode) = capability.access_mode.as_ref().map(|mode| mode.mode) else {
        return Some("volume capability without access mode".to_owned());
    };
    match Mode::try_from(mode) {
        Ok(Mode::Unknown) | Err(_) => Some(format!("unknown access mode {mode}")),
        Ok(_) => None,
    }
}

/// Returns the mount options of all capabilities.
pub fn mount_flags(capabilities: &[VolumeCapability]) -> Vec<&str> {
    let flags = capabilities.iter().filter_map(|capability| match &capability.access_type {
        Some(AccessType::Mount(mount)) => Some(mount.mount_flags.as_slice()),
        _ => None,
    });
    flags.flatten().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::proto::csi::volume_capability::{AccessMode, BlockVolume, MountVolume};

    fn capability(access_type: Option<AccessType>, mode: Option<Mode>) -> VolumeCapability {
        let access_mode = mode.map(|mode| AccessMode { mode: mode.into() });
        VolumeCapability { access_mode, access_type }
    }

    #[test]
    fn every_access_mode_is_supported_for_mounts_and_none_for_blocks() {
        let mount = || Some(AccessType::Mount(MountVolume::default()));
        for mode in [
            Mode::SingleNodeWriter,
            Mode::SingleNodeReaderOnly,
            Mode::MultiNodeReaderOnly,
            Mode::MultiNodeSingleWriter,
            Mode::MultiNodeMultiWriter,
            Mode::SingleNodeSingleWriter,
            Mode::SingleNodeMultiWriter,
        ] {
            check(&[capability(mount(), Some(mode))]).unwrap();
        }
        let block = Some(AccessType::Block(BlockVolume {}));
        for bad in [
            capability(block, Some(Mode::SingleNodeWriter)),
            capability(None, Some(Mode::SingleNodeWriter)),
            capability(mount(), None),
            capability(mount(), Some(Mode::Unknown)),
        ] {
            assert!(check(&[bad]).is_err());
        }
        assert!(check(&[]).is_err());
    }
}
