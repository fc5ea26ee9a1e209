//! Delays before retries, and their total time.
//!
//! Most failures are over in a moment, so the first delays are short and grow. Each retry takes a
//! token of the store. A request that finds no token waits much longer, so that a store that fails
//! for everyone does not get a multiple of the requests that it cannot serve.

use std::time::Duration;

use tokio::time::Instant;

use crate::sync::{Mutex, MutexGuard};

/// Upper limit of the first delay.
const FIRST_DELAY: Duration = Duration::from_millis(20);

/// Delays grow up to this.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// The longest delay of a request that finds no token.
const MAX_DELAY_WITHOUT_TOKEN: Duration = Duration::from_mins(1);

/// The maximum number of tokens of a store.
const MAX_TOKENS: f64 = 100.0;

/// Tokens regained per second; each success adds one more.
const TOKENS_PER_SECOND: f64 = 1.0;

/// The retry tokens of one store.
#[derive(Debug)]
pub struct RetryTokens {
    left: Mutex<(f64, Instant)>,
}

/// The delays of one request.
#[derive(Debug)]
pub struct Backoff {
    /// Limit on the sum of all delays.
    time_limit: Duration,
    waited: Duration,
    /// Delays with a token, and without one.
    taken: u32,
    without: u32,
}

impl RetryTokens {
    pub fn new() -> Self {
        Self { left: Mutex::new((MAX_TOKENS, Instant::now())) }
    }

    /// Adds a token after a success.
    pub fn earn(&self) {
        let mut left = self.lock();
        left.0 = (left.0 + 1.0).min(MAX_TOKENS);
    }

    fn take(&self) -> bool {
        let mut left = self.lock();
        let (tokens, since) = *left;
        let now = Instant::now();
        let tokens = (tokens + (now - since).as_secs_f64() * TOKENS_PER_SECOND).min(MAX_TOKENS);
        *left = (if tokens < 1.0 { tokens } else { tokens - 1.0 }, now);
        tokens >= 1.0
    }

    fn lock(&self) -> MutexGuard<'_, (f64, Instant)> {
        self.left.lock()
    }
}

impl Backoff {
    /// Allows the same total time as the Go client for that many retries.
    pub fn new(retries: u32) -> Self {
        let n = u64::from(retries.min(10_000));
        let time_limit = Duration::from_secs(n * (n + 1) * (2 * n + 1) / 6);
        Self { time_limit, waited: Duration::ZERO, taken: 0, without: 0 }
    }

    /// Returns the next delay, at most `left`, or `None` if the time is used up.
    pub fn next(&mut self, tokens: &RetryTokens, left: Duration) -> Option<Duration> {
        let left = left.min(self.time_limit.saturating_sub(self.waited));
        if left.is_zero() {
            return None;
        }
        let delay = if tokens.take() {
            let longest = FIRST_DELAY.saturating_mul(1 << self.taken.min(20)).min(MAX_DELAY);
            self.taken += 1;
            // Random, so that clients that failed together do not retry together.
            longest.mul_f64(rand::random_range(0.05..=1.0))
        } else {
            self.without += 1;
            let squared = Duration::from_secs(u64::from(self.without).pow(2));
            squared.min(MAX_DELAY_WITHOUT_TOKEN).mul_f64(rand::random_range(0.75..=1.0))
        };
        let delay = delay.min(left);
        self.waited += delay;
        Some(delay)
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
    async fn delays_begin_with_milliseconds_and_add_up_to_the_time_of_the_go_client() {
        for retries in 0..=10_u32 {
            let backoff = all(retries);
            let seconds: u64 = (1..=u64::from(retries)).map(|n| n * n).sum();
            let total: Duration = backoff.iter().sum();
            assert_eq!(total, Duration::from_secs(seconds), "{retries} retries");
            assert!(backoff.len() >= retries as usize);
            assert!(backoff.iter().take(3).all(|delay| *delay <= FIRST_DELAY * 4));
            assert!(backoff.iter().all(|delay| *delay <= MAX_DELAY_WITHOUT_TOKEN));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_run_out_and_are_regained_with_time_and_success() {
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
    async fn without_a_token_delays_are_long() {
        let (mut backoff, tokens) = (Backoff::new(10), RetryTokens::new());
        while tokens.take() {}
        let first = backoff.next(&tokens, Duration::MAX).unwrap();
        assert!(first >= Duration::from_millis(750), "{first:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_delay_exceeds_the_time_that_is_left() {
        let (mut backoff, tokens) = (Backoff::new(10), RetryTokens::new());
        let left = Duration::from_nanos(5);
        assert_eq!(backoff.next(&tokens, left), Some(left));
        assert_eq!(backoff.next(&tokens, Duration::ZERO), None);
    }
}
