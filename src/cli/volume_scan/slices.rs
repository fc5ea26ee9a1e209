//! Collecting the slices that metadata refers to.

use std::collections::HashSet;

use anyhow::bail;

use super::ScannedVolume;
use super::passes::Pass;
use super::slice_table::{Full, SliceTable, kind};
use crate::cli::progress::Tally;
use crate::meta::client::Progress;
use crate::meta::engine::{Cursor, StoredChunk};
use crate::meta::record::SliceSize;
use crate::meta::{Ino, Meta};

/// Chunks and lists of one request.
pub const PAGE: usize = 10_000;
/// Removed files that are listed at most: they are few, since their data is deleted at once.
const MAX_DELETED: usize = 1 << 24;
/// Slices in memory at most: 512 MiB.
pub const MAX_SLICES: usize = 32 << 20;

/// More passes would take too long.
const MAX_PASSES: u64 = 1 << 16;

/// The slices of a pass.
pub struct Collected {
    pub table: SliceTable,
    /// Records that refer to a slice, and the sizes of their slices.
    pub records: u64,
    pub bytes: u64,
    /// Sizes of the slices without references.
    pub dead_bytes: u64,
}

/// Collects the slices of a volume in as many passes as memory requires.
pub struct Collector<'a> {
    pub volume: &'a ScannedVolume,
    pub progress: &'a Progress,
    /// Files whose slices are left out.
    pub skipped: &'a HashSet<Ino>,
    /// Slices without references.
    pub dead: &'a [SliceSize],
    pub max_slices: usize,
    pub listed: &'a Tally,
    pub skipped_slices: Option<&'a Tally>,
}

impl<'a> Collector<'a> {
    /// The passes over the volume, as many as memory requires.
    pub fn passes(&'a self) -> Passes<'a> {
        Passes { collector: self, count: 1, index: 0 }
    }

    /// The slices of one pass; none if they do not fit.
    async fn collect(&self, pass: Pass) -> anyhow::Result<Option<Collected>> {
        let meta = &self.volume.meta;
        // With some room, so that the other passes fit if the first does.
        let most = if pass.is_first() { self.max_slices / 10 * 9 } else { self.max_slices };
        let mut collected =
            Collected { table: SliceTable::new(most), records: 0, bytes: 0, dead_bytes: 0 };
        let dead = self.dead.iter().filter(|slice| pass.takes(slice.id.0));
        for slice in dead {
            if collected.add(*slice, kind::DEAD) == Err(Full) {
                return Ok(None);
            }
        }
        let mut cursor = Cursor::Start;
        while cursor != Cursor::End {
            self.progress.check()?;
            let page = meta.engine().scan_chunks(&cursor, PAGE).await?;
            for chunk in &page.records {
                let slices = named(chunk).filter(|slice| pass.takes(slice.id.0));
                if self.skipped.contains(&chunk.ino) {
                    if let Some(tally) = self.skipped_slices {
                        tally.add(slices.count() as u64);
                    }
                    continue;
                }
                for slice in slices {
                    self.listed.add(1);
                    if collected.add(slice, kind::USED) == Err(Full) {
                        return Ok(None);
                    }
                }
            }
            cursor = page.next;
        }
        if self.volume.setting.trash_days > 0 && !self.add_delayed(pass, &mut collected).await? {
            return Ok(None);
        }
        collected.table.sort();
        Ok(Some(collected))
    }

    /// Returns false if they do not fit.
    async fn add_delayed(&self, pass: Pass, collected: &mut Collected) -> anyhow::Result<bool> {
        let mut cursor = Cursor::Start;
        while cursor != Cursor::End {
            self.progress.check()?;
            let page = self.volume.meta.engine().scan_delayed(&cursor, PAGE).await?;
            let slices = page.records.iter().flat_map(|list| &list.slices);
            for slice in slices.filter(|slice| pass.takes(slice.id.0)) {
                self.listed.add(1);
                if collected.add(*slice, kind::DELAYED) == Err(Full) {
                    return Ok(false);
                }
            }
            cursor = page.next;
        }
        Ok(true)
    }
}

/// The passes over a volume.
pub struct Passes<'a> {
    collector: &'a Collector<'a>,
    count: u64,
    index: u64,
}

impl Passes<'_> {
    /// The next pass with its slices; none after the last. If the slices of the first pass do not
    /// fit, there are more passes.
    pub async fn next(&mut self) -> anyhow::Result<Option<(Pass, Collected)>> {
        while let Some(pass) = Pass::new(self.count, self.index) {
            match self.collector.collect(pass).await? {
                Some(collected) => {
                    self.index += 1;
                    return Ok(Some((pass, collected)));
                }
                None if pass.is_first() && self.count < MAX_PASSES => {
                    self.count *= 2;
                    self.collector.listed.reset();
                }
                None => bail!("the slices of the volume do not fit into memory, or it grew"),
            }
        }
        Ok(None)
    }
}

impl Collected {
    /// Slices that a file or the trash refers to.
    pub fn live(&self) -> u64 {
        let kinds = kind::USED | kind::DELAYED;
        self.table.iter().filter(|entry| entry.is(kinds)).count() as u64
    }

    fn add(&mut self, slice: SliceSize, kind: u8) -> Result<(), Full> {
        if kind == kind::DEAD {
            self.dead_bytes += u64::from(slice.size);
        } else {
            self.records += 1;
            self.bytes += u64::from(slice.size);
        }
        self.table.add(slice, kind)
    }
}

/// The slices that a chunk refers to, without holes.
pub fn named(chunk: &StoredChunk) -> impl Iterator<Item = SliceSize> {
    let records = chunk.slices.iter().flatten();
    records
        .filter(|record| !record.id.is_hole())
        .map(|record| SliceSize { id: record.id, size: record.size })
}

/// The removed files whose data is not deleted yet.
pub async fn removed_files(meta: &Meta) -> anyhow::Result<HashSet<Ino>> {
    let files = meta.engine().deleted_files(i64::MAX, MAX_DELETED).await?;
    Ok(files.into_iter().map(|file| file.ino).collect())
}
