//! Telling the kernel what it must not keep, without knowing the kernel.

use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::timeout;

use crate::meta::Ino;

/// How long a notice is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whoever keeps names, attributes and content of this mount.
pub trait KernelCache: Send + Sync {
    /// The name leads elsewhere or nowhere now.
    fn entry_gone(&self, dir: Ino, name: &[u8]);
    /// What is kept of the file's content, and its attributes, are not true any more.
    fn content_changed(&self, ino: Ino);
    /// The attributes are not true any more; the content is.
    fn attr_changed(&self, ino: Ino);
    /// Done once all that was said before has been heard.
    fn heard(&self) -> BoxFuture<'_, ()>;
}

/// Where notices go; nowhere until a kernel is there to hear them.
#[derive(Default)]
pub struct Notices(OnceLock<Box<dyn KernelCache>>);

impl Notices {
    /// Only the first call counts.
    pub fn go_to(&self, cache: Box<dyn KernelCache>) {
        let _ = self.0.set(cache);
    }

    pub fn entry_gone(&self, dir: Ino, name: &[u8]) {
        if let Some(cache) = self.0.get() {
            cache.entry_gone(dir, name);
        }
    }

    pub fn content_changed(&self, ino: Ino) {
        if let Some(cache) = self.0.get() {
            cache.content_changed(ino);
        }
    }

    pub fn attr_changed(&self, ino: Ino) {
        if let Some(cache) = self.0.get() {
            cache.attr_changed(ino);
        }
    }

    /// Waits until all that was said before has been heard; but not for ever, since the kernel may
    /// be waiting for something else.
    pub async fn heard(&self) {
        if let Some(cache) = self.0.get() {
            let _ = timeout(PATIENCE, cache.heard()).await;
        }
    }
}
