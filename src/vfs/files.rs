//! Open files: how a handle comes, what closing it means, and how one that is not known is made
//! again.

use std::sync::Arc;

use nix::fcntl::OFlag;
use uuid::Uuid;

use super::base::{Node, Vfs};
use super::dir::Dir;
use super::handles::{Fh, FileHandle, Handle, Room};
use super::unlocks::Unlock;
use crate::error::{Error, Result};
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino, Name};

/// A file or directory that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedNode {
    pub fh: Fh,
    /// What the kernel has of its content is still good.
    pub keep_cache: bool,
    /// A virtual file: nothing of it may be kept.
    pub direct: bool,
    /// The kernel may go by attributes that are not true any more.
    pub stale_attr: bool,
}

/// What the last handle of a file leaves to be done.
#[must_use]
#[derive(Debug, Default)]
pub struct Closing {
    /// Its owner of locks by flock(2), which go.
    pub flock: Option<u64>,
    /// Owners of ranges that were locked through the handle.
    pub lockers: Vec<u64>,
    /// Its names are gone, and with the handle the file goes.
    pub removed: bool,
    /// There as long as the locks are, for those who wait for them to be free.
    unlock: Option<Unlock>,
}

impl Closing {
    /// Whether nothing is left to be done.
    pub fn is_done(&self) -> bool {
        self.flock.is_none() && self.lockers.is_empty() && !self.removed
    }
}

impl Vfs {
    pub async fn open(&self, caller: &Caller, ino: Ino, flags: OFlag) -> Result<OpenedNode> {
        let room = self.handles.room()?;
        if self.internal.attr(ino).is_some() {
            let opened = self.internal.open(caller, ino, flags)?;
            let fh = self.handles.add(Handle::Virtual(ino, opened), room);
            return Ok(OpenedNode { fh, keep_cache: false, direct: true, stale_attr: false });
        }
        let (opened, reader) = self.content.open(caller, ino, flags).await?;
        let fh = self.handles.add(Handle::File(FileHandle::new(reader, false)), room);
        let stale_attr = self.told.differs(ino, &opened.attr);
        Ok(OpenedNode { fh, keep_cache: opened.keep_cache, direct: false, stale_attr })
    }

    /// Makes a file and opens it; one that is there is opened unless `exclusive`.
    pub async fn create(
        &self,
        caller: &Caller,
        (dir, name): (Ino, &[u8]),
        (mode, umask): (u16, u16),
        exclusive: bool,
    ) -> Result<(Node, OpenedNode)> {
        let name = self.free_name(dir, name)?;
        let room = self.handles.room()?;
        let umask = self.umask(umask);
        let made = self.meta.create(caller, dir, &name, mode, umask, exclusive).await?;
        Ok(self.opened_new(made, room))
    }

    /// Makes and opens a file without a name. For a moment it has one.
    pub async fn tmpfile(
        &self,
        caller: &Caller,
        dir: Ino,
        (mode, umask): (u16, u16),
    ) -> Result<(Node, OpenedNode)> {
        let room = self.handles.room()?;
        let name = Name::new(format!("tmpfile_{}", Uuid::new_v4()))?;
        let umask = self.umask(umask);
        let made = self.meta.create(caller, dir, &name, mode, umask, true).await?;
        let (mut node, opened) = self.opened_new(made, room);
        if let Err(error) = self.meta.unlink_with(&Caller::root(), dir, &name, true).await {
            self.abandon(opened.fh, node.ino).await;
            return Err(error);
        }
        node.attr.nlink = 0;
        Ok((node, opened))
    }

    fn opened_new(&self, (ino, attr): (Ino, Attr), room: Room) -> (Node, OpenedNode) {
        let reader = self.content.reader(ino, &attr);
        let fh = self.handles.add(Handle::File(FileHandle::new(reader, false)), room);
        let opened = OpenedNode { fh, keep_cache: true, direct: false, stale_attr: false };
        (Node { ino, attr }, opened)
    }

    /// Opens a directory. Its listing begins when it is asked for.
    pub fn open_dir(&self, ino: Ino) -> Result<Fh> {
        let room = self.handles.room()?;
        Ok(self.handles.add(Handle::Dir(Dir::new(ino)), room))
    }

    pub fn close_dir(&self, ino: Ino, fh: Fh) {
        drop(self.handles.remove(fh, ino));
    }

    /// One of the descriptors of a file was closed by somebody: what was written is stored, and the
    /// ranges that they have locked are free.
    pub async fn flush(&self, ino: Ino, fh: Fh, owner: u64) -> Result<()> {
        match self.handles.find(fh, ino).as_deref() {
            Some(Handle::Virtual(_, opened)) => {
                opened.flush();
                return Ok(());
            }
            Some(Handle::File(file)) if !file.rebuilt && !self.is_locker(ino, owner) => {
                return self.content.flush(ino).await;
            }
            // Another process may have locked something by this number.
            _ => {}
        }
        let flushed = self.content.flush(ino).await;
        let unlocked = self.unlock_ranges(ino, owner).await;
        flushed.and(unlocked)
    }

    /// The same, if nothing has to be waited for.
    pub fn flush_now(&self, ino: Ino, fh: Fh, owner: u64) -> Option<Result<()>> {
        match &*self.handles.find(fh, ino)? {
            Handle::File(file) if !file.rebuilt && !self.is_locker(ino, owner) => {
                self.content.flush_now(ino)
            }
            _ => None,
        }
    }

    pub async fn fsync(&self, ino: Ino) -> Result<()> {
        self.content.flush(ino).await
    }

    /// Gives a handle back. What is left to be done then takes time.
    pub fn release(&self, ino: Ino, fh: Fh, flock: Option<u64>) -> Closing {
        let mut closing = self.closing(ino, fh, flock);
        if closing.flock.is_some() || !closing.lockers.is_empty() {
            closing.unlock = Some(self.unlocks.begin(ino));
        }
        closing
    }

    fn closing(&self, ino: Ino, fh: Fh, flock: Option<u64>) -> Closing {
        let Some(handle) = self.handles.remove(fh, ino) else {
            // Another process's: nothing is open here, but its lock is the session's.
            return Closing { flock, ..Closing::default() };
        };
        let Handle::File(file) = &*handle else { return Closing::default() };
        let mut lockers: Vec<u64> = file.lockers().iter().copied().collect();
        lockers.retain(|owner| self.is_locker(ino, *owner));
        Closing { flock, lockers, removed: self.meta.release_handle(ino), unlock: None }
    }

    /// Does what a released handle has left to be done.
    pub async fn finish(&self, ino: Ino, closing: Closing) -> Result<()> {
        let mut done = Ok(());
        if let Some(owner) = closing.flock {
            done = self.unlock_all(ino, owner).await;
        }
        for owner in closing.lockers {
            done = done.and(self.unlock_ranges(ino, owner).await);
        }
        drop(closing.unlock);
        if closing.removed {
            done = done.and(self.meta.drop_removed(ino).await);
        }
        done
    }

    /// Closes a handle that nobody was told of.
    pub async fn abandon(&self, fh: Fh, ino: Ino) {
        let closing = self.release(ino, fh, None);
        if let Err(error) = self.finish(ino, closing).await {
            tracing::warn!(%ino, %error, "cannot close a file that nobody waits for");
        }
    }

    /// The open file behind a number, made again if another process has given it out.
    pub(super) async fn file(&self, ino: Ino, fh: Fh, flags: OFlag) -> Result<Arc<Handle>> {
        match self.handles.find(fh, ino) {
            Some(handle) => Ok(handle),
            None => self.rebuild(ino, fh, flags).await,
        }
    }

    async fn rebuild(&self, ino: Ino, fh: Fh, flags: OFlag) -> Result<Arc<Handle>> {
        if self.internal.attr(ino).is_some() {
            let opened = self.internal.reopen(ino, flags)?;
            return Ok(self.handles.rebuild(fh, Handle::Virtual(ino, opened)));
        }
        // It was opened once, so the caller has been asked what they may do.
        let flags = flags & (OFlag::O_ACCMODE | OFlag::O_APPEND);
        let (_, reader) = self.content.open(&Caller::root(), ino, flags).await?;
        let handle = self.handles.rebuild(fh, Handle::File(FileHandle::new(reader, true)));
        if !matches!(&*handle, Handle::File(file) if file.rebuilt) {
            return Err(Error::BadHandle);
        }
        Ok(handle)
    }

    /// The open directory behind a number.
    pub(super) fn dir(&self, ino: Ino, fh: Fh) -> Arc<Handle> {
        let known = self.handles.find(fh, ino);
        known.unwrap_or_else(|| self.handles.rebuild(fh, Handle::Dir(Dir::new(ino))))
    }
}
