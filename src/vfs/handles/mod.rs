//! Handles: the files and directories that the kernel holds open, by number.
//!
//! The number is only a quick way to find the handle. The ledger has the handles that an earlier
//! process opened; one that did not fit there is opened again from its inode. So nothing that the
//! kernel holds depends on the lifetime of this process.
//!
//! Users decide how many handles there are, so memory for each is reserved before anything is
//! opened.

mod adopt;
mod open_close;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::OFlag;

pub use open_close::{Closing, OpenedNode};

use crate::chunk::{Budget, Reserved};
use crate::error::{Error, Result};
use crate::ledger::{HandleRecord, Ledger, LedgerSlot};
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
    ledger: Option<Arc<Ledger>>,
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
    slot: Option<LedgerSlot>,
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
    /// Without a ledger, numbers start at 1: no other process will ever see them.
    pub fn new(memory: Arc<Budget>, ledger: Option<Arc<Ledger>>) -> Self {
        Self { next: AtomicU64::new(1), memory, ledger, open: Mutex::default() }
    }

    /// Reserves memory for one handle.
    pub fn reserve(&self) -> Result<HandleMemory> {
        let reserved = self.memory.try_reserve(HANDLE_MEMORY).ok_or(Error::TooManyOpen)?;
        Ok(HandleMemory { _reserved: reserved })
    }

    /// Returns a number for a handle. No other handle of the mount ever has it.
    pub fn next(&self) -> Fh {
        match &self.ledger {
            Some(ledger) => Fh(ledger.next_handle()),
            None => Fh(self.next.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// `flags` are those of open(2).
    pub fn add(&self, handle: Handle, flags: OFlag, memory: HandleMemory) -> Fh {
        self.add_as(self.next(), handle, flags, memory)
    }

    /// Adds a handle under this number, which is returned.
    pub fn add_as(&self, fh: Fh, handle: Handle, flags: OFlag, memory: HandleMemory) -> Fh {
        let slot = self.record(fh, &handle, flags);
        let opened = OpenHandle { handle: Arc::new(handle), _memory: Some(memory), slot };
        self.lock().insert(fh, opened);
        fh
    }

    /// Adds a handle of an earlier process that the ledger has.
    pub fn adopt(&self, fh: Fh, handle: Handle, slot: LedgerSlot) {
        let (handle, memory) = (Arc::new(handle), self.reserve().ok());
        self.lock().insert(fh, OpenHandle { handle, _memory: memory, slot: Some(slot) });
    }

    /// Records a handle in the ledger. Virtual files are opened again by their inode.
    fn record(&self, fh: Fh, handle: &Handle, flags: OFlag) -> Option<LedgerSlot> {
        let flags = match handle {
            Handle::File(_) => u64::from(flags.bits().cast_unsigned()),
            Handle::Dir(_) => HandleRecord::DIRECTORY,
            Handle::VirtualFile(..) => return None,
        };
        let record = HandleRecord { fh: fh.0, ino: handle.ino().0, flags };
        self.ledger.as_ref()?.add_handle(record)
    }

    /// Returns the handle with this number, if it is for this inode.
    pub fn find(&self, fh: Fh, ino: Ino) -> Option<Arc<Handle>> {
        let open = self.lock();
        let handle = &open.get(&fh)?.handle;
        (handle.ino() == ino).then(|| Arc::clone(handle))
    }

    /// Adds a handle under the number that the kernel uses. A handle that is there already stays
    /// and is returned; one of another file is an error.
    pub fn rebuild(&self, fh: Fh, handle: Handle, flags: OFlag) -> Result<Arc<Handle>> {
        let mut open = self.lock();
        if let Some(known) = open.get(&fh) {
            let is_same = known.handle.ino() == handle.ino();
            return if is_same { Ok(Arc::clone(&known.handle)) } else { Err(Error::BadHandle) };
        }
        let slot = self.record(fh, &handle, flags);
        let handle = Arc::new(handle);
        let memory = self.reserve().ok();
        open.insert(fh, OpenHandle { handle: Arc::clone(&handle), _memory: memory, slot });
        Ok(handle)
    }

    pub fn remove(&self, fh: Fh, ino: Ino) -> Option<Arc<Handle>> {
        let mut open = self.lock();
        open.get(&fh).filter(|opened| opened.handle.ino() == ino)?;
        let removed = open.remove(&fh)?;
        drop(open);
        if let (Some(ledger), Some(slot)) = (&self.ledger, removed.slot) {
            ledger.remove_handle(slot);
        }
        Some(removed.handle)
    }

    /// Removes and returns all handles.
    pub fn clear(&self) -> Vec<Arc<Handle>> {
        self.lock().drain().map(|(_, opened)| opened.handle).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Fh, OpenHandle>> {
        self.open.lock()
    }
}
