//! What can be chosen about how a mount looks and what the kernel may keep of it.

use std::time::Duration;

use super::content::ContentOptions;

/// As whom somebody acts instead of as themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Squash {
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone)]
pub struct VfsOptions {
    /// How long the kernel may keep attributes.
    pub attr_lifetime: Duration,
    /// How long the kernel may keep names of anything but directories.
    pub entry_lifetime: Duration,
    /// How long the kernel may keep names of directories.
    pub dir_entry_lifetime: Duration,
    /// How long the kernel may remember that there is no such name; zero: not at all.
    pub negative_lifetime: Duration,
    /// The kernel keeps listings.
    pub readdir_cache: bool,
    /// The virtual files are not listed; they can still be opened.
    pub hide_internal: bool,
    /// The virtual files have names that begin with `.jfs`.
    pub prefix_internal: bool,
    pub root_squash: Option<Squash>,
    pub all_squash: Option<Squash>,
    /// In place of the callers' own.
    pub umask: Option<u16>,
    /// Permissions are checked here: the kernel does not.
    pub check_permissions: bool,
    /// Extended attributes can be set and read. A volume with ACLs has them anyway.
    pub xattr: bool,
    /// `security.capability` is an attribute like any other.
    pub capabilities: bool,
    /// `security.selinux` is an attribute like any other.
    pub selinux: bool,
    /// Flags of files can be set and read, as chattr(1) does.
    pub ioctl: bool,
    /// The kernel keeps what is written for a while and sets the times of files itself.
    pub writeback_cache: bool,
    pub content: ContentOptions,
}

/// How many bytes a second may be read and written through a mount; 0 for any number.
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
