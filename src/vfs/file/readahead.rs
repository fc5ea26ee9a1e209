//! Readahead: which reads of a handle are sequential, and how far to fetch ahead of them.
//!
//! Pure arithmetic; nothing is read here.

use std::ops::Range;

/// A handle may be read sequentially at two places at once.
const STREAMS: usize = 2;
/// The window shrinks if the stream has read less than this fraction of it.
const SLACK: u64 = 4;
/// A read this far behind, as a fraction of the window, still belongs to a stream: the kernel's own
/// readahead sends requests out of order.
const BACK: u64 = 8;

#[derive(Default)]
pub struct Readahead {
    streams: [Stream; STREAMS],
    reads: u64,
}

/// The bounds of readahead.
#[derive(Debug, Clone, Copy)]
pub struct ReadaheadLimits {
    pub block: u64,
    pub max: u64,
    /// Memory is short.
    pub pressed: bool,
}

#[derive(Default)]
struct Stream {
    /// Where the last read ended.
    end: u64,
    /// Bytes read in sequence.
    total: u64,
    /// How far ahead to fetch; 0 for not at all.
    window: u64,
    /// The end of what was fetched ahead.
    asked: u64,
    /// The number of the last read.
    used: u64,
}

impl Readahead {
    /// Records a read, and returns what to fetch ahead now.
    pub fn read(&mut self, range: &Range<u64>, ahead: ReadaheadLimits) -> Option<Range<u64>> {
        self.reads += 1;
        let at = self.follow(range.start, ahead.block).unwrap_or_else(|| self.begin(range.start));
        let stream = &mut self.streams[at];
        stream.used = self.reads;
        stream.total += range.end.saturating_sub(stream.end);
        stream.end = stream.end.max(range.end);
        stream.resize(range, ahead);
        if stream.window < ahead.block {
            return None;
        }
        // Up to a block boundary: so each block is fetched once, and beyond the block being read
        // there is never more than the window.
        let until = (stream.end + stream.window).next_multiple_of(ahead.block);
        let from = stream.end.max(stream.asked);
        stream.asked = stream.asked.max(until);
        (from < until).then_some(from..until)
    }

    /// Returns the stream that a read at `start` continues: the closest one before it, or else the
    /// closest one that has just passed it.
    fn follow(&self, start: u64, block: u64) -> Option<usize> {
        let used = || self.streams.iter().enumerate().filter(|(_, stream)| stream.used > 0);
        let reaches =
            |stream: &Stream| stream.end <= start && start <= stream.end + stream.window + block;
        let passed = |stream: &Stream| {
            let back = (stream.window / BACK).max(block);
            stream.end.saturating_sub(back) <= start && start < stream.end
        };
        let next = used().filter(|(_, stream)| reaches(stream)).max_by_key(|(_, s)| s.end);
        let last = || used().filter(|(_, stream)| passed(stream)).min_by_key(|(_, s)| s.end);
        next.or_else(last).map(|(at, _)| at)
    }

    /// Starts a stream in place of the least recently used one.
    fn begin(&mut self, start: u64) -> usize {
        let oldest = self.streams.iter().enumerate().min_by_key(|(_, stream)| stream.used);
        let at = oldest.map_or(0, |(at, _)| at);
        self.streams[at] = Stream { end: start, ..Stream::default() };
        at
    }
}

impl Stream {
    fn resize(
        &mut self,
        range: &Range<u64>,
        ReadaheadLimits { block, max, pressed }: ReadaheadLimits,
    ) {
        let sequential = range.start == 0 || self.total > range.end - range.start;
        if self.window == 0 && block <= max && sequential && !pressed {
            self.window = block;
        } else if self.window > 0 && (pressed || self.total < self.window / SLACK) {
            self.window /= 2;
        } else if self.window > 0 && self.window < max && self.total >= self.window {
            self.window = (self.window * 2).min(max / block * block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 100;
    const AHEAD: ReadaheadLimits = ReadaheadLimits { block: BLOCK, max: 800, pressed: false };

    /// Returns what each read of 50 bytes fetches ahead.
    fn ahead(streams: &mut Readahead, starts: &[u64]) -> Vec<Option<Range<u64>>> {
        starts.iter().map(|start| streams.read(&(*start..start + 50), AHEAD)).collect()
    }

    #[test]
    fn a_stream_from_the_start_begins_with_a_block_and_doubles() {
        let mut streams = Readahead::default();
        assert_eq!(ahead(&mut streams, &[0, 50]), [Some(50..200), Some(200..300)]);
        let mut last = 0;
        for start in (100..3000).step_by(50) {
            if let Some(range) = streams.read(&(start..start + 50), AHEAD) {
                assert!(range.end - (start + 50).next_multiple_of(BLOCK) <= AHEAD.max);
                assert!(range.start >= last, "nothing is fetched twice");
                last = range.end;
            }
        }
        assert_eq!(last, 3000 + AHEAD.max);
    }

    #[test]
    fn a_first_read_elsewhere_fetches_nothing_and_a_second_behind_it_does() {
        let mut streams = Readahead::default();
        assert_eq!(ahead(&mut streams, &[5000, 5050]), [None, Some(5100..5200)]);
    }

    #[test]
    fn random_reads_fetch_nothing() {
        let mut streams = Readahead::default();
        let starts: Vec<u64> = (1..50).map(|i| i * 7919 % 50 * 10_000).filter(|s| *s > 0).collect();
        assert!(ahead(&mut streams, &starts).iter().all(Option::is_none));
    }

    #[test]
    fn two_streams_of_one_handle_do_not_disturb_each_other() {
        let mut streams = Readahead::default();
        for at in (0..2000).step_by(50) {
            ahead(&mut streams, &[at, 50_000 + at]);
        }
        assert_eq!(streams.streams.each_ref().map(|stream| stream.window), [800, 800]);
    }

    #[test]
    fn reads_out_of_order_stay_in_their_stream() {
        let mut streams = Readahead::default();
        ahead(&mut streams, &[0, 50, 150, 100, 250, 200, 300, 350]);
        assert_eq!(streams.streams.iter().filter(|stream| stream.used > 0).count(), 1);
    }

    #[test]
    fn short_memory_halves_the_window_until_nothing_is_fetched() {
        let mut streams = Readahead::default();
        ahead(&mut streams, &(0..20).map(|i| i * 50).collect::<Vec<_>>());
        let pressed = ReadaheadLimits { pressed: true, ..AHEAD };
        let mut at = 1000;
        while streams.streams[0].window > 0 {
            let before = streams.streams[0].window;
            streams.read(&(at..at + 50), pressed);
            assert!(streams.streams[0].window < before);
            at += 50;
        }
        assert_eq!(streams.read(&(at..at + 50), pressed), None);
    }

    #[test]
    fn without_a_maximum_nothing_is_fetched() {
        let mut streams = Readahead::default();
        let none = ReadaheadLimits { max: 0, ..AHEAD };
        assert!((0..20).all(|i| streams.read(&(i * 50..i * 50 + 50), none).is_none()));
    }
}
