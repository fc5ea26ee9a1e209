//! How long to wait before another try, and for how long all in all.
//!
//! Most failures are over in a moment, so the first backoff are short and grow. Each retry takes a
//! token of the store; who finds none waits much longer, so that a store that fails for all does not
//! get a multiple of the requests that it cannot serve.

use std::time::Duration;

use tokio::time::Instant;

use crate::sync::{Mutex, MutexGuard};

/// The longest that the first pause can be.
const FIRST: Duration = Duration::from_millis(20);

/// Backoff grow up to here.
const LONGEST: Duration = Duration::from_secs(10);

/// The longest pause of those who find no token.
const LONGEST_WITHOUT: Duration = Duration::from_mins(1);

/// RetryTokens that a store has at most.
const TOKENS: f64 = 100.0;

/// RetryTokens that come back each second; each success brings another.
const TOKENS_PER_SECOND: f64 = 1.0;

/// The tokens of one store.
#[derive(Debug)]
pub struct RetryTokens {
    left: Mutex<(f64, Instant)>,
}

/// The backoff of one request.
#[derive(Debug)]
pub struct Backoff {
    /// Of all backoff together.
    patience: Duration,
    paused: Duration,
    /// Backoff with a token, and without.
    taken: u32,
    without: u32,
}

impl RetryTokens {
    pub fn new() -> Self {
        Self { left: Mutex::new((TOKENS, Instant::now())) }
    }

    /// Something went well.
    pub fn earn(&self) {
        let mut left = self.lock();
        left.0 = (left.0 + 1.0).min(TOKENS);
    }

    fn take(&self) -> bool {
        let mut left = self.lock();
        let (tokens, since) = *left;
        let now = Instant::now();
        let tokens = (tokens + (now - since).as_secs_f64() * TOKENS_PER_SECOND).min(TOKENS);
        *left = (if tokens < 1.0 { tokens } else { tokens - 1.0 }, now);
        tokens >= 1.0
    }

    fn lock(&self) -> MutexGuard<'_, (f64, Instant)> {
        self.left.lock()
    }
}

impl Backoff {
    /// As long as the Go client is ready to wait between as many retries.
    pub fn new(retries: u32) -> Self {
        let n = u64::from(retries.min(10_000));
        let patience = Duration::from_secs(n * (n + 1) * (2 * n + 1) / 6);
        Self { patience, paused: Duration::ZERO, taken: 0, without: 0 }
    }

    /// How long to wait now, at most until `left` is over; nothing if patience is at its end.
    pub fn next(&mut self, tokens: &RetryTokens, left: Duration) -> Option<Duration> {
        let left = left.min(self.patience.saturating_sub(self.paused));
        if left.is_zero() {
            return None;
        }
        let pause = if tokens.take() {
            let longest = FIRST.saturating_mul(1 << self.taken.min(20)).min(LONGEST);
            self.taken += 1;
            // Anywhere below: clients that failed together do not all come back together.
            longest.mul_f64(rand::random_range(0.05..=1.0))
        } else {
            self.without += 1;
            let squared = Duration::from_secs(u64::from(self.without).pow(2));
            squared.min(LONGEST_WITHOUT).mul_f64(rand::random_range(0.75..=1.0))
        };
        let pause = pause.min(left);
        self.paused += pause;
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(retries: u32) -> Vec<Duration> {
        let (mut backoff, tokens) = (Backoff::new(retries), RetryTokens::new());
        std::iter::from_fn(|| backoff.next(&tokens, Duration::MAX)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_begin_with_milliseconds_and_last_as_long_as_they_always_did() {
        for retries in 0..=10_u32 {
            let backoff = all(retries);
            let seconds: u64 = (1..=u64::from(retries)).map(|n| n * n).sum();
            let total: Duration = backoff.iter().sum();
            assert_eq!(total, Duration::from_secs(seconds), "{retries} retries");
            assert!(backoff.len() >= retries as usize);
            assert!(backoff.iter().take(3).all(|pause| *pause <= FIRST * 4));
            assert!(backoff.iter().all(|pause| *pause <= LONGEST_WITHOUT));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_run_out_and_come_back_with_time_and_success() {
        let tokens = RetryTokens::new();
        assert_eq!((0..1000).filter(|_| tokens.take()).count(), 100);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!((0..1000).filter(|_| tokens.take()).count(), 5);
        for _ in 0..7 {
            tokens.earn();
        }
        assert_eq!((0..1000).filter(|_| tokens.take()).count(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_token_pauses_are_long() {
        let (mut backoff, tokens) = (Backoff::new(10), RetryTokens::new());
        while tokens.take() {}
        let first = backoff.next(&tokens, Duration::MAX).unwrap();
        assert!(first >= Duration::from_millis(750), "{first:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_pause_goes_beyond_the_time_that_is_left() {
        let (mut backoff, tokens) = (Backoff::new(10), RetryTokens::new());
        let left = Duration::from_nanos(5);
        assert_eq!(backoff.next(&tokens, left), Some(left));
        assert_eq!(backoff.next(&tokens, Duration::ZERO), None);
    }
}
