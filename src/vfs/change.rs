//! Changes of a file that are not writes: its length, holes in it, ranges shared with another file,
//! its times.
//!
//! What was written before is committed first, so that it is changed like everything else. Each
//! runs in a task of its own: a caller that goes away must not leave the length unknown.

use std::sync::Arc;

use nix::fcntl::FallocateFlags;

use super::content::Content;
use super::file::File;
use crate::error::{Error, Result};
use crate::meta::op::content::copy::Copied;
use crate::meta::record::Attr;
use crate::meta::{AttrSet, Caller, Ino};

impl Content {
    /// Changes the length of a file; `by_handle` through a handle that is open for writing.
    pub async fn truncate(
        self: &Arc<Self>,
        caller: &Caller,
        ino: Ino,
        length: u64,
        by_handle: bool,
    ) -> Result<Attr> {
        let (content, caller) = (Arc::clone(self), caller.clone());
        self.complete(async move {
            let meta = &content.meta;
            let change = async {
                let attr = if by_handle {
                    meta.truncate_open(&caller, ino, length).await?
                } else {
                    meta.truncate(&caller, ino, length).await?
                };
                Ok((Some(attr.length), attr))
            };
            content.change(ino, change).await
        })
        .await
    }

    /// Reserves, punches or zeroes a range.
    pub async fn fallocate(
        self: &Arc<Self>,
        caller: &Caller,
        ino: Ino,
        mode: FallocateFlags,
        off: u64,
        size: u64,
    ) -> Result<Attr> {
        let (content, caller) = (Arc::clone(self), caller.clone());
        self.complete(async move {
            let change = async {
                let attr = content.meta.fallocate(&caller, ino, mode, off, size).await?;
                Ok((Some(attr.length), attr))
            };
            content.change(ino, change).await
        })
        .await
    }

    /// Copies a range by sharing its slices; may copy less than asked.
    pub async fn copy_range(
        self: &Arc<Self>,
        from: (Ino, u64),
        to: (Ino, u64),
        size: u64,
    ) -> Result<Copied> {
        let content = Arc::clone(self);
        self.complete(async move {
            // All of it: what lies before the range may be what makes the source long enough.
            content.flush(from.0).await?;
            let change = async {
                let copied = content.meta.copy_file_range(from.0, from.1, to.0, to.1, size).await?;
                Ok((copied.length, copied))
            };
            content.change(to.0, change).await
        })
        .await
    }

    /// Changes anything but the length. A time of change set here is not changed any more by what
    /// was written before.
    pub async fn setattr(
        self: &Arc<Self>,
        caller: &Caller,
        ino: Ino,
        set: AttrSet,
    ) -> Result<Attr> {
        let Some(file) = self.known(ino) else {
            return self.meta.setattr(caller, ino, set).await;
        };
        let (content, caller) = (Arc::clone(self), caller.clone());
        self.complete(async move {
            let _turn = file.turn.lock().await;
            let mark = file.mark();
            let attr = content.meta.setattr(&caller, ino, set).await?;
            if set.mtime.is_some() {
                file.set_mtime(attr.mtime);
            }
            Ok(file.saw(attr, mark))
        })
        .await
    }

    /// Flushes a file, then does something to it that may leave it with another length.
    async fn change<T>(
        &self,
        ino: Ino,
        change: impl Future<Output = Result<(Option<u64>, T)>>,
    ) -> Result<T> {
        let Some(file) = self.known(ino) else { return Ok(change.await?.1) };
        file.flush().await?;
        let _turn = file.turn.lock().await;
        match change.await {
            Ok((length, answer)) => {
                if let Some(length) = length {
                    file.resized(length);
                }
                Ok(answer)
            }
            Err(error) => {
                self.look_again(&file, &error).await;
                Err(error)
            }
        }
    }

    /// After a fault the change may have been made all the same. The caller has the file's turn.
    pub(super) async fn look_again(&self, file: &File, error: &Error) {
        if error.is_fault()
            && let Ok(attr) = self.meta.getattr(file.ino).await
        {
            file.resized(attr.length);
        }
    }
}
