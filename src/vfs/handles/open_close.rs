//! Opening, flushing and closing files and directories, and rebuilding handles that another process
//! opened.

use std::sync::Arc;

use nix::fcntl::OFlag;
use uuid::Uuid;

use super::{Fh, FileHandle, Handle, HandleMemory};
use crate::error::Result;
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino, Name};
use crate::vfs::dir::Dir;
use crate::vfs::locks::PendingUnlock;
use crate::vfs::{Node, Vfs};

/// A file or directory that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedNode {
    pub fh: Fh,
    /// The kernel's cached pages of the file are still valid.
    pub keep_cache: bool,
    /// A virtual file: the kernel must not cache it.
    pub direct: bool,
    /// The kernel may hold outdated attributes.
    pub stale_attr: bool,
}

/// What is left to do after the last descriptor of a handle was closed.
#[must_use]
#[derive(Debug, Default)]
pub struct Closing {
    /// The flock(2) owner whose lock must be released.
    pub flock: Option<u64>,
    /// Owners of ranges that were locked through the handle.
    pub lockers: Vec<u64>,
    /// The file has no names left, so it is deleted with the handle.
    pub removed: bool,
    /// Dropped once the locks are released, for callers that wait for them.
    unlock: Option<PendingUnlock>,
}

impl Closing {
    /// Whether nothing is left to be done.
    pub fn is_done(&self) -> bool {
        self.flock.is_none() && self.lockers.is_empty() && !self.removed
    }
}

impl Vfs {
    pub async fn open(&self, caller: &Caller, ino: Ino, flags: OFlag) -> Result<OpenedNode> {
        let memory = self.handles.reserve()?;
        if self.virtual_files.attr(ino).is_some() {
            let opened = self.virtual_files.open(caller, ino, flags)?;
            let fh = self.handles.add(Handle::VirtualFile(ino, opened), flags, memory);
            return Ok(OpenedNode { fh, keep_cache: false, direct: true, stale_attr: false });
        }
        let (opened, reader) = self.content.open(caller, ino, flags).await?;
        let handle = Handle::File(FileHandle::new(reader, false));
        let fh = self.number_for(caller, ino).await;
        self.handles.add_as(fh, handle, flags, memory);
        let stale_attr = self.kernel_view.differs(ino, &opened.attr);
        Ok(OpenedNode { fh, keep_cache: opened.keep_cache, direct: false, stale_attr })
    }

    /// Creates a file and opens it. An existing file is opened unless `exclusive`.
    pub async fn create(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &[u8],
        mode: u16,
        umask: u16,
        exclusive: bool,
    ) -> Result<(Node, OpenedNode)> {
        let name = self.name_to_create(dir, name)?;
        let memory = self.handles.reserve()?;
        let umask = self.umask(umask);
        let made = self.meta.create(caller, dir, &name, mode, umask, exclusive).await?;
        let fh = self.number_for(caller, made.0).await;
        Ok(self.opened_new(fh, made, memory))
    }

    /// Creates and opens a file without a name. For a moment it has one.
    pub async fn tmpfile(
        &self,
        caller: &Caller,
        dir: Ino,
        mode: u16,
        umask: u16,
    ) -> Result<(Node, OpenedNode)> {
        let memory = self.handles.reserve()?;
        let name = Name::new(format!("tmpfile_{}", Uuid::new_v4()))?;
        let umask = self.umask(umask);
        let made = self.meta.create(caller, dir, &name, mode, umask, true).await?;
        let (mut node, opened) = self.opened_new(self.handles.next(), made, memory);
        if let Err(error) = self.meta.unlink_with(&Caller::root(), dir, &name, true).await {
            self.abandon(opened.fh, node.ino).await;
            return Err(error);
        }
        node.attr.nlink = 0;
        Ok((node, opened))
    }

    fn opened_new(
        &self,
        fh: Fh,
        (ino, attr): (Ino, Attr),
        memory: HandleMemory,
    ) -> (Node, OpenedNode) {
        let reader = self.content.reader(ino, &attr);
        let handle = Handle::File(FileHandle::new(reader, false));
        self.handles.add_as(fh, handle, OFlag::O_RDWR, memory);
        let opened = OpenedNode { fh, keep_cache: true, direct: false, stale_attr: false };
        (Node { ino, attr }, opened)
    }

    /// Opens a directory. Its listing starts with the first read.
    pub fn open_dir(&self, ino: Ino) -> Result<Fh> {
        let memory = self.handles.reserve()?;
        Ok(self.handles.add(Handle::Dir(Box::new(Dir::new(ino))), OFlag::O_DIRECTORY, memory))
    }

    pub fn close_dir(&self, ino: Ino, fh: Fh) {
        drop(self.handles.remove(fh, ino));
    }

    /// Handles the close of one descriptor of a file: stores what was written and releases the
    /// ranges that `owner` has locked.
    pub async fn flush(&self, ino: Ino, fh: Fh, owner: u64) -> Result<()> {
        match self.handles.find(fh, ino).as_deref() {
            Some(Handle::VirtualFile(_, opened)) => {
                opened.flush();
                return Ok(());
            }
            Some(Handle::File(file)) if !file.rebuilt && !self.is_locker(ino, owner) => {
                return self.content.flush(ino).await;
            }
            // The owner may have locked something through another process that held this handle.
            _ => {}
        }
        let flushed = self.content.flush(ino).await;
        let unlocked = self.unlock_ranges(ino, owner).await;
        flushed.and(unlocked)
    }

    /// Like [`Vfs::flush`], if there is nothing to wait for.
    pub fn flush_now(&self, ino: Ino, fh: Fh, owner: u64) -> Option<Result<()>> {
        match &*self.handles.find(fh, ino)? {
            Handle::File(file) if !file.rebuilt && !self.is_locker(ino, owner) => {
                self.content.flush_now(ino)
            }
            _ => None,
        }
    }

    /// Stores and commits what was written, so that it survives a crash of this machine.
    pub async fn fsync(&self, ino: Ino) -> Result<()> {
        self.content.flush(ino).await?;
        self.content.sync_staged().await
    }

    /// Removes a handle. Pass the result to [`Vfs::finish`] if anything is left to do.
    pub fn release(&self, ino: Ino, fh: Fh, flock: Option<u64>) -> Closing {
        let mut closing = self.closing(ino, fh, flock);
        if closing.flock.is_some() || !closing.lockers.is_empty() {
            closing.unlock = Some(self.pending_unlocks.begin(ino));
        }
        closing
    }

    fn closing(&self, ino: Ino, fh: Fh, flock: Option<u64>) -> Closing {
        let Some(handle) = self.handles.remove(fh, ino) else {
            // The handle of another process: nothing is open here, but the session holds its lock.
            return Closing { flock, ..Closing::default() };
        };
        let Handle::File(file) = &*handle else { return Closing::default() };
        let mut lockers: Vec<u64> = file.lockers().iter().copied().collect();
        lockers.retain(|owner| self.is_locker(ino, *owner));
        Closing { flock, lockers, removed: self.meta.release_handle(ino), unlock: None }
    }

    /// Does what a released handle has left to do.
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

    /// Closes a handle that the kernel was never given.
    pub async fn abandon(&self, fh: Fh, ino: Ino) {
        let closing = self.release(ino, fh, None);
        if let Err(error) = self.finish(ino, closing).await {
            tracing::warn!(%ino, %error, "cannot close a file whose caller is gone");
        }
    }

    /// Returns the open file with this number. Opens it again if another process had opened it.
    pub(in crate::vfs) async fn file(&self, ino: Ino, fh: Fh, flags: OFlag) -> Result<Arc<Handle>> {
        match self.handles.find(fh, ino) {
            Some(handle) => Ok(handle),
            None => self.rebuild(ino, fh, flags).await,
        }
    }

    async fn rebuild(&self, ino: Ino, fh: Fh, flags: OFlag) -> Result<Arc<Handle>> {
        if self.virtual_files.attr(ino).is_some() {
            let opened = self.virtual_files.reopen(ino, flags)?;
            return self.handles.rebuild(fh, Handle::VirtualFile(ino, opened), flags);
        }
        let _one_at_a_time = self.rebuilding.lock().await;
        if let Some(handle) = self.handles.find(fh, ino) {
            return Ok(handle);
        }
        // It was opened before, so permissions and flags have been checked.
        let reader = self.content.reopen(ino).await?;
        let rebuilt = self.handles.rebuild(fh, Handle::File(FileHandle::new(reader, true)), flags);
        if rebuilt.is_err() {
            self.meta.close_file(ino).await?;
        }
        rebuilt
    }

    /// Returns the open directory with this number.
    pub(in crate::vfs) fn dir(&self, ino: Ino, fh: Fh) -> Result<Arc<Handle>> {
        match self.handles.find(fh, ino) {
            Some(handle) => Ok(handle),
            None => {
                self.handles.rebuild(fh, Handle::Dir(Box::new(Dir::new(ino))), OFlag::O_DIRECTORY)
            }
        }
    }

    /// Returns the number of the handle that a request opens. Closes the one that an earlier process
    /// opened for the same request, which the kernel does not know.
    ///
    /// The request has the number before the ledger has the handle: if this process dies between
    /// the two, the next one looks for a handle that is not there. In the other order it would have
    /// one that nobody closes, and the file would keep its errors, and its content if it is removed.
    async fn number_for(&self, caller: &Caller, ino: Ino) -> Fh {
        let fh = self.handles.next();
        if let Some(request) = &caller.request {
            if let Some(earlier) = request.earlier_handle() {
                self.abandon(Fh(earlier), ino).await;
            }
            request.intend_handle(fh.0);
        }
        fh
    }
}
