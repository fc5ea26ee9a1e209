//! A pace: bytes per second that may pass, for whoever has to be held back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How much of quiet time counts.
const SAVED: Duration = Duration::from_millis(100);

/// Who comes takes what he needs at once, on credit if he must, and waits until the credit is paid
/// back; those who come later wait behind him. So the order is fair, a body larger than a second's
/// worth is no special case, and nobody polls.
#[derive(Debug)]
pub struct RateLimit {
    /// 0 for no limit.
    per_second: AtomicU64,
    /// When everything taken so far is paid for. It never lies further back than a moment's worth:
    /// what was not used in quiet times is gone.
    paid: Mutex<Instant>,
}

impl RateLimit {
    /// 0 stands for no limit.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { per_second: AtomicU64::new(bytes_per_second), paid: Mutex::new(Instant::now()) }
    }

    /// Another pace from now on; what was taken on credit is paid back as agreed then.
    pub fn set(&self, bytes_per_second: u64) {
        self.per_second.store(bytes_per_second, Ordering::Relaxed);
    }

    pub fn is_limited(&self) -> bool {
        self.per_second.load(Ordering::Relaxed) > 0
    }

    /// Waits until this many bytes may pass.
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
    async fn a_pace_can_be_changed_while_it_is_kept() {
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
