//! Until the data side is merged: its two entry points that bookkeeping calls.

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::record::SliceSize;
use crate::meta::{Ino, Sid};

impl Meta {
    /// The records of deleted files and dead slices are stored, so the hourly jobs find them.
    pub(super) fn collect(&self, _deleted: Vec<(Ino, u64)>, _dead: Vec<SliceSize>) {}

    pub(super) async fn drop_sustained(&self, _sid: Sid, _ino: Ino) -> Result<()> {
        Err(Error::NotSupported)
    }
}
