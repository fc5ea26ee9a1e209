//! Sequential readers of one volume: which of them are active, and how much each may fetch ahead.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::chunk::{SliceRange, Store};
use crate::sync::Mutex;

/// A stream that has not read for this long counts as idle: it has no share, and others may take
/// what was fetched for it.
pub const IDLE: Duration = Duration::from_secs(2);
/// How often the active streams are counted.
const COUNT_INTERVAL: Duration = Duration::from_millis(100);

/// All streams of one volume.
pub struct Streams {
    registry: Mutex<Registry>,
}

struct Registry {
    streams: Vec<Weak<StreamState>>,
    active: usize,
    counted: Instant,
}

/// One sequential reader. Dropping it ends the stream: fetches for it that have not begun are
/// cancelled.
pub struct ReadStream(Arc<StreamState>);

/// What is known of a stream; outlives it where blocks were fetched for it.
pub struct StreamState {
    created: Instant,
    /// Milliseconds from its creation to its last read.
    last_read: AtomicU64,
    ended: CancellationToken,
}

impl Default for Streams {
    fn default() -> Self {
        let registry = Registry { streams: Vec::new(), active: 0, counted: Instant::now() };
        Self { registry: Mutex::new(registry) }
    }
}

impl Streams {
    pub fn open(&self) -> ReadStream {
        let state = Arc::new(StreamState {
            created: Instant::now(),
            last_read: AtomicU64::new(0),
            ended: CancellationToken::new(),
        });
        let mut registry = self.registry.lock();
        registry.streams.push(Arc::downgrade(&state));
        registry.active += 1;
        ReadStream(state)
    }

    /// Returns the number of streams that are being read; at least one.
    fn active(&self) -> usize {
        let mut registry = self.registry.lock();
        if registry.counted.elapsed() >= COUNT_INTERVAL {
            let is_open =
                |one: &Weak<StreamState>| one.upgrade().is_some_and(|one| !one.has_ended());
            registry.streams.retain(is_open);
            let open = registry.streams.iter().filter_map(Weak::upgrade);
            registry.active = open.filter(|one| !one.is_idle()).count();
            registry.counted = Instant::now();
        }
        registry.active.max(1)
    }
}

impl ReadStream {
    /// Records a read.
    pub fn touch(&self) {
        let since = self.0.created.elapsed().as_millis();
        self.0.last_read.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(in crate::chunk) fn state(&self) -> &Arc<StreamState> {
        &self.0
    }
}

impl Drop for ReadStream {
    fn drop(&mut self) {
        self.0.ended.cancel();
    }
}

impl StreamState {
    /// Whether the stream has ended or has not read for a while.
    pub fn is_idle(&self) -> bool {
        let last_read = Duration::from_millis(self.last_read.load(Ordering::Relaxed));
        self.has_ended() || self.created.elapsed().saturating_sub(last_read) >= IDLE
    }

    fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until the stream ends.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

impl Store {
    pub fn open_stream(&self) -> ReadStream {
        self.streams.open()
    }

    /// Returns how many bytes beyond its block one stream may have fetched and not read: its part
    /// of what all streams may, which is half of the memory; at least a block.
    pub fn readahead_share(&self) -> usize {
        let block = self.layout().block_size as usize;
        let share = self.budget.capacity() / 2 / self.streams.active();
        share.saturating_sub(block).max(block)
    }

    /// Whether a block of these ranges is being fetched.
    pub fn is_fetching(&self, ranges: &[SliceRange]) -> bool {
        let mut blocks = ranges.iter().flat_map(|range| range.block_ranges(self.layout()));
        blocks.any(|found| self.single_flight.contains(found.block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_pauses_or_ends_leaves_its_share_to_others() {
        let streams = Streams::default();
        let (one, two) = (streams.open(), streams.open());
        assert_eq!(streams.active(), 2);
        tokio::time::advance(IDLE).await;
        one.touch();
        assert_eq!(streams.active(), 1);
        two.touch();
        tokio::time::advance(COUNT_INTERVAL).await;
        assert_eq!(streams.active(), 2);
        drop(two);
        tokio::time::advance(COUNT_INTERVAL).await;
        assert_eq!(streams.active(), 1);
    }
}
