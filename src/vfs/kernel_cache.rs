//! Invalidates what the kernel caches, without knowing the kernel.

use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::timeout;

use crate::meta::Ino;

/// The longest wait for delivery.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The kernel's cache of names, attributes and content of this mount.
pub trait KernelCache: Send + Sync {
    /// Drops a name, which was removed or refers to another node now.
    fn invalidate_entry(&self, dir: Ino, name: &[u8]);
    /// Drops the content and attributes of a file.
    fn invalidate_content(&self, ino: Ino);
    /// Drops the attributes of a node, but not its content.
    fn invalidate_attr(&self, ino: Ino);
    /// Waits until all earlier invalidations have been delivered.
    fn delivered(&self) -> BoxFuture<'_, ()>;
}

/// Forwards invalidations to the kernel; drops them until a kernel is connected.
#[derive(Default)]
pub struct Invalidator(OnceLock<Box<dyn KernelCache>>);

impl Invalidator {
    /// Connects the kernel. Only the first call has an effect.
    pub fn connect(&self, cache: Box<dyn KernelCache>) {
        let _ = self.0.set(cache);
    }

    pub fn invalidate_entry(&self, dir: Ino, name: &[u8]) {
        if let Some(cache) = self.0.get() {
            cache.invalidate_entry(dir, name);
        }
    }

    pub fn invalidate_content(&self, ino: Ino) {
        if let Some(cache) = self.0.get() {
            cache.invalidate_content(ino);
        }
    }

    pub fn invalidate_attr(&self, ino: Ino) {
        if let Some(cache) = self.0.get() {
            cache.invalidate_attr(ino);
        }
    }

    /// Waits until all earlier invalidations have been delivered, but not forever, since the kernel
    /// may itself be waiting for this process.
    pub async fn delivered(&self) {
        if let Some(cache) = self.0.get() {
            let _ = timeout(DELIVERY_TIMEOUT, cache.delivered()).await;
        }
    }
}
