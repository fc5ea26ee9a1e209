//! Notices of the file system, as notifications to the kernel.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::fuse::notify::{Notification, Notifier};
use crate::meta::Ino;
use crate::vfs::KernelCache;

pub struct ToKernel(pub Notifier);

impl ToKernel {
    fn send(&self, notification: Notification) {
        if !self.0.send(notification) {
            // What the kernel keeps ends with its lifetime.
            tracing::debug!("a notification was dropped");
        }
    }
}

impl KernelCache for ToKernel {
    fn entry_gone(&self, dir: Ino, name: &[u8]) {
        self.send(Notification::Entry { dir, name: Bytes::copy_from_slice(name) });
    }

    fn content_changed(&self, ino: Ino) {
        self.send(Notification::Inode { ino, offset: 0, length: 0 });
    }

    fn attr_changed(&self, ino: Ino) {
        self.send(Notification::Inode { ino, offset: -1, length: 0 });
    }

    fn heard(&self) -> BoxFuture<'_, ()> {
        self.0.delivered().boxed()
    }
}
