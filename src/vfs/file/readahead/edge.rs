//! One end of a stream: how far beyond it to fetch.
//!
//! The window begins with a block and doubles while the reader waits, so it finds out how much the
//! store needs in flight. It shrinks slowly while the reader does not wait.

use std::ops::Range;

use super::ReadaheadLimits;

/// A stream that has read this many windows has found the size that it needs.
const SETTLED: u64 = 2;

pub struct Edge {
    /// How far to fetch; 0 for not at all.
    window: u64,
    /// Up to where blocks were asked for.
    asked: u64,
    /// Bytes read in sequence.
    total: u64,
    /// Bytes read since the window was last resized.
    since_resize: u64,
    /// Whether the reader has waited meanwhile.
    waited: bool,
}

impl Edge {
    pub fn new(start: u64) -> Self {
        Self { window: 0, asked: start, total: 0, since_resize: 0, waited: false }
    }

    /// Returns the bytes read in sequence.
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn window(&self) -> u64 {
        self.window
    }

    /// Returns the window, if several times as much was read.
    pub fn settled(&self, limits: ReadaheadLimits) -> Option<u64> {
        let window = self.granted(limits)?;
        (self.total >= SETTLED * window).then_some(window)
    }

    /// Begins to fetch ahead.
    pub fn open(&mut self, ReadaheadLimits { block, max, .. }: ReadaheadLimits) {
        if self.window == 0 && block <= max {
            self.window = block;
            self.since_resize = 0;
        }
    }

    /// Records that the stream has moved on by some bytes.
    pub fn advance(&mut self, bytes: u64, waited: bool, limits: ReadaheadLimits) {
        self.total += bytes;
        self.since_resize += bytes;
        self.waited |= waited;
        if self.window > 0 {
            self.resize(limits);
        }
    }

    fn resize(&mut self, ReadaheadLimits { block, max, usual }: ReadaheadLimits) {
        let most = max / block * block;
        if self.waited && self.since_resize >= self.window / 2 {
            let known = if self.total >= block { usual / 2 / block * block } else { 0 };
            self.window = (self.window * 2).max(known).min(most).max(self.window);
        } else if !self.waited && self.since_resize >= self.window && self.window > 2 * block {
            self.window -= block;
        } else {
            return;
        }
        self.since_resize = 0;
        self.waited = false;
    }

    /// Returns what to fetch beyond `end`. Up to a block boundary: so each block is fetched once,
    /// and beyond the block being read there is never more than the window.
    pub fn ahead(&mut self, end: u64, limits: ReadaheadLimits) -> Option<Range<u64>> {
        let window = self.granted(limits)?;
        let until = (end + window).next_multiple_of(limits.block);
        let from = end.max(self.asked);
        self.asked = self.asked.max(until);
        (from < until).then_some(from..until)
    }

    /// Returns what to fetch before `low`, from the highest block to the lowest.
    pub fn behind(&mut self, low: u64, limits: ReadaheadLimits) -> Vec<Range<u64>> {
        let Some(window) = self.granted(limits) else { return Vec::new() };
        let block = limits.block;
        let until = low.saturating_sub(window) / block * block;
        let from = low.min(self.asked);
        self.asked = self.asked.min(until);
        let blocks = (0..from.saturating_sub(until).div_ceil(block)).rev();
        let starts = blocks.map(|index| until + index * block);
        starts.map(|start| start..(start + block).min(from)).collect()
    }

    /// What was asked for from `at` on was not fetched.
    pub fn refused_from(&mut self, at: u64) {
        self.asked = self.asked.min(at);
    }

    /// What was asked for before `end` was not fetched.
    pub fn refused_below(&mut self, end: u64) {
        self.asked = self.asked.max(end);
    }

    fn granted(&self, ReadaheadLimits { block, max, .. }: ReadaheadLimits) -> Option<u64> {
        let window = self.window.min(max);
        (window >= block).then_some(window)
    }
}
