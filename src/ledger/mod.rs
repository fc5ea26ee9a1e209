//! The ledger of a mount: what the next process must know if this one dies at any point.
//!
//! It is shared memory that a keeper holds as well, written by plain stores. It lists the handles
//! that the kernel holds, the files with written data that is not stored yet, and the requests
//! that change something and have no reply yet, each with its intent: what the next process needs
//! in order to tell whether the change took effect.
//!
//! Where the kernel cannot send requests again, they are received into [memory of their
//! own](ReceivedRequests) that outlives the process as well.
//!
//! The owner of a ledger holds a lock on it, which ends with the owner's process. Each owner has
//! its own epoch, so that handle numbers are never used twice.

mod received;
mod requests;
mod shared_memory;
mod table;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Error, Result};
use requests::Requests;
use shared_memory::SharedMemory;
use table::{Slot, Table, TableLayout};

pub use received::{FoundMessage, MessageSlot, ReceiveSpace, ReceivedRequests};
pub use requests::{Intent, RequestRecord};

const MAGIC: u64 = u64::from_be_bytes(*b"JFSLEDG\0");
/// Raised when a process of the release before could not read the ledger.
const VERSION: u64 = 1;

/// Words of the header.
mod header {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const EPOCH: usize = 2;
    /// Something did not fit, see [`super::Overflow`].
    pub const OVERFLOW: usize = 3;
    pub const HANDLES_USED: usize = 4;
    pub const DIRTY_USED: usize = 5;
    pub const REQUESTS_USED: usize = 6;
    pub const SIZE: usize = 512;
}

const HANDLES: TableLayout =
    TableLayout { used: header::HANDLES_USED, start: header::SIZE, slots: 32 << 10 };
const HANDLE_WORDS: usize = 3;
const DIRTY: TableLayout = TableLayout {
    used: header::DIRTY_USED,
    start: HANDLES.start + HANDLES.slots * HANDLE_WORDS,
    slots: 32 << 10,
};
const REQUESTS: TableLayout =
    TableLayout { used: header::REQUESTS_USED, start: DIRTY.start + DIRTY.slots, slots: 4 << 10 };
const WORDS: usize = REQUESTS.start + REQUESTS.slots * requests::WORDS;

/// How often the lock is tried while an earlier owner ends.
const LOCK_INTERVAL: Duration = Duration::from_millis(2);

/// The ledger of one mount, owned by this process.
pub struct Ledger {
    memory: Arc<SharedMemory>,
    /// Holds the lock.
    _fence: File,
    next_handle: AtomicU64,
    handles: Table<HANDLE_WORDS>,
    dirty: Table<1>,
    requests: Requests,
}

/// A handle that the kernel holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleRecord {
    /// Its number.
    pub fh: u64,
    pub ino: u64,
    /// The flags of open(2), or [`HandleRecord::DIRECTORY`].
    pub flags: u64,
}

impl HandleRecord {
    /// Marks the handle of a directory.
    pub const DIRECTORY: u64 = 1 << 32;
}

/// What did not fit into the ledger since the mount began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    Handles = 1,
    Dirty = 2,
}

/// A slot of the ledger, to be given back by [`Ledger::remove_handle`] or [`Ledger::clear_dirty`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerSlot(Slot);

impl Ledger {
    /// Creates the ledger of a new mount.
    pub fn create() -> Result<Arc<Self>> {
        let memory = SharedMemory::create("jfs-ledger", WORDS).map_err(|error| fault(&error))?;
        memory.words()[header::MAGIC].store(MAGIC, Ordering::Relaxed);
        memory.words()[header::VERSION].store(VERSION, Ordering::Relaxed);
        Self::own(memory, Duration::ZERO)
    }

    /// Takes over the ledger of an earlier process. Waits up to `patience` for its end.
    pub fn adopt(file: OwnedFd, patience: Duration) -> Result<Arc<Self>> {
        let memory = SharedMemory::open(file, WORDS).map_err(|error| fault(&error))?;
        let word = |index: usize| memory.words()[index].load(Ordering::Acquire);
        let (magic, version) = (word(header::MAGIC), word(header::VERSION));
        if (magic, version) != (MAGIC, VERSION) {
            return Err(Error::Refused(format!(
                "the ledger of the mount has version {version}, and this program reads {VERSION}"
            )));
        }
        Self::own(memory, patience)
    }

    fn own(memory: SharedMemory, patience: Duration) -> Result<Arc<Self>> {
        let fence = memory.reopen().map_err(|error| fault(&error))?;
        lock(&fence, patience)?;
        let epoch = &memory.words()[header::EPOCH];
        let this = epoch.load(Ordering::Acquire) + 1;
        epoch.store(this, Ordering::Release);
        let memory = Arc::new(memory);
        Ok(Arc::new(Self {
            next_handle: AtomicU64::new(this << 32),
            handles: Table::open(&memory, HANDLES),
            dirty: Table::open(&memory, DIRTY),
            requests: Requests::open(&memory, REQUESTS, this),
            _fence: fence,
            memory,
        }))
    }

    /// Returns a handle number that no owner of this ledger has used.
    pub fn next_handle(&self) -> u64 {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed) + 1;
        if number.trailing_zeros() >= 32 {
            // As many handles as an epoch has: the next owner must begin after them.
            self.memory.words()[header::EPOCH].fetch_max(number >> 32, Ordering::AcqRel);
        }
        number
    }

    /// Records a handle, before the kernel hears of it.
    pub fn add_handle(&self, handle: HandleRecord) -> Option<LedgerSlot> {
        let slot = self.handles.add([handle.fh, handle.ino, handle.flags]);
        self.or_overflow(slot, Overflow::Handles)
    }

    pub fn remove_handle(&self, slot: LedgerSlot) {
        self.handles.remove(slot.0);
    }

    /// Returns the handles that were recorded before.
    pub fn handles(&self) -> Vec<(LedgerSlot, HandleRecord)> {
        let found = self.handles.all().into_iter();
        found
            .map(|(slot, [fh, ino, flags])| (LedgerSlot(slot), HandleRecord { fh, ino, flags }))
            .collect()
    }

    /// Records that a file has written data that is not stored yet, before the write succeeds.
    pub fn mark_dirty(&self, ino: u64) -> Option<LedgerSlot> {
        self.or_overflow(self.dirty.add([ino]), Overflow::Dirty)
    }

    pub fn clear_dirty(&self, slot: LedgerSlot) {
        self.dirty.remove(slot.0);
    }

    /// Returns the files that are marked as dirty.
    pub fn dirty(&self) -> Vec<(LedgerSlot, u64)> {
        self.dirty.all().into_iter().map(|(slot, [ino])| (LedgerSlot(slot), ino)).collect()
    }

    /// Records a request that changes something.
    pub fn begin_request(self: &Arc<Self>, unique: u64, opcode: u32) -> Arc<RequestRecord> {
        RequestRecord::begin(self, unique, opcode)
    }

    /// Whether a request was in flight when several processes died. It may be what they died of.
    pub fn is_suspect(&self, unique: u64) -> bool {
        self.requests.is_suspect(unique)
    }

    /// Whether something of this kind did not fit since the mount began.
    pub fn overflowed(&self, what: Overflow) -> bool {
        self.memory.words()[header::OVERFLOW].load(Ordering::Acquire) & what as u64 != 0
    }

    fn or_overflow(&self, slot: Option<Slot>, what: Overflow) -> Option<LedgerSlot> {
        if slot.is_none() {
            self.memory.words()[header::OVERFLOW].fetch_or(what as u64, Ordering::AcqRel);
        }
        slot.map(LedgerSlot)
    }
}

impl AsFd for Ledger {
    /// The memory, for a keeper and for the next owner.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}

fn lock(fence: &File, patience: Duration) -> Result<()> {
    let until = Instant::now() + patience;
    loop {
        match flock(fence, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(LOCK_INTERVAL);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::Refused("another process still serves the mount".to_owned()));
            }
            Err(errno) => return Err(fault(&errno.into())),
        }
    }
}

fn fault(error: &io::Error) -> Error {
    Error::Unreachable { place: "the ledger of the mount".to_owned(), cause: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adopted(ledger: &Ledger) -> Result<Arc<Ledger>> {
        Ledger::adopt(ledger.as_fd().try_clone_to_owned().unwrap(), Duration::ZERO)
    }

    fn next(ledger: Arc<Ledger>) -> Arc<Ledger> {
        let file = ledger.as_fd().try_clone_to_owned().unwrap();
        drop(ledger);
        Ledger::adopt(file, Duration::ZERO).unwrap()
    }

    #[test]
    fn only_one_process_owns_a_ledger() {
        let ledger = Ledger::create().unwrap();
        let refused = adopted(&ledger).unwrap_err().to_string();
        assert!(refused.contains("another process"), "{refused}");
        next(ledger);
    }

    #[test]
    fn handle_numbers_are_never_used_twice() {
        let ledger = Ledger::create().unwrap();
        let first = ledger.next_handle();
        assert_eq!(ledger.next_handle(), first + 1);
        let ledger = next(ledger);
        assert!(ledger.next_handle() > first + 1);
    }

    #[test]
    fn an_epoch_that_ran_out_of_numbers_is_followed_by_another() {
        let ledger = Ledger::create().unwrap();
        ledger.next_handle.store((2 << 32) - 1, Ordering::Relaxed);
        let last = ledger.next_handle();
        assert_eq!(last, 2 << 32);
        assert!(next(ledger).next_handle() > last);
    }

    #[test]
    fn the_next_owner_finds_handles_and_dirty_files() {
        let ledger = Ledger::create().unwrap();
        let record = |n| HandleRecord { fh: n, ino: 10 * n, flags: 2 };
        let gone = ledger.add_handle(record(1)).unwrap();
        ledger.add_handle(record(2)).unwrap();
        let stored = ledger.mark_dirty(5).unwrap();
        ledger.mark_dirty(6).unwrap();
        ledger.remove_handle(gone);
        ledger.clear_dirty(stored);
        let ledger = next(ledger);
        let handles: Vec<_> = ledger.handles().into_iter().map(|(_, handle)| handle).collect();
        let dirty: Vec<_> = ledger.dirty().into_iter().map(|(_, ino)| ino).collect();
        assert_eq!((handles, dirty), (vec![record(2)], vec![6]));
        assert!(!ledger.overflowed(Overflow::Handles) && !ledger.overflowed(Overflow::Dirty));
    }

    #[test]
    fn what_does_not_fit_is_known_to_the_next_owner() {
        let ledger = Ledger::create().unwrap();
        for ino in 0..DIRTY.slots as u64 {
            assert!(ledger.mark_dirty(ino + 1).is_some());
        }
        assert!(ledger.mark_dirty(1 << 40).is_none());
        let ledger = next(ledger);
        assert!(ledger.overflowed(Overflow::Dirty) && !ledger.overflowed(Overflow::Handles));
    }

    #[test]
    fn an_unknown_version_is_refused() {
        let ledger = Ledger::create().unwrap();
        ledger.memory.words()[header::VERSION].store(VERSION + 1, Ordering::Relaxed);
        let refused = adopted(&ledger).unwrap_err().to_string();
        assert!(refused.contains(&format!("version {}", VERSION + 1)), "{refused}");
    }
}
