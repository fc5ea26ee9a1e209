//! Checking the objects of one file.

use std::collections::BTreeSet;

use super::block_check::{BadBlocks, BlockCheck};
use super::broken_files::{BrokenFile, FaultCounts, add_chunk, merged};
use super::report::Report;
use crate::chunk::BlockKey;
use crate::cli::progress::Tally;
use crate::error::Error;
use crate::meta::client::check::CheckedFile;
use crate::meta::engine::{Key, Record};
use crate::meta::record::{Slice, SliceSize};

/// Chunks of a file that are in memory at once.
const CHUNKS: usize = 64;

pub async fn check_file(
    check: &BlockCheck<'_>,
    file: CheckedFile,
    listed: &Tally,
    report: &Report,
) -> anyhow::Result<()> {
    let CheckedFile { ino, length, path } = file;
    let meta = &check.volume.meta;
    let mut broken = BrokenFile { path, ..BrokenFile::default() };
    let mut counts = FaultCounts::default();
    for indexes in meta.engine().chunk_indexes(ino, length).await?.chunks(CHUNKS) {
        let keys: Vec<Key> = indexes.iter().map(|index| Key::Chunk(ino, *index)).collect();
        let chunks: Vec<Vec<Slice>> = match meta.engine().read(&keys).await {
            Ok(records) => records.into_iter().map(slices).collect(),
            Err(error @ Error::Damaged { .. }) => {
                report.add_unreadable(ino, &broken.path, error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let mut blocks: BTreeSet<BlockKey> = BTreeSet::new();
        for record in chunks.iter().flatten().filter(|record| !record.id.is_hole()) {
            listed.add(1);
            report.add_used(1, record.size.into());
            let slice = SliceSize { id: record.id, size: record.size };
            blocks.extend(check.volume.layout.blocks(slice));
        }
        let mut bad = BadBlocks::new();
        check.check(blocks.into_iter(), true, &mut bad).await?;
        for (index, records) in indexes.iter().zip(&chunks) {
            let more = add_chunk(&mut broken, *index, records, check.volume.layout, &bad);
            counts.merge(more);
        }
    }
    if counts.total() > 0 {
        broken.lost = merged(std::mem::take(&mut broken.lost), length);
        report.add_broken(ino, broken, counts)?;
    }
    Ok(())
}

fn slices(record: Record) -> Vec<Slice> {
    match record {
        Record::Chunk(slices) => slices,
        _ => Vec::new(),
    }
}

impl FaultCounts {
    pub fn merge(&mut self, more: Self) {
        self.missing += more.missing;
        self.missing_bytes += more.missing_bytes;
        self.wrong_size += more.wrong_size;
        self.damaged += more.damaged;
    }
}
