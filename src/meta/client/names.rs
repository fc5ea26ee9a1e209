//! Names: everything that looks at or changes the tree, one call per operation.

use std::time::Duration;

use bytes::Bytes;

use super::{Caller, Meta};
use crate::error::{Error, Result};
use crate::meta::op::link::Link;
use crate::meta::op::lookup::{GetAttr, Lookup};
use crate::meta::op::make::{Made, Make};
use crate::meta::op::readlink::Readlink;
use crate::meta::op::rename::{Rename, RenameMode, Renamed};
use crate::meta::op::rmdir::Rmdir;
use crate::meta::op::setattr::{AttrSet, SetAttr};
use crate::meta::op::unlink::Unlink;
use crate::meta::record::trash::TRASH_NAME;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Ino, Name, Timestamp};

/// Longest target of a symlink.
const MAX_TARGET: usize = 4096;
/// How long the root may take to answer before it is made up: a dead server must not hang every
/// process that looks at the mount point.
const ROOT_PATIENCE: Duration = Duration::from_millis(300);

/// What `mknod` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeKind {
    pub kind: FileKind,
    pub rdev: u32,
}

impl Meta {
    pub async fn lookup(&self, caller: &Caller, dir: Ino, name: &Name) -> Result<(Ino, Attr)> {
        if is_trash_name(dir, name) {
            return Ok((Ino::TRASH, self.getattr(Ino::TRASH).await?));
        }
        let (ino, attr) = self.run(&Lookup { caller, dir, name }).await?;
        self.saw(ino, &attr);
        Ok((ino, attr))
    }

    pub async fn getattr(&self, ino: Ino) -> Result<Attr> {
        if let Some(attr) = self.facts.open.attr(ino) {
            return Ok(attr);
        }
        let mark = self.facts.dirs.mark(ino);
        let op = GetAttr { ino };
        let asked = self.run(&op);
        let attr = if ino == Ino::ROOT || ino == Ino::TRASH {
            match tokio::time::timeout(ROOT_PATIENCE, asked).await {
                Ok(Ok(attr)) => attr,
                _ => return Ok(made_up_root(ino)),
            }
        } else {
            asked.await?
        };
        self.saw(ino, &attr);
        self.facts.dirs.saw(ino, &attr, mark);
        Ok(attr)
    }

    /// The attr of a directory in which this client has changed something after it was read, and how
    /// long ago that was, if not as long as `lifetime`. Nothing is asked.
    pub fn changed_dir(&self, dir: Ino, lifetime: Duration) -> Option<(Attr, Duration)> {
        self.facts.dirs.changed_here(dir, lifetime)
    }

    /// Commits of this client so far, even those that failed: what was read while it stayed the same
    /// has not been changed here since.
    pub fn own_changes(&self) -> u64 {
        self.facts.changes.so_far()
    }

    /// Changes anything but the length. Answers the new attr.
    pub async fn setattr(&self, caller: &Caller, ino: Ino, set: AttrSet) -> Result<Attr> {
        let attr = self.run(&SetAttr { caller, ino, set }).await?;
        self.facts.open.saw(ino, &attr);
        Ok(attr)
    }

    /// Makes a regular file and opens it. An existing one is opened unless `exclusive`.
    pub async fn create(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        (mode, umask): (u16, u16),
        exclusive: bool,
    ) -> Result<(Ino, Attr)> {
        let node = NodeKind { kind: FileKind::File, rdev: 0 };
        let (ino, attr) =
            match self.make(caller, dir, name, node, (mode, umask), Bytes::new()).await? {
                Made::New(ino, attr) => (ino, attr),
                Made::Found(ino, attr) if !exclusive && attr.is_file() => (ino, attr),
                Made::Found(..) => return Err(Error::Exists),
            };
        self.facts.open.open(ino, &attr);
        Ok((ino, attr))
    }

    pub async fn mknod(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        node: NodeKind,
        (mode, umask): (u16, u16),
    ) -> Result<(Ino, Attr)> {
        fresh(self.make(caller, dir, name, node, (mode, umask), Bytes::new()).await?)
    }

    pub async fn mkdir(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        mode: u16,
        umask: u16,
    ) -> Result<(Ino, Attr)> {
        let node = NodeKind { kind: FileKind::Dir, rdev: 0 };
        fresh(self.make(caller, dir, name, node, (mode, umask), Bytes::new()).await?)
    }

    pub async fn symlink(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        target: Bytes,
    ) -> Result<(Ino, Attr)> {
        if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) {
            return Err(Error::Invalid);
        }
        let node = NodeKind { kind: FileKind::Symlink, rdev: 0 };
        // A symlink's mode is never looked at.
        fresh(self.make(caller, dir, name, node, (0o777, 0), target).await?)
    }

    pub async fn readlink(&self, ino: Ino) -> Result<Bytes> {
        self.run(&Readlink { ino }).await
    }

    pub async fn link(&self, caller: &Caller, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        if dir.is_trash() || is_trash_name(dir, name) {
            return Err(Error::NotPermitted);
        }
        self.refuse_writes()?;
        self.run(&Link { caller, ino, dir, name }).await
    }

    pub async fn unlink(&self, caller: &Caller, dir: Ino, name: &Name) -> Result<()> {
        self.unlink_with(caller, dir, name, false).await
    }

    /// As [`Meta::unlink`]; `skip_trash` removes for good.
    pub async fn unlink_with(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        skip_trash: bool,
    ) -> Result<()> {
        refuse_trash(caller, dir, name)?;
        self.refuse_writes()?;
        let hour = self.hour_for(dir, skip_trash).await?;
        self.run(&Unlink { caller, dir, name, hour }).await?;
        Ok(())
    }

    pub async fn rmdir(&self, caller: &Caller, dir: Ino, name: &Name) -> Result<()> {
        self.rmdir_with(caller, dir, name, false).await
    }

    /// As [`Meta::rmdir`]; `skip_trash` removes for good.
    pub async fn rmdir_with(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        skip_trash: bool,
    ) -> Result<()> {
        self.remove_dir(caller, dir, name, skip_trash).await.map(drop)
    }

    /// As [`Meta::rmdir_with`]; answers the directory as it was, if it is gone for good.
    pub async fn remove_dir(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        skip_trash: bool,
    ) -> Result<Option<(Ino, Attr)>> {
        refuse_trash(caller, dir, name)?;
        if dir == Ino::TRASH {
            return Err(Error::NotPermitted);
        }
        self.refuse_writes()?;
        let hour = self.hour_for(dir, skip_trash).await?;
        self.run(&Rmdir { caller, dir, name, hour }).await
    }

    pub async fn rename(
        &self,
        caller: &Caller,
        (src, old): (Ino, &Name),
        (dst, new): (Ino, &Name),
        mode: RenameMode,
    ) -> Result<Renamed> {
        refuse_trash(caller, src, old)?;
        if dst.is_trash() || is_trash_name(dst, new) {
            return Err(Error::NotPermitted);
        }
        self.refuse_writes()?;
        let subtrees = self.moving_subtrees((src, old), (dst, new), mode).await?;
        let hour = match mode {
            RenameMode::Replace => self.hour_for(dst, false).await?,
            _ => None,
        };
        let op =
            Rename { caller, from: (src, old), to: (dst, new), mode, hour, subtrees: &subtrees };
        self.run(&op).await
    }

    /// Takes note of an attr that was just read.
    fn saw(&self, ino: Ino, attr: &Attr) {
        self.facts.open.saw(ino, attr);
        if attr.is_dir() && self.facts.quotas.has_dirs() {
            self.facts.parents.saw(ino, attr);
        }
    }

    pub(in crate::meta) fn refuse_writes(&self) -> Result<()> {
        if self.facts.options.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    async fn make(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        node: NodeKind,
        (mode, umask): (u16, u16),
        target: Bytes,
    ) -> Result<Made> {
        if dir.is_trash() || is_trash_name(dir, name) {
            return Err(Error::NotPermitted);
        }
        self.refuse_writes()?;
        let ino = self.new_inode().await?;
        let NodeKind { kind, rdev } = node;
        self.run(&Make { caller, dir, name, kind, mode, umask, rdev, target: &target, ino }).await
    }
}

/// `.trash` in the volume's root.
pub(super) fn is_trash_name(dir: Ino, name: &Name) -> bool {
    dir == Ino::ROOT && name.as_bytes() == TRASH_NAME.as_bytes()
}

/// The trash itself stays, and only root takes things out of it.
fn refuse_trash(caller: &Caller, dir: Ino, name: &Name) -> Result<()> {
    if is_trash_name(dir, name) || (dir.is_trash() && !caller.is_root()) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

fn fresh(made: Made) -> Result<(Ino, Attr)> {
    match made {
        Made::New(ino, attr) => Ok((ino, attr)),
        Made::Found(..) => Err(Error::Exists),
    }
}

fn made_up_root(ino: Ino) -> Attr {
    let mode = if ino == Ino::TRASH { 0o555 } else { 0o777 };
    Attr::new(FileKind::Dir, mode, 0, 0, Ino::ROOT, Timestamp::default())
}
