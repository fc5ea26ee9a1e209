//! Readahead: which reads of a handle are sequential, and how far to fetch ahead of them.
//!
//! Pure arithmetic; nothing is read here.

mod edge;
mod stride;

use std::ops::Range;

use edge::Edge;
use stride::Strides;

/// A handle may be read sequentially at this many places at once: loaders share a descriptor
/// between their threads.
const STREAMS: usize = 16;
/// The kernel's own readahead sends requests out of order, as far apart as this.
const KERNEL_READAHEAD: u64 = 1 << 20;
/// Steps down after which a stream counts as read backward.
const BACKWARD_STEPS: u32 = 3;

/// The sequential streams of one handle.
#[derive(Default)]
pub struct Readahead {
    streams: Vec<Stream>,
    strides: Strides,
    reads: u64,
    created: u64,
}

/// The bounds of readahead at this moment.
#[derive(Debug, Clone, Copy)]
pub struct ReadaheadLimits {
    pub block: u64,
    /// The most bytes ahead of a stream.
    pub max: u64,
    /// Where other streams ended up: new ones grow to half of it at once.
    pub usual: u64,
}

/// A read, as readahead sees it.
#[derive(Debug, Clone)]
pub struct ReadEvent {
    pub range: Range<u64>,
    /// The bytes were not in memory.
    pub waited: bool,
    /// Nor were they on their way.
    pub missing: bool,
}

/// What to fetch ahead of a stream, in this order.
#[derive(Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Where the stream is in the list of streams, and which of all streams of the handle it is. A
    /// walk in equal steps is one stream, in a place of its own.
    pub slot: usize,
    pub stream: u64,
    pub ranges: Vec<Range<u64>>,
    /// The window of the stream, if it has read several times as much.
    pub settled: Option<u64>,
}

struct Stream {
    number: u64,
    /// What was read lies between these.
    low: u64,
    end: u64,
    /// Number of reads.
    count: u64,
    /// Number of reads that began before all others.
    steps_down: u32,
    forward: Edge,
    backward: Edge,
    /// The number of the last read.
    used: u64,
}

impl Readahead {
    /// Records a read, and returns what to fetch ahead now.
    pub fn read(&mut self, read: &ReadEvent, limits: ReadaheadLimits) -> Ahead {
        self.reads += 1;
        let (slot, begins) = match self.follow(read.range.start, limits.block) {
            Some(slot) => (slot, false),
            None => (self.begin(read.range.start), true),
        };
        let stream = &mut self.streams[slot];
        stream.used = self.reads;
        if read.missing {
            // What was fetched ahead was dropped for want of memory.
            stream.refused(&read.range);
        }
        // In a walk in equal steps, a stream that is no longer than the last one ends like it.
        let least = self.strides.usual_length().clamp(limits.block / 2, limits.block);
        let ranges = stream.read(read, limits, least);
        let ahead =
            Ahead { slot, stream: stream.number, ranges, settled: stream.forward.settled(limits) };
        let next = if begins { self.strides.begin(read.range.start, limits) } else { Vec::new() };
        self.strides.extend(&(stream.low..stream.end));
        if next.is_empty() {
            return ahead;
        }
        let ranges = ahead.ranges.into_iter().chain(next).collect();
        Ahead { slot: STREAMS, stream: 0, ranges, settled: None }
    }

    /// Records that a range was not fetched for a stream, nor what comes after it: it is asked for
    /// again with the next read.
    pub fn refused(&mut self, stream: u64, range: &Range<u64>) {
        if let Some(stream) = self.streams.iter_mut().find(|one| one.number == stream) {
            stream.refused(range);
        }
    }

    /// Returns the stream that a read at `start` continues: the closest one before it, or else the
    /// closest one that has just passed it.
    fn follow(&self, start: u64, block: u64) -> Option<usize> {
        let all = || self.streams.iter().enumerate();
        let near = |stream: &Stream| block.max(stream.forward.window().min(KERNEL_READAHEAD));
        let reaches = |stream: &Stream| stream.end <= start && start <= stream.end + near(stream);
        let passed = |stream: &Stream| {
            let near = near(stream);
            let is_backward = stream.steps_down >= BACKWARD_STEPS;
            let below = start < stream.low && stream.low <= start + near;
            let above_low = is_backward && stream.low <= start && start < stream.low + 2 * near;
            let before_end =
                stream.low <= start && start < stream.end && stream.end <= start + 2 * near;
            below || above_low || before_end
        };
        let next = all().filter(|(_, stream)| reaches(stream)).max_by_key(|(_, s)| s.end);
        let last = || all().filter(|(_, stream)| passed(stream)).min_by_key(|(_, s)| s.end);
        next.or_else(last).map(|(slot, _)| slot)
    }

    /// Starts a stream, in place of the least recently used one if there are too many.
    fn begin(&mut self, start: u64) -> usize {
        self.created += 1;
        let stream = Stream {
            number: self.created,
            low: start,
            end: start,
            count: 0,
            steps_down: 0,
            forward: Edge::new(start),
            backward: Edge::new(start),
            used: 0,
        };
        if self.streams.len() < STREAMS {
            self.streams.push(stream);
            return self.streams.len() - 1;
        }
        let oldest = self.streams.iter().enumerate().min_by_key(|(_, stream)| stream.used);
        let slot = oldest.map_or(0, |(slot, _)| slot);
        self.streams[slot] = stream;
        slot
    }
}

impl Stream {
    /// Records a read of this stream, and returns what to fetch ahead at either end. One that does
    /// not begin at the start of the file must have read more than `least` bytes for that.
    fn read(
        &mut self,
        ReadEvent { range, waited, .. }: &ReadEvent,
        limits: ReadaheadLimits,
        least: u64,
    ) -> Vec<Range<u64>> {
        self.count += 1;
        if range.start < self.low {
            self.steps_down += 1;
            let advanced = self.low - range.start;
            self.low = range.start;
            self.backward.advance(advanced, *waited, limits);
        }
        if range.end > self.end {
            let advanced = (range.end - self.end).min(range.end - range.start);
            self.end = range.end;
            self.forward.advance(advanced, *waited, limits);
        }
        let read = self.forward.total();
        if range.start == 0 || (self.count > 1 && read > least) {
            self.forward.open(limits);
        }
        if self.steps_down >= BACKWARD_STEPS && self.low > 0 {
            self.backward.open(limits);
        }
        let ahead = self.forward.ahead(self.end, limits);
        ahead.into_iter().chain(self.backward.behind(self.low, limits)).collect()
    }

    fn refused(&mut self, range: &Range<u64>) {
        if range.start >= self.low {
            self.forward.refused_from(range.start);
        } else {
            self.backward.refused_below(range.end);
        }
    }
}

#[cfg(test)]
mod tests;
