//! What somebody wants to be published.

use std::path::PathBuf;

use super::access::Access;
use super::id::VolumeId;
use crate::options::mount::MountArgs;
use crate::vfs::Bandwidth;

/// A volume at a target.
pub struct Wanted {
    pub volume: VolumeId,
    pub target: PathBuf,
    pub access: Access,
    /// How it is mounted, if it is not yet.
    pub args: MountArgs,
    /// The directory of the file system that is the root of the volume; made if it is missing.
    pub path: String,
    /// At this target nothing can be changed.
    pub read_only: bool,
    /// No other target on this node at the same time.
    pub alone: bool,
    /// The group that all of a pod belongs to: it gets the volume and what is in it.
    pub group: Option<u32>,
    /// Bytes that the directory may hold, if nobody has limited it yet.
    pub capacity: Option<u64>,
    /// The directory goes with its last target.
    pub ephemeral: bool,
    /// Labels of its metrics beside its id.
    pub labels: Vec<(String, String)>,
}

/// What can be changed while a volume is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub bandwidth: Bandwidth,
    /// Bytes of the cache for its file system when others need room.
    pub cache: Option<u64>,
}
