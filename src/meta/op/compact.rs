//! Compact: many records of a chunk become one.

use super::delete_chunk::{Released, named, release};
use super::log;
use crate::error::Result;
use crate::meta::engine::{Change, Key};
use crate::meta::record::{Slice, SliceSize};
use crate::meta::{Ino, Lane, MetaTxn, Operation, Plan};

pub struct Compact<'a> {
    pub ino: Ino,
    pub index: u32,
    /// The chunk's first records, as they were when the new slice was made of them.
    pub origin: &'a [Slice],
    /// How many of them stay as they are.
    pub kept: usize,
    /// Stands for the rest of them.
    pub new: Slice,
    /// Whether replaced slices are kept for the days of the trash.
    pub delay: bool,
}

pub enum Compacted {
    /// Slices that lost a reference, if there was no delay; the first receipts are theirs.
    Done(Released),
    /// The records are no longer these: the new slice is of no use.
    Stale,
}

impl Operation for Compact<'_> {
    type Output = Compacted;
    const NAME: &'static str = "compact";

    fn lane(&self) -> Lane {
        // Writes append to this chunk.
        Lane::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Compacted>> {
        tx.prefetch(&[Key::Chunk(self.ino, self.index)]).await?;
        if !tx.chunk(self.ino, self.index).await?.starts_with(self.origin) {
            return Ok(Plan::answer(Compacted::Stale));
        }
        let (kept, replaced) = self.origin.split_at(self.kept);
        let id = self.new.id;

        let mut plan = Plan::new();
        let released = if self.delay {
            let slices: Vec<SliceSize> = named(replaced).collect();
            if !slices.is_empty() {
                plan.push(Change::PutDelayed { id, at: tx.now().sec, slices });
            }
            Released::new()
        } else {
            release(&mut plan, replaced)
        };
        plan.push(Change::ReplaceSlices {
            ino: self.ino,
            index: self.index,
            count: self.origin.len(),
            with: kept.iter().copied().chain([self.new]).collect(),
        });
        plan.push(Change::TrackSlice(SliceSize { id, size: self.new.size }));
        log::log(tx, &mut plan, || self.line(replaced.len()), tx.now());
        Ok(plan.with(Compacted::Done(released)))
    }
}

impl Compact<'_> {
    fn line(&self, replaced: usize) -> String {
        let (ino, index, kept) = (self.ino, self.index, self.kept);
        let Slice { pos, id, size, .. } = self.new;
        format!("COMPACTCHUNK({ino},{index},{kept},{replaced},{pos},{id},{size})")
    }
}
