//! Notices of the file system, as notifications to the kernel.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::numbers::to_kernel;
use crate::fuse::notify::{Notification, Notifier};
use crate::meta::Ino;
use crate::vfs::KernelCache;

pub struct ToKernel {
    pub notifier: Notifier,
    /// The directory that is mounted.
    pub root: Ino,
}

impl ToKernel {
    fn send(&self, notification: Notification) {
        if !self.notifier.send(notification) {
            // What the kernel keeps ends with its lifetime.
            tracing::debug!("a notification was dropped");
        }
    }
}

impl KernelCache for ToKernel {
    fn entry_gone(&self, dir: Ino, name: &[u8]) {
        let dir = to_kernel(self.root, dir);
        self.send(Notification::Entry { dir, name: Bytes::copy_from_slice(name) });
    }

    fn content_changed(&self, ino: Ino) {
        let ino = to_kernel(self.root, ino);
        self.send(Notification::Inode { ino, offset: 0, length: 0 });
    }

    fn attr_changed(&self, ino: Ino) {
        let ino = to_kernel(self.root, ino);
        self.send(Notification::Inode { ino, offset: -1, length: 0 });
    }

    fn heard(&self) -> BoxFuture<'_, ()> {
        self.notifier.delivered().boxed()
    }
}
