//! Names: the calls that look up or change entries and attrs, one for each operation.

use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::op::attrs::setattr::SetAttr;
use crate::meta::op::names::create::{Create, CreateOutcome};
use crate::meta::op::names::link::Link;
use crate::meta::op::names::lookup::{GetAttr, Lookup};
use crate::meta::op::names::readlink::Readlink;
use crate::meta::op::names::rename::{Rename, Renamed};
use crate::meta::op::names::rmdir::Rmdir;
use crate::meta::op::names::unlink::Unlink;
use crate::meta::record::trash::TRASH_NAME;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{AttrSet, Caller, EntryRef, Ino, Name, RenameMode, Timestamp};

/// The longest target of a symlink.
const MAX_TARGET: usize = 4096;
/// How long reading the root may take before a placeholder is returned: a dead server must not hang
/// every process that looks at the mount point.
const ROOT_TIMEOUT: Duration = Duration::from_millis(300);

/// What `mknod` creates.
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
        self.cache_attr(ino, &attr);
        Ok((ino, attr))
    }

    pub async fn getattr(&self, ino: Ino) -> Result<Attr> {
        if let Some(attr) = self.context.open.attr(ino) {
            return Ok(attr);
        }
        let mark = self.context.dirs.mark(ino);
        let op = GetAttr { ino };
        let asked = self.run(&op);
        let attr = if ino == Ino::ROOT || ino == Ino::TRASH {
            match tokio::time::timeout(ROOT_TIMEOUT, asked).await {
                Ok(Ok(attr)) => attr,
                _ => return Ok(placeholder_root(ino)),
            }
        } else {
            asked.await?
        };
        self.cache_attr(ino, &attr);
        self.context.dirs.observe(ino, &attr, mark);
        Ok(attr)
    }

    /// The attr of a directory that this client has changed since it was read, and the age of the
    /// read, if it is younger than `lifetime`. Sends no request.
    pub fn changed_dir(&self, dir: Ino, lifetime: Duration) -> Option<(Attr, Duration)> {
        self.context.dirs.attr_if_changed(dir, lifetime)
    }

    /// Commits of this client so far, including failed ones. While it stays the same, this client
    /// has changed nothing.
    pub fn commit_count(&self) -> u64 {
        self.context.commits.count()
    }

    /// Changes attributes other than the length. Returns the new attr.
    pub async fn setattr(&self, caller: &Caller, ino: Ino, set: AttrSet) -> Result<Attr> {
        let attr = self.run(&SetAttr { caller, ino, set }).await?;
        self.context.open.observe(ino, &attr);
        Ok(attr)
    }

    /// Creates a regular file and opens it. Opens an existing one unless `exclusive`.
    pub async fn create(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        mode: u16,
        umask: u16,
        exclusive: bool,
    ) -> Result<(Ino, Attr)> {
        let node = NodeKind { kind: FileKind::File, rdev: 0 };
        let (ino, attr) = match self
            .create_node(caller, EntryRef::new(dir, name), node, mode, umask, Bytes::new())
            .await?
        {
            CreateOutcome::Created(ino, attr) => (ino, attr),
            CreateOutcome::Existing(ino, attr) if !exclusive && attr.is_file() => (ino, attr),
            CreateOutcome::Existing(..) => return Err(Error::Exists),
        };
        self.context.open.open(ino, &attr);
        Ok((ino, attr))
    }

    pub async fn mknod(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        node: NodeKind,
        mode: u16,
        umask: u16,
    ) -> Result<(Ino, Attr)> {
        require_created(
            self.create_node(caller, EntryRef::new(dir, name), node, mode, umask, Bytes::new())
                .await?,
        )
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
        require_created(
            self.create_node(caller, EntryRef::new(dir, name), node, mode, umask, Bytes::new())
                .await?,
        )
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
        // The mode of a symlink is never used.
        require_created(
            self.create_node(caller, EntryRef::new(dir, name), node, 0o777, 0, target).await?,
        )
    }

    pub async fn readlink(&self, ino: Ino) -> Result<Bytes> {
        self.run(&Readlink { ino }).await
    }

    pub async fn link(&self, caller: &Caller, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        if dir.is_trash() || is_trash_name(dir, name) {
            return Err(Error::NotPermitted);
        }
        self.check_writable()?;
        self.run(&Link { caller, ino, dir, name }).await
    }

    pub async fn unlink(&self, caller: &Caller, dir: Ino, name: &Name) -> Result<()> {
        self.unlink_with(caller, dir, name, false).await
    }

    /// As [`Meta::unlink`]; `skip_trash` removes permanently.
    pub async fn unlink_with(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        skip_trash: bool,
    ) -> Result<()> {
        check_trash(caller, dir, name)?;
        self.check_writable()?;
        let hour = self.hour_dir_for(dir, skip_trash).await?;
        let ino = self.run(&Unlink { caller, dir, name, hour }).await?;
        if caller.earlier_intent().is_some() {
            self.observe_removed(ino).await?;
        }
        Ok(())
    }

    pub async fn rmdir(&self, caller: &Caller, dir: Ino, name: &Name) -> Result<()> {
        self.rmdir_with(caller, dir, name, false).await
    }

    /// As [`Meta::rmdir`]; `skip_trash` removes permanently.
    pub async fn rmdir_with(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        skip_trash: bool,
    ) -> Result<()> {
        self.remove_dir(caller, dir, name, skip_trash).await.map(drop)
    }

    /// As [`Meta::rmdir_with`]; returns the directory if it was removed permanently.
    pub async fn remove_dir(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &Name,
        skip_trash: bool,
    ) -> Result<Option<(Ino, Attr)>> {
        check_trash(caller, dir, name)?;
        if dir == Ino::TRASH {
            return Err(Error::NotPermitted);
        }
        self.check_writable()?;
        let hour = self.hour_dir_for(dir, skip_trash).await?;
        self.run(&Rmdir { caller, dir, name, hour }).await
    }

    pub async fn rename(
        &self,
        caller: &Caller,
        from: EntryRef<'_>,
        to: EntryRef<'_>,
        mode: RenameMode,
    ) -> Result<Renamed> {
        check_trash(caller, from.dir, from.name)?;
        if to.dir.is_trash() || is_trash_name(to.dir, to.name) {
            return Err(Error::NotPermitted);
        }
        self.check_writable()?;
        let subtrees = self.subtrees_changing_quota(from, to, mode).await?;
        let hour = match mode {
            RenameMode::Replace => self.hour_dir_for(to.dir, false).await?,
            _ => None,
        };
        let op = Rename { caller, from, to, mode, hour, subtrees: &subtrees };
        self.run(&op).await
    }

    /// Records that a file has no names left, if an earlier process removed the last one.
    async fn observe_removed(&self, ino: Ino) -> Result<()> {
        let sid = self.context.sid();
        if self.context.open.is_open(ino) && self.engine.sustained(sid).await?.contains(&ino) {
            self.context.open.mark_removed(ino);
        }
        Ok(())
    }

    /// Caches an attr that was just read.
    fn cache_attr(&self, ino: Ino, attr: &Attr) {
        self.context.open.observe(ino, attr);
        if attr.is_dir() && self.context.quotas.has_dirs() {
            self.context.parents.observe(ino, attr);
        }
    }

    pub(in crate::meta::client) fn check_writable(&self) -> Result<()> {
        if self.context.options.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    async fn create_node(
        &self,
        caller: &Caller,
        entry: EntryRef<'_>,
        node: NodeKind,
        mode: u16,
        umask: u16,
        target: Bytes,
    ) -> Result<CreateOutcome> {
        let EntryRef { dir, name } = entry;
        if dir.is_trash() || is_trash_name(dir, name) {
            return Err(Error::NotPermitted);
        }
        self.check_writable()?;
        let ino = match caller.earlier_intent() {
            Some(intent) => Ino(intent[0]),
            None => self.new_inode().await?,
        };
        caller.intend([ino.0, 0, 0, 0]);
        let NodeKind { kind, rdev } = node;
        self.run(&Create { caller, dir, name, kind, mode, umask, rdev, target: &target, ino }).await
    }
}

/// Whether this is `.trash` in the volume's root.
pub(in crate::meta::client) fn is_trash_name(dir: Ino, name: &Name) -> bool {
    dir == Ino::ROOT && name.as_bytes() == TRASH_NAME.as_bytes()
}

/// Nobody may remove the trash itself, and only root may remove entries from it.
fn check_trash(caller: &Caller, dir: Ino, name: &Name) -> Result<()> {
    if is_trash_name(dir, name) || (dir.is_trash() && !caller.is_root()) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

fn require_created(made: CreateOutcome) -> Result<(Ino, Attr)> {
    match made {
        CreateOutcome::Created(ino, attr) => Ok((ino, attr)),
        CreateOutcome::Existing(..) => Err(Error::Exists),
    }
}

fn placeholder_root(ino: Ino) -> Attr {
    let mode = if ino == Ino::TRASH { 0o555 } else { 0o777 };
    Attr::new(FileKind::Dir, mode, 0, 0, Ino::ROOT, Timestamp::default())
}
