//! Read: the slice records of a chunk.

use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::record::{Attr, Slice};
use crate::meta::{Ino, MetaTxn, Operation, Plan};

pub struct Read {
    pub ino: Ino,
    pub index: u32,
}

/// A chunk as stored, and the attr of its file.
pub struct Chunk {
    /// In the order of writing; empty if the chunk is all zeros.
    pub records: Vec<Slice>,
    /// None if the file is removed and its data is not deleted yet.
    pub attr: Option<Attr>,
}

impl Operation for Read {
    type Output = Chunk;
    const NAME: &'static str = "read";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Chunk>> {
        let (node, chunk) = (Key::Attr(self.ino), Key::Chunk(self.ino, self.index));
        tx.prefetch(&[node, chunk]).await?;
        let records = tx.chunk(self.ino, self.index).await?;
        let attr = tx.attr(self.ino).await?;
        // Only a regular file has holes; other nodes have no content at all.
        if records.is_empty() && !attr.as_ref().ok_or(Error::NotFound)?.is_file() {
            return Err(Error::NotPermitted);
        }
        Ok(Plan::unchanged(Chunk { records, attr }))
    }
}
