//! Seats: how many of this process rely on one place at once without getting in each other's way.
//!
//! Two transactions that share a place on the same seat conflict, so a seat is taken before the
//! transaction begins and kept until it ends. Processes do not know of each other's seats: each
//! begins to count at a number of its own, and a collision costs a retry.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rand::RngExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places are told apart by a hash; two that fall together share their seats.
const STRIPES: usize = 256;

pub(super) struct Seats {
    count: u32,
    /// Where this process begins to look for a free one.
    first: u32,
    stripes: Vec<Arc<Stripe>>,
    hasher: RandomState,
}

struct Stripe {
    free: Arc<Semaphore>,
    /// One bit for each seat.
    taken: AtomicU32,
}

/// A seat of one's own until it is dropped.
pub(super) struct Seat {
    pub number: u8,
    stripe: Arc<Stripe>,
    _permit: OwnedSemaphorePermit,
}

impl Seats {
    /// `count` is at most 32.
    pub fn new(count: u8) -> Self {
        let count = u32::from(count).min(u32::BITS);
        let stripe =
            || Stripe { free: Arc::new(Semaphore::new(count as usize)), taken: AtomicU32::new(0) };
        Self {
            count,
            first: rand::rng().random_range(0..count.max(1)),
            stripes: (0..STRIPES).map(|_| Arc::new(stripe())).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Waits for a seat of the place.
    pub async fn take(&self, place: &[u8]) -> Option<Seat> {
        let stripe = self.stripe(place);
        let permit = stripe.free.clone().acquire_owned().await.ok()?;
        self.sit(stripe, permit)
    }

    /// A seat of the place, if one is free: who has one already must not wait for another.
    pub fn try_take(&self, place: &[u8]) -> Option<Seat> {
        let stripe = self.stripe(place);
        let permit = stripe.free.clone().try_acquire_owned().ok()?;
        self.sit(stripe, permit)
    }

    /// A seat that someone may have.
    pub fn any(&self) -> u8 {
        u8::try_from(rand::rng().random_range(0..self.count.max(1))).unwrap_or(0)
    }

    fn sit(&self, stripe: &Arc<Stripe>, permit: OwnedSemaphorePermit) -> Option<Seat> {
        // There are as many permits as seats, so a free one is found.
        for step in (0..self.count).cycle().take(2 * self.count as usize) {
            let number = (self.first + step) % self.count;
            let bit = 1 << number;
            if stripe.taken.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                let number = u8::try_from(number).ok()?;
                return Some(Seat { number, stripe: stripe.clone(), _permit: permit });
            }
        }
        None
    }

    fn stripe(&self, place: &[u8]) -> &Arc<Stripe> {
        let hash = usize::try_from(self.hasher.hash_one(place)).unwrap_or(usize::MAX);
        &self.stripes[hash % STRIPES]
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Before the permit: whoever gets that one must find the seat free.
        self.stripe.taken.fetch_and(!(1 << self.number), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[tokio::test]
    async fn every_seat_is_taken_once() {
        let seats = Seats::new(32);
        let mut taken = Vec::new();
        for _ in 0..32 {
            taken.push(seats.take(b"place").await.expect("a seat"));
        }
        let numbers: HashSet<u8> = taken.iter().map(|seat| seat.number).collect();
        assert_eq!(numbers.len(), 32);
        assert!(seats.try_take(b"place").is_none());
    }

    #[tokio::test]
    async fn a_seat_is_free_again_when_it_is_left() {
        let seats = Seats::new(1);
        drop(seats.take(b"place").await);
        assert!(seats.try_take(b"place").is_some());
    }
}
