//! A rate limit in bytes per second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How much unused time may be made up for.
const SAVED: Duration = Duration::from_millis(100);

/// A caller takes what it needs at once, in advance if necessary, and waits until the rate has
/// caught up; later callers wait behind it. So the order is fair, a body larger than a second's
/// worth needs no special case, and no one polls.
#[derive(Debug)]
pub struct RateLimit {
    /// Bytes per second; 0 for no limit.
    per_second: AtomicU64,
    /// The time at which the rate has caught up with everything taken so far. Never further back
    /// than [`SAVED`]: unused time beyond that is lost.
    paid: Mutex<Instant>,
}

impl RateLimit {
    /// 0 is no limit.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { per_second: AtomicU64::new(bytes_per_second), paid: Mutex::new(Instant::now()) }
    }

    /// Changes the rate. What was taken before is still charged at the old rate.
    pub fn set(&self, bytes_per_second: u64) {
        self.per_second.store(bytes_per_second, Ordering::Relaxed);
    }

    pub fn is_limited(&self) -> bool {
        self.per_second.load(Ordering::Relaxed) > 0
    }

    /// Waits until this many bytes are allowed.
    pub async fn acquire(&self, bytes: u64) {
        let per_second = self.per_second.load(Ordering::Relaxed);
        if per_second == 0 {
            return;
        }
        let until = {
            let mut paid = self.paid.lock().await;
            let now = Instant::now();
            let from = (*paid).max(now.checked_sub(SAVED).unwrap_or(now));
            *paid = from + Duration::from_secs_f64(bytes as f64 / per_second as f64);
            *paid
        };
        tokio::time::sleep_until(until).await;
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::new(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_rate_can_be_changed_while_in_use() {
        let limit = RateLimit::new(1000);
        let start = Instant::now();
        limit.acquire(2100).await;
        assert_eq!(start.elapsed().as_secs(), 2);
        limit.set(0);
        limit.acquire(1 << 40).await;
        assert_eq!(start.elapsed().as_secs(), 2);
        limit.set(10);
        limit.acquire(50).await;
        assert_eq!(start.elapsed().as_secs(), 7);
    }
}
