//! Changes to a file other than writes: truncate, fallocate, `copy_file_range` and setattr.
//!
//! Data written before is committed first, so that the change applies to it too. Each change runs
//! in its own task: a caller that goes away must not leave the length unknown.

use std::sync::Arc;

use nix::fcntl::FallocateFlags;

use super::content::Content;
use super::open_file::OpenFile;
use crate::error::{Error, Result};
use crate::meta::op::content::copy::Copied;
use crate::meta::record::Attr;
use crate::meta::{AttrSet, Caller, Ino};

impl Content {
    /// Changes the length of a file. `by_handle`: through a handle that is open for writing.
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

    /// Reserves, punches or zeroes a range, as fallocate(2) does.
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

    /// Copies a range by sharing its slices. May copy less than asked.
    pub async fn copy_range(
        self: &Arc<Self>,
        from: (Ino, u64),
        to: (Ino, u64),
        size: u64,
    ) -> Result<Copied> {
        let content = Arc::clone(self);
        self.complete(async move {
            // The whole file: data before the range may be what makes the source long enough.
            content.flush(from.0).await?;
            let change = async {
                let copied = content.meta.copy_file_range(from.0, from.1, to.0, to.1, size).await?;
                Ok((copied.length, copied))
            };
            content.change(to.0, change).await
        })
        .await
    }

    /// Changes any attributes but the length. Data written before no longer changes an mtime that
    /// is set here.
    pub async fn setattr(
        self: &Arc<Self>,
        caller: &Caller,
        ino: Ino,
        set: AttrSet,
    ) -> Result<Attr> {
        let Some(file) = self.find(ino) else {
            return self.meta.setattr(caller, ino, set).await;
        };
        let (content, caller) = (Arc::clone(self), caller.clone());
        self.complete(async move {
            let _commit_lock = file.commit_lock.lock().await;
            let version = file.length_version();
            let attr = content.meta.setattr(&caller, ino, set).await?;
            if set.mtime.is_some() {
                file.set_mtime(attr.mtime);
            }
            Ok(file.merge_attr(attr, version))
        })
        .await
    }

    /// Flushes a file, then runs `change`, which returns the new length of the file if it may
    /// differ.
    async fn change<T>(
        &self,
        ino: Ino,
        change: impl Future<Output = Result<(Option<u64>, T)>>,
    ) -> Result<T> {
        let Some(file) = self.find(ino) else { return Ok(change.await?.1) };
        file.flush().await?;
        let _commit_lock = file.commit_lock.lock().await;
        match change.await {
            Ok((length, result)) => {
                if let Some(length) = length {
                    file.record_length(length);
                }
                Ok(result)
            }
            Err(error) => {
                self.reload_length(&file, &error).await;
                Err(error)
            }
        }
    }

    /// Reads the length again: after a fault the change may have been made all the same. The caller
    /// holds the commit lock of the file.
    pub(super) async fn reload_length(&self, file: &OpenFile, error: &Error) {
        if error.is_fault()
            && let Ok(attr) = self.meta.getattr(file.ino).await
        {
            file.record_length(attr.length);
        }
    }
}
