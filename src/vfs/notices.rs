//! Telling the kernel what it must not keep any longer.
//!
//! Who changes something past the kernel says so here; how it reaches the kernel is the adapter's
//! matter.

use std::sync::OnceLock;

use crate::meta::Ino;

/// The caches that the kernel keeps of a mount. None of the calls waits.
pub trait KernelCache: Send + Sync {
    /// The name does not lead where it led, or nowhere.
    fn entry_gone(&self, dir: Ino, name: &[u8]);
    /// Pages of the file are out of date, and its attr with them.
    fn content_changed(&self, ino: Ino);
    fn attr_changed(&self, ino: Ino);
}

/// Notices to the kernel; silent until there is one.
#[derive(Default)]
pub struct Notices(OnceLock<Box<dyn KernelCache>>);

impl Notices {
    /// From now on notices reach this kernel. Only the first call counts.
    pub fn set(&self, kernel: Box<dyn KernelCache>) {
        let _ = self.0.set(kernel);
    }

    pub fn entry_gone(&self, dir: Ino, name: &[u8]) {
        if let Some(kernel) = self.0.get() {
            kernel.entry_gone(dir, name);
        }
    }

    pub fn content_changed(&self, ino: Ino) {
        if let Some(kernel) = self.0.get() {
            kernel.content_changed(ino);
        }
    }

    pub fn attr_changed(&self, ino: Ino) {
        if let Some(kernel) = self.0.get() {
            kernel.attr_changed(ino);
        }
    }
}
