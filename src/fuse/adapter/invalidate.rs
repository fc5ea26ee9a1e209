//! Sends invalidations to the kernel as notifications.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::convert::to_kernel;
use crate::fuse::session::{Notification, Notifier};
use crate::meta::Ino;
use crate::vfs::KernelCache;

pub struct KernelInvalidator {
    pub notifier: Notifier,
    /// The mounted directory.
    pub root: Ino,
}

impl KernelInvalidator {
    fn send(&self, notification: Notification) {
        if !self.notifier.send(notification) {
            // The kernel's cache expires by itself.
            tracing::debug!("the queue is full or closed; a notification was dropped");
        }
    }
}

impl KernelCache for KernelInvalidator {
    fn invalidate_entry(&self, dir: Ino, name: &[u8]) {
        let dir = to_kernel(self.root, dir);
        self.send(Notification::Entry { dir, name: Bytes::copy_from_slice(name) });
    }

    fn invalidate_content(&self, ino: Ino) {
        let ino = to_kernel(self.root, ino);
        self.send(Notification::Inode { ino, offset: 0, length: 0 });
    }

    fn invalidate_attr(&self, ino: Ino) {
        let ino = to_kernel(self.root, ino);
        self.send(Notification::Inode { ino, offset: -1, length: 0 });
    }

    fn delivered(&self) -> BoxFuture<'_, ()> {
        self.notifier.delivered().boxed()
    }
}
