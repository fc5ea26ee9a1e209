//! Attributes, chattr flags, access(2) and statfs(2).

use std::time::Duration;

use crate::error::{Error, Result};
use crate::meta::record::attr::flag;
use crate::meta::record::{AclKind, Attr};
use crate::meta::{AttrSet, Caller, Ino, StatFs, Timestamp};
use crate::vfs::handles::Fh;
use crate::vfs::{Node, Vfs};

/// What setattr changes. The length is separate, since it changes content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeChange {
    pub set: AttrSet,
    pub length: Option<u64>,
    /// The handle that the call was made through.
    pub fh: Option<Fh>,
}

/// Removed directories that are remembered. The kernel usually forgets them at once.
const REMOVED_DIRS: usize = 4096;

/// The flags of chattr(1) that a file can have.
const FLAGS: [(u32, u8); 3] = [
    // `s`: deleted for good, without the trash.
    (0x01, flag::SKIP_TRASH),
    (0x10, flag::IMMUTABLE),
    (0x20, flag::APPEND),
];

impl Vfs {
    pub async fn getattr(&self, ino: Ino) -> Result<Attr> {
        match self.virtual_files.attr(ino) {
            Some(attr) => Ok(attr),
            None => match self.content.attr(ino).await {
                Err(Error::NotFound) => self.removed_dir(ino).ok_or(Error::NotFound),
                found => found,
            },
        }
    }

    /// Remembers a removed directory for as long as the kernel refers to it: a process may have it
    /// open, or as its working directory.
    pub(super) fn keep_removed_dir(&self, ino: Ino, attr: &Attr) {
        let mut removed = self.removed_dirs.lock();
        if removed.len() < REMOVED_DIRS {
            removed.insert(ino, Attr { nlink: 0, ctime: Timestamp::now(), ..attr.clone() });
        }
    }

    fn removed_dir(&self, ino: Ino) -> Option<Attr> {
        let removed = self.removed_dirs.lock();
        removed.get(&ino).cloned()
    }

    /// Handles that the kernel no longer refers to a node.
    pub fn forget(&self, ino: Ino) {
        self.removed_dirs.lock().remove(&ino);
    }

    /// Returns a node's attr and its age. After each change in a directory the kernel reads the
    /// directory's attr again, which is usually known here.
    pub async fn getattr_aged(&self, ino: Ino) -> Result<(Attr, Duration)> {
        match self.meta.changed_dir(ino, self.options.attr_lifetime) {
            Some(known) => Ok(known),
            None => Ok((self.getattr(ino).await?, Duration::ZERO)),
        }
    }

    /// Returns the attrs of many nodes, including data that is not stored yet; `None` for a node
    /// that is missing.
    pub async fn attrs(&self, inos: &[Ino]) -> Result<Vec<Option<Attr>>> {
        let virtual_attr = |ino: &Ino| self.virtual_files.attr(*ino);
        let stored: Vec<Ino> =
            inos.iter().copied().filter(|ino| virtual_attr(ino).is_none()).collect();
        let mut read = self.content.attrs(&stored).await?.into_iter();
        let attr = |ino: &Ino| virtual_attr(ino).or_else(|| read.next().flatten());
        Ok(inos.iter().map(attr).collect())
    }

    pub async fn setattr(&self, caller: &Caller, ino: Ino, change: NodeChange) -> Result<Attr> {
        if let Some(attr) = self.virtual_files.attr(ino) {
            // Opening a virtual file for writing truncates it first, which does nothing.
            let only_length = change.set == AttrSet::default();
            return if only_length { Ok(attr) } else { Err(Error::NotPermitted) };
        }
        let mut attr = None;
        if let Some(length) = change.length {
            let by_handle = change.fh.is_some_and(|fh| self.handles.find(fh, ino).is_some());
            attr = Some(self.content.truncate(caller, ino, length, by_handle).await?);
        }
        match attr {
            Some(attr) if change.set == AttrSet::default() => Ok(attr),
            _ => self.content.setattr(caller, ino, change.set).await,
        }
    }

    /// Checks whether the caller has all permissions in `mask`, as access(2) does.
    pub async fn access(&self, caller: &Caller, ino: Ino, mask: u16) -> Result<()> {
        let attr = self.getattr(ino).await?;
        if caller.is_root() {
            let runs = attr.is_dir() || attr.mode & 0o111 != 0;
            return if mask & 1 == 0 || runs { Ok(()) } else { Err(Error::AccessDenied) };
        }
        let allowed = if attr.access_acl != 0 && attr.mode & 0o070 != 0 {
            let rule = self.meta.facl(ino, AclKind::Access).await?;
            rule.permits(caller.uid, |gid| caller.in_group(gid), &attr, mask)
        } else {
            let class = match () {
                () if caller.uid == attr.uid => 6,
                () if caller.in_group(attr.gid) => 3,
                () => 0,
            };
            attr.mode >> class & mask == mask
        };
        if allowed { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// Returns the flags of a node, as chattr(1) defines them.
    pub async fn flags(&self, ino: Ino) -> Result<u32> {
        let attr = self.getattr(ino).await?;
        let set = FLAGS.iter().filter(|(_, bit)| attr.has_flag(*bit));
        Ok(set.map(|(shown, _)| shown).sum())
    }

    pub async fn set_flags(&self, caller: &Caller, ino: Ino, flags: u32) -> Result<()> {
        if self.virtual_files.attr(ino).is_some() {
            return Err(Error::NotPermitted);
        }
        let known: u32 = FLAGS.iter().map(|(shown, _)| shown).sum();
        if flags & !known != 0 {
            return Err(Error::NotSupported);
        }
        let bits = FLAGS.iter().filter(|(shown, _)| flags & shown != 0).map(|(_, bit)| bit).sum();
        let set = AttrSet { flags: Some(bits), ..AttrSet::default() };
        self.content.setattr(caller, ino, set).await.map(drop)
    }

    pub async fn statfs(&self, ino: Ino) -> Result<StatFs> {
        let ino = if self.virtual_files.attr(ino).is_some() { self.root() } else { ino };
        self.meta.statfs(ino).await
    }

    /// Records the attributes of a file that the kernel is about to receive.
    pub fn record_reply(&self, node: &Node) {
        if node.attr.is_file() {
            self.kernel_view.record(node.ino, &node.attr);
        }
    }
}
