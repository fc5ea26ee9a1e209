//! A file as memory.

use std::ffi::c_void;
use std::fs::File;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

pub struct Mapped {
    start: *mut c_void,
    len: usize,
}

impl Mapped {
    pub fn shared(file: &File, len: usize) -> Self {
        Self::new(file, len, MapFlags::SHARED)
    }

    pub fn private(file: &File, len: usize) -> Self {
        Self::new(file, len, MapFlags::PRIVATE)
    }

    #[allow(unsafe_code, reason = "mapping has no safe form")]
    fn new(file: &File, len: usize, flags: MapFlags) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place that nothing else has; it lives as long as this value.
        let start = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, file, 0) };
        Self { start: start.unwrap(), len }
    }

    #[allow(unsafe_code, reason = "mapping has no safe form")]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for reading at this length until it is dropped. That the file may change
        // below it is what the tests are about; they look again by another call.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }

    #[allow(unsafe_code, reason = "mapping has no safe form")]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped for writing at this length until it is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.len) }
    }

    /// Writes what was changed to the file.
    #[allow(unsafe_code, reason = "mapping has no safe form")]
    pub fn sync(&self) {
        // SAFETY: the range is the one that was mapped.
        unsafe { msync(self.start, self.len, MsyncFlags::SYNC) }.unwrap();
    }
}

impl Drop for Mapped {
    #[allow(unsafe_code, reason = "mapping has no safe form")]
    fn drop(&mut self) {
        // SAFETY: nobody can hold a reference into it any more.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}
