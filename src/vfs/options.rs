//! The options of a mount: how it looks, and what the kernel may cache.

use std::time::Duration;

use crate::vfs::file::content::ContentOptions;

/// The user that a squashed caller becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Squash {
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone)]
pub struct VfsOptions {
    /// How long the kernel may cache attributes.
    pub attr_lifetime: Duration,
    /// How long the kernel may cache names of anything but directories.
    pub entry_lifetime: Duration,
    /// How long the kernel may cache names of directories.
    pub dir_entry_lifetime: Duration,
    /// How long the kernel may cache that a name does not exist; zero: not at all.
    pub negative_lifetime: Duration,
    /// The kernel caches directory listings.
    pub readdir_cache: bool,
    /// The virtual files are not listed, but can still be opened.
    pub hide_internal: bool,
    /// The names of virtual files begin with `.jfs`.
    pub prefix_internal: bool,
    pub root_squash: Option<Squash>,
    pub all_squash: Option<Squash>,
    /// Replaces the callers' own umask.
    pub umask: Option<u16>,
    /// Permissions are checked here instead of by the kernel.
    pub check_permissions: bool,
    /// Extended attributes are supported. A volume with ACLs always has them.
    pub xattr: bool,
    /// `security.capability` is supported.
    pub capabilities: bool,
    /// `security.selinux` is supported.
    pub selinux: bool,
    /// File flags are supported, as chattr(1) uses them.
    pub ioctl: bool,
    /// The kernel delays writes and maintains file times itself.
    pub writeback_cache: bool,
    pub content: ContentOptions,
}

/// Bytes per second that may be read and written through a mount; 0: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bandwidth {
    pub read: u64,
    pub write: u64,
}

impl Default for VfsOptions {
    fn default() -> Self {
        Self {
            attr_lifetime: Duration::from_secs(1),
            entry_lifetime: Duration::from_secs(1),
            dir_entry_lifetime: Duration::from_secs(1),
            negative_lifetime: Duration::ZERO,
            readdir_cache: false,
            hide_internal: false,
            prefix_internal: false,
            root_squash: None,
            all_squash: None,
            umask: None,
            check_permissions: false,
            xattr: false,
            capabilities: false,
            selinux: false,
            ioctl: false,
            writeback_cache: false,
            content: ContentOptions::default(),
        }
    }
}
