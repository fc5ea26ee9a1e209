//! Memory in a file without a name, shared by the processes that hold its descriptor.
//!
//! It is seen only as atomic words, so no two processes or threads can race on it in a way that
//! the language forbids.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const WORD: usize = size_of::<AtomicU64>();

/// A mapped memfd of a fixed size.
pub struct SharedMemory {
    file: OwnedFd,
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping is owned, stays where it is until the drop, and is only accessed atomically.
#[allow(unsafe_code, reason = "a raw pointer makes the type thread-bound by default")]
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "a raw pointer makes the type thread-bound by default")]
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates memory of this many words, all zero. Pages take memory once they are written.
    pub fn create(name: &str, words: usize) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, (words * WORD) as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(file, words)
    }

    /// Maps memory that another process created with this size.
    pub fn open(file: OwnedFd, words: usize) -> io::Result<Self> {
        let size = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        // Without the seal, a smaller file would turn an access into a signal.
        let is_sealed = fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        if size != (words * WORD) as u64 || !is_sealed {
            return Err(io::Error::other(format!("{size} bytes, sealed: {is_sealed}")));
        }
        Self::map(file, words)
    }

    #[allow(unsafe_code, reason = "mapping memory")]
    fn map(file: OwnedFd, words: usize) -> io::Result<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), words * WORD, prot, flags, &file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { file, base, words })
    }

    #[allow(unsafe_code, reason = "reading mapped memory")]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many words, is page-aligned, lives as long as `self`, and
        // the seals keep the file from shrinking. Every bit pattern is a valid word.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    /// Where a word lies, for memory that others write as bytes.
    pub fn pointer(&self, word: usize) -> *mut u8 {
        debug_assert!(word < self.words);
        self.base.as_ptr().wrapping_add(word).cast()
    }

    /// Reads two words without taking memory for them, as looking at the mapping would.
    pub fn read_words(&self, word: usize) -> io::Result<[u64; 2]> {
        let mut words = [[0; WORD]; 2];
        let length = rustix::io::pread(&self.file, words.as_flattened_mut(), (word * WORD) as u64)?;
        if length != 2 * WORD {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(words.map(u64::from_ne_bytes))
    }

    /// Opens the file once more: a lock on it is released when this process ends, although others
    /// still hold the memory.
    pub fn reopen(&self) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        File::options().read(true).write(true).open(path)
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    #[allow(unsafe_code, reason = "unmapping memory")]
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and no reference to it outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.words * WORD) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn another_mapping_sees_what_was_stored() {
        let one = SharedMemory::create("test", 1024).unwrap();
        one.words()[7].store(42, Ordering::Relaxed);
        let other = SharedMemory::open(one.as_fd().try_clone_to_owned().unwrap(), 1024).unwrap();
        drop(one);
        assert_eq!(other.words()[7].load(Ordering::Relaxed), 42);
        assert_eq!(other.words()[8].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn memory_of_another_size_or_without_seals_is_refused() {
        let memory = SharedMemory::create("test", 1024).unwrap();
        let file = || memory.as_fd().try_clone_to_owned().unwrap();
        assert!(SharedMemory::open(file(), 512).is_err());
        assert!(SharedMemory::open(file(), 2048).is_err());
        let unsealed = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 8192).unwrap();
        assert!(SharedMemory::open(unsealed, 1024).is_err());
    }
}
