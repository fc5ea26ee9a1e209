//! Handles: what the kernel holds open, by number.
//!
//! A number is only a way to find what is open quickly. One that is not known here, because another
//! process gave it out, is opened again from its inode, so nothing that the kernel holds depends on
//! the life of this process.
//!
//! How many there are is up to those who use the mount, so each has its room reserved before anything is
//! opened.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::dir::Dir;
use super::internal::Virtual;
use super::reader::Reader;
use crate::chunk::{Budget, Reserved};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::sync::{Mutex, MutexGuard};

/// What an open file takes: its handle, its file, what metadata keeps of it.
const EACH: usize = 2 << 10;

/// The number of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fh(pub u64);

pub enum Handle {
    File(FileHandle),
    Dir(Dir),
    Virtual(Ino, Virtual),
}

/// An open file.
pub struct FileHandle {
    pub reader: Reader,
    /// Opened for another process's number: what was locked through it is not known.
    pub rebuilt: bool,
    /// Who has locked ranges through it.
    lockers: Mutex<HashSet<u64>>,
}

pub struct Handles {
    next: AtomicU64,
    memory: Arc<Budget>,
    open: Mutex<HashMap<Fh, Opened>>,
}

/// Room for one handle.
pub struct Room {
    _reserved: Reserved,
}

struct Opened {
    handle: Arc<Handle>,
    /// None for one that another process opened: it is there, whatever it takes.
    _room: Option<Room>,
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
            Self::Virtual(ino, _) => *ino,
        }
    }
}

impl Handles {
    /// Numbers begin at the time of day, so that those of an earlier process are never met again.
    pub fn new(memory: Arc<Budget>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let next = AtomicU64::new((now.as_secs() & 0x7FFF_FFFF) << 32);
        Self { next, memory, open: Mutex::default() }
    }

    /// Room for one more.
    pub fn room(&self) -> Result<Room> {
        let reserved = self.memory.try_reserve(EACH).ok_or(Error::TooManyOpen)?;
        Ok(Room { _reserved: reserved })
    }

    pub fn add(&self, handle: Handle, room: Room) -> Fh {
        let fh = Fh(self.next.fetch_add(1, Ordering::Relaxed) + 1);
        self.lock().insert(fh, Opened { handle: Arc::new(handle), _room: Some(room) });
        fh
    }

    /// What is open by this number, if it is this inode.
    pub fn find(&self, fh: Fh, ino: Ino) -> Option<Arc<Handle>> {
        let open = self.lock();
        let handle = &open.get(&fh)?.handle;
        (handle.ino() == ino).then(|| Arc::clone(handle))
    }

    /// Puts a handle where the kernel expects it. Whoever was first stays.
    pub fn rebuild(&self, fh: Fh, handle: Handle) -> Arc<Handle> {
        let mut open = self.lock();
        let known = open.get(&fh).filter(|known| known.handle.ino() == handle.ino());
        if let Some(known) = known {
            return Arc::clone(&known.handle);
        }
        let handle = Arc::new(handle);
        open.insert(fh, Opened { handle: Arc::clone(&handle), _room: self.room().ok() });
        handle
    }

    pub fn remove(&self, fh: Fh, ino: Ino) -> Option<Arc<Handle>> {
        let mut open = self.lock();
        open.get(&fh).filter(|opened| opened.handle.ino() == ino)?;
        open.remove(&fh).map(|opened| opened.handle)
    }

    /// Takes all that is open.
    pub fn clear(&self) -> Vec<Arc<Handle>> {
        self.lock().drain().map(|(_, opened)| opened.handle).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Fh, Opened>> {
        self.open.lock()
    }
}
