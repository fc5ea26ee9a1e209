//! Reads at a constant distance: short streams that begin at equal steps, larger than a block.

use std::ops::Range;

use super::ReadaheadLimits;

/// Equal steps after which the next ones are fetched ahead.
const STEPS: u32 = 2;
/// The most steps fetched ahead.
const MAX_AHEAD: u32 = 8;
/// Only whole blocks are fetched ahead; a read shorter than this fraction of one is not worth it.
const WORTH: u64 = 8;

#[derive(Default)]
pub struct Strides {
    /// What the latest stream has read.
    last: Option<Range<u64>>,
    step: i128,
    /// How often the step was the same.
    repeats: u32,
    /// How long the stream before the latest was.
    length: u64,
}

impl Strides {
    /// Records that a stream begins. Returns where the next ones are expected.
    pub fn begin(&mut self, start: u64, limits: ReadaheadLimits) -> Vec<Range<u64>> {
        let Some(last) = self.last.replace(start..start) else { return Vec::new() };
        let step = i128::from(start) - i128::from(last.start);
        let len = last.end - last.start;
        self.repeats = if step == self.step { self.repeats + 1 } else { 0 };
        self.step = step;
        self.length = len;
        let is_far = step.unsigned_abs() > u128::from(limits.block);
        if self.repeats < STEPS || !is_far || len * WORTH < limits.block {
            return Vec::new();
        }
        let fitting = limits.max / len.next_multiple_of(limits.block);
        let count = (self.repeats - STEPS + 1).min(MAX_AHEAD);
        let next = (1..=i128::from(count)).take(usize::try_from(fitting).unwrap_or(usize::MAX));
        let starts = next.map_while(|n| u64::try_from(i128::from(start) + n * step).ok());
        starts.map(|start| start..start.saturating_add(len)).collect()
    }

    /// Returns how long the streams of a walk in equal steps are; 0 if there is no such walk.
    pub fn usual_length(&self) -> u64 {
        if self.repeats < STEPS { 0 } else { self.length }
    }

    /// Records how far a stream has read by now.
    pub fn extend(&mut self, stream: &Range<u64>) {
        if let Some(last) = &mut self.last
            && last.start == stream.start
        {
            last.end = stream.end;
        }
    }
}
