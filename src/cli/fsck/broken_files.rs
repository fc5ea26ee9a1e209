//! Which files lost which bytes.

use std::ops::Range;

use super::block_check::{BadBlocks, Fault};
use crate::chunk::Layout;
use crate::meta::Ino;
use crate::meta::record::{CHUNK_SIZE, Slice, SliceSize, visible_slices};

/// Bad blocks that are named for one file.
const MAX_NAMED: usize = 100;

/// A file that refers to bad blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokenFile {
    pub path: String,
    /// The bytes of the file that cannot be read, ascending. None if later writes hide them.
    pub lost: Vec<Range<u64>>,
    /// The keys of the first bad objects, and what is wrong with each.
    pub objects: Vec<(String, Fault)>,
}

/// Counts of bad blocks, once for each record that refers to them, as the Go client counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    pub missing: u64,
    pub missing_bytes: u64,
    pub wrong_size: u64,
    pub damaged: u64,
}

impl FaultCounts {
    pub fn add(&mut self, fault: &Fault, bytes: u32) {
        match fault {
            Fault::Missing => {
                self.missing += 1;
                self.missing_bytes += u64::from(bytes);
            }
            Fault::Size(_) => self.wrong_size += 1,
            Fault::Damaged(_) => self.damaged += 1,
        }
    }

    pub fn merge(&mut self, more: Self) {
        self.missing += more.missing;
        self.missing_bytes += more.missing_bytes;
        self.wrong_size += more.wrong_size;
        self.damaged += more.damaged;
    }

    pub fn total(&self) -> u64 {
        self.missing + self.wrong_size + self.damaged
    }
}

/// Adds a chunk of a file; returns what is wrong with it.
pub fn add_chunk(
    file: &mut BrokenFile,
    index: u32,
    records: &[Slice],
    layout: Layout,
    bad: &BadBlocks,
) -> FaultCounts {
    let mut counts = FaultCounts::default();
    for record in records.iter().filter(|record| !record.id.is_hole()) {
        for block in layout.blocks(SliceSize { id: record.id, size: record.size }) {
            if let Some(fault) = bad.get(&block) {
                counts.add(fault, block.size);
                let key = layout.key(block);
                let is_named = file.objects.iter().any(|(named, _)| *named == key);
                if !is_named && file.objects.len() < MAX_NAMED {
                    file.objects.push((key, fault.clone()));
                }
            }
        }
    }
    if counts.total() > 0 {
        file.lost.extend(lost_ranges(index, records, layout, bad));
    }
    counts
}

/// The bytes of a chunk that show bad blocks.
fn lost_ranges(index: u32, records: &[Slice], layout: Layout, bad: &BadBlocks) -> Vec<Range<u64>> {
    let chunk = u64::from(index) * CHUNK_SIZE;
    let mut lost = Vec::new();
    for shown in visible_slices(records).iter().filter(|shown| !shown.id.is_hole()) {
        let slice = SliceSize { id: shown.id, size: shown.size };
        let range = shown.off..shown.off.saturating_add(shown.len);
        for part in layout.block_ranges(slice, range) {
            if bad.contains_key(&part.block) {
                let within = part.block.index * layout.block_size + part.range.start - shown.off;
                let start = chunk + u64::from(shown.pos) + u64::from(within);
                lost.push(start..start + part.range.len() as u64);
            }
        }
    }
    lost
}

/// Merges ranges and cuts them at the length of the file.
pub fn merged(mut ranges: Vec<Range<u64>>, length: u64) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges.into_iter().filter(|range| range.start < length) {
        let range = range.start..range.end.min(length);
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// How a file without a path is named.
pub fn nameless(ino: Ino) -> String {
    format!("inode:{ino}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::SliceId;

    const BLOCK: u32 = 64 << 10;
    const LAYOUT: Layout = Layout { block_size: BLOCK, hash_prefix: false };

    fn record(pos: u32, id: u64, size: u32) -> Slice {
        Slice { pos, id: SliceId(id), size, off: 0, len: size }
    }

    fn bad(id: u64, size: u32, index: u32) -> BadBlocks {
        let slice = SliceSize { id: SliceId(id), size };
        [(LAYOUT.block(slice, index), Fault::Missing)].into()
    }

    #[test]
    fn the_lost_bytes_are_those_that_show_the_block() {
        let size = 3 * BLOCK;
        let records = [record(0, 1, size), record(BLOCK + 100, 2, 50)];
        let mut file = BrokenFile::default();
        let counts = add_chunk(&mut file, 2, &records, LAYOUT, &bad(1, size, 1));
        assert_eq!((counts.missing, counts.missing_bytes), (1, BLOCK.into()));
        let start = 2 * CHUNK_SIZE + u64::from(BLOCK);
        let end = start + u64::from(BLOCK);
        let lost = merged(file.lost, u64::MAX);
        assert_eq!(lost, [start..start + 100, start + 150..end]);
        assert_eq!(file.objects[0].0, "chunks/0/0/1_1_65536");
        assert_eq!(
            merged(lost.clone(), start + 160),
            [start..start + 100, start + 150..start + 160]
        );
        assert_eq!(merged(lost, start), []);
    }

    #[test]
    fn a_bad_block_that_is_overwritten_loses_no_bytes() {
        let records = [record(0, 1, 100), record(0, 2, 100)];
        let mut file = BrokenFile::default();
        let counts = add_chunk(&mut file, 0, &records, LAYOUT, &bad(1, 100, 0));
        assert_eq!((counts.missing, file.lost.len(), file.objects.len()), (1, 0, 1));
    }

    #[test]
    fn adjacent_ranges_are_merged() {
        assert_eq!(merged(vec![10..20, 0..10, 30..40], 35), [0..20, 30..35]);
    }
}
