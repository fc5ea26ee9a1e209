//! Handles: the files and directories that the kernel holds open, by number.
//!
//! The number is only a quick way to find the handle. If another process opened it, it is not known
//! here and is opened again from its inode, so nothing that the kernel holds depends on the
//! lifetime of this process.
//!
//! Users decide how many handles there are, so memory for each is reserved before anything is
//! opened.

mod open_close;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use open_close::{Closing, OpenedNode};

use crate::chunk::{Budget, Reserved};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::sync::{Mutex, MutexGuard};
use crate::vfs::dir::Dir;
use crate::vfs::file::reader::Reader;
use crate::vfs::virtual_files::VirtualFile;

/// Memory that an open file takes: its handle, its file, and its state in metadata.
const HANDLE_MEMORY: usize = 2 << 10;

/// The number of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fh(pub u64);

pub enum Handle {
    File(FileHandle),
    Dir(Box<Dir>),
    VirtualFile(Ino, VirtualFile),
}

/// An open file.
pub struct FileHandle {
    pub reader: Reader,
    /// Opened on behalf of another process: which ranges were locked through it is unknown.
    pub rebuilt: bool,
    /// Owners that have locked ranges through it.
    lockers: Mutex<HashSet<u64>>,
}

pub struct Handles {
    next: AtomicU64,
    memory: Arc<Budget>,
    open: Mutex<HashMap<Fh, OpenHandle>>,
}

/// Memory for one handle.
pub struct HandleMemory {
    _reserved: Reserved,
}

struct OpenHandle {
    handle: Arc<Handle>,
    /// `None` for a handle that another process opened: it must be accepted whatever it takes.
    _memory: Option<HandleMemory>,
}

impl FileHandle {
    pub fn new(reader: Reader, rebuilt: bool) -> Self {
        Self { reader, rebuilt, lockers: Mutex::default() }
    }

    pub fn lockers(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.lockers.lock()
    }
}

impl Handle {
    pub fn ino(&self) -> Ino {
        match self {
            Self::File(file) => file.reader.ino(),
            Self::Dir(dir) => dir.ino(),
            Self::VirtualFile(ino, _) => *ino,
        }
    }
}

impl Handles {
    /// Numbers start at the time of day, so that those of an earlier process never appear again.
    pub fn new(memory: Arc<Budget>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let next = AtomicU64::new((now.as_secs() & 0x7FFF_FFFF) << 32);
        Self { next, memory, open: Mutex::default() }
    }

    /// Reserves memory for one handle.
    pub fn reserve(&self) -> Result<HandleMemory> {
        let reserved = self.memory.try_reserve(HANDLE_MEMORY).ok_or(Error::TooManyOpen)?;
        Ok(HandleMemory { _reserved: reserved })
    }

    pub fn add(&self, handle: Handle, memory: HandleMemory) -> Fh {
        let fh = Fh(self.next.fetch_add(1, Ordering::Relaxed) + 1);
        self.lock().insert(fh, OpenHandle { handle: Arc::new(handle), _memory: Some(memory) });
        fh
    }

    /// Returns the handle with this number, if it is for this inode.
    pub fn find(&self, fh: Fh, ino: Ino) -> Option<Arc<Handle>> {
        let open = self.lock();
        let handle = &open.get(&fh)?.handle;
        (handle.ino() == ino).then(|| Arc::clone(handle))
    }

    /// Adds a handle under the number that the kernel uses. A handle that is there already stays.
    pub fn rebuild(&self, fh: Fh, handle: Handle) -> Arc<Handle> {
        let mut open = self.lock();
        let known = open.get(&fh).filter(|known| known.handle.ino() == handle.ino());
        if let Some(known) = known {
            return Arc::clone(&known.handle);
        }
        let handle = Arc::new(handle);
        open.insert(fh, OpenHandle { handle: Arc::clone(&handle), _memory: self.reserve().ok() });
        handle
    }

    pub fn remove(&self, fh: Fh, ino: Ino) -> Option<Arc<Handle>> {
        let mut open = self.lock();
        open.get(&fh).filter(|opened| opened.handle.ino() == ino)?;
        open.remove(&fh).map(|opened| opened.handle)
    }

    /// Removes and returns all handles.
    pub fn clear(&self) -> Vec<Arc<Handle>> {
        self.lock().drain().map(|(_, opened)| opened.handle).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Fh, OpenHandle>> {
        self.open.lock()
    }
}
