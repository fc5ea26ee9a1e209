//! Copy: copies a range of a file by sharing its slices.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::meta::chunk_range::{check_file_end, chunk_index, split_at_chunks};
use crate::meta::engine::{Change, Key};
use crate::meta::op::content::charge_growth::charge_growth;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::chunk::CHUNK_BITS;
use crate::meta::record::visible_slices;
use crate::meta::record::{CHUNK_SIZE, Slice, SliceSize};
use crate::meta::{Ino, MetaTxn, Operation, Plan, TxnLock};

pub struct Copy {
    pub from: Ino,
    pub from_off: u64,
    pub to: Ino,
    pub to_off: u64,
    pub size: u64,
}

/// The result of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    pub bytes: u64,
    /// The length of the target afterwards; none if nothing was copied.
    pub length: Option<u64>,
}

impl Operation for self::Copy {
    type Output = Copied;
    const NAME: &'static str = "copy_file_range";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.to)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Copied>> {
        check_file_end(self.from_off, self.size)?;
        tx.prefetch(&[Key::Attr(self.from), Key::Attr(self.to)]).await?;
        let source = tx.node(self.from).await?;
        let old = tx.node(self.to).await?;
        if !source.is_file() {
            return Err(Error::Invalid);
        }
        let size = self.size.min(source.length.saturating_sub(self.from_off));
        if size == 0 {
            return Ok(Plan::unchanged(Copied { bytes: 0, length: None }));
        }
        if !old.is_file() {
            return Err(Error::Invalid);
        }
        if old.has_flag(flag::IMMUTABLE | flag::APPEND) {
            return Err(Error::NotPermitted);
        }
        let end = check_file_end(self.to_off, size)?;
        let mut new = old.clone();
        new.length = old.length.max(end);
        new.mtime = tx.now();
        new.ctime = tx.now();

        let mut plan = Plan::new();
        charge_growth(tx, &mut plan, self.to, &old, new.length).await?;
        self.plan_target(self.fragments(tx, size).await?, &mut plan);
        plan.put_attr(self.to, &new);
        plan.log(tx, self.line(size, new.length));
        Ok(plan.with_output(Copied { bytes: size, length: Some(new.length) }))
    }
}

impl self::Copy {
    /// The slices that a read of the source range returns, with offsets from the start of the
    /// range.
    async fn fragments(&self, tx: &mut MetaTxn<'_>, size: u64) -> Result<Vec<(u64, Slice)>> {
        let range = self.from_off..self.from_off + size;
        let indexes = chunk_index(range.start)..=chunk_index(range.end - 1);
        let keys: Vec<Key> = indexes.clone().map(|index| Key::Chunk(self.from, index)).collect();
        tx.prefetch(&keys).await?;
        let mut fragments = Vec::new();
        for index in indexes {
            let records = tx.chunk(self.from, index).await?;
            fragments.extend(visible_fragments(index, &records, &range));
        }
        Ok(fragments)
    }

    /// Plans the slice records of the target and the new slice references.
    fn plan_target(&self, fragments: Vec<(u64, Slice)>, plan: &mut Plan<()>) {
        let mut chunks: BTreeMap<u32, Vec<Slice>> = BTreeMap::new();
        let mut references: BTreeMap<SliceSize, i64> = BTreeMap::new();
        for (start, fragment) in fragments {
            let target = self.to_off + start;
            let mut off = fragment.off;
            for part in split_at_chunks(target..target + u64::from(fragment.len)) {
                let record = if fragment.id.is_hole() {
                    Slice::hole(part.pos, part.len)
                } else {
                    let slice = SliceSize { id: fragment.id, size: fragment.size };
                    *references.entry(slice).or_default() += 1;
                    Slice { pos: part.pos, off, len: part.len, ..fragment }
                };
                chunks.entry(part.index).or_default().push(record);
                off = off.saturating_add(part.len);
            }
        }
        for (index, slices) in chunks {
            plan.push(Change::AppendSlices { ino: self.to, index, slices, if_present: false });
        }
        for (slice, by) in references {
            plan.push(Change::AddSliceRef { slice, by });
        }
    }

    fn line(&self, size: u64, length: u64) -> LogOp<'_> {
        let (from, to) = ((self.from, self.from_off), (self.to, self.to_off));
        LogOp::CopyFileRange { from, to, size, length }
    }
}

/// The fragments of one chunk that lie within `range` of the file, including holes up to the end of
/// the chunk.
fn visible_fragments(index: u32, records: &[Slice], range: &Range<u64>) -> Vec<(u64, Slice)> {
    let start = u64::from(index) << CHUNK_BITS;
    let chunk_end = start + CHUNK_SIZE;
    let mut fragments = Vec::new();
    let mut pos = start;
    let mut clip = |fragment: Slice, pos: u64| {
        let end = (pos + u64::from(fragment.len)).min(range.end);
        let begin = pos.max(range.start);
        if begin < end {
            let cut = u32::try_from(begin - pos).unwrap_or(u32::MAX);
            let len = u32::try_from(end - begin).unwrap_or(u32::MAX);
            let off = fragment.off.saturating_add(cut);
            fragments.push((begin - range.start, Slice { off, len, ..fragment }));
        }
    };
    for fragment in visible_slices(records) {
        clip(fragment, pos);
        pos += u64::from(fragment.len);
    }
    // The view ends with the last record, but the chunk is longer.
    let rest = u32::try_from(chunk_end.saturating_sub(pos)).unwrap_or(u32::MAX);
    clip(Slice::hole(0, rest), pos);
    fragments
}
