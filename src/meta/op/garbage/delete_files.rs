//! Delete files: deletes the data of many small removed files in one commit: their chunks, the
//! slice references of these, and the records that list the files for deletion.

use crate::error::Result;
use crate::meta::engine::{Change, Key};
use crate::meta::op::garbage::delete_chunk::{Released, release};
use crate::meta::record::SliceSize;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Ino, MetaTxn, Operation, Plan};

/// A removed file and its chunks.
#[derive(Debug, Clone)]
pub struct DeletedFileChunks {
    pub ino: Ino,
    /// The length at removal; part of the record's key.
    pub length: u64,
    pub chunks: Vec<u32>,
}

pub struct DeleteFiles<'a> {
    pub files: &'a [DeletedFileChunks],
}

impl Operation for DeleteFiles<'_> {
    /// As in [`super::delete_chunk::DeleteChunk`].
    type Output = Released;
    const NAME: &'static str = "delete files";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Released>> {
        let mut keys: Vec<Key> = self.files.iter().map(|file| Key::Attr(file.ino)).collect();
        for file in self.files {
            keys.extend(file.chunks.iter().map(|index| Key::Chunk(file.ino, *index)));
        }
        tx.prefetch(&keys).await?;
        let (mut slices, mut chunks, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for file in self.files {
            // A file that exists again keeps its data.
            if tx.attr(file.ino).await?.is_some() {
                continue;
            }
            for index in &file.chunks {
                let records = tx.chunk(file.ino, *index).await?;
                if records.is_empty() {
                    continue;
                }
                let named = records.iter().filter(|record| !record.id.is_hole());
                slices.extend(named.map(|record| SliceSize { id: record.id, size: record.size }));
                chunks.push((file.ino, *index));
            }
            done.push(Change::RemoveDeletedFile { ino: file.ino, length: file.length });
        }
        let mut plan = Plan::new();
        let released = release(&mut plan, slices);
        for (ino, index) in chunks {
            plan.push(Change::RemoveChunk { ino, index });
            plan.log(tx, LogOp::DeleteChunk { ino, index });
        }
        plan.changes.extend(done);
        Ok(plan.with_output(released))
    }
}
