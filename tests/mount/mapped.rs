//! A memory-mapped file.

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
        // SAFETY: the kernel chooses an unused range, which stays mapped as long as this value
        // lives.
        let start = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, file, 0) };
        Self { start: start.unwrap(), len }
    }

    #[allow(unsafe_code, reason = "mapping has no safe form")]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for reading at this length until it is dropped. The file may change below
        // it, which is what the tests are about; they read it again by another call.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }

    #[allow(unsafe_code, reason = "mapping has no safe form")]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped for writing at this length until it is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.len) }
    }

    /// Writes changes to the file.
    #[allow(unsafe_code, reason = "mapping has no safe form")]
    pub fn sync(&self) {
        // SAFETY: the range is the mapped one.
        unsafe { msync(self.start, self.len, MsyncFlags::SYNC) }.unwrap();
    }
}

impl Drop for Mapped {
    #[allow(unsafe_code, reason = "mapping has no safe form")]
    fn drop(&mut self) {
        // SAFETY: no reference into it can exist any more.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}
