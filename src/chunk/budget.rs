//! The memory budget: how many bytes of data this process may hold at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// Counted in units, since a permit cannot count further than 32 bits.
const UNIT: usize = 1 << 10;

/// A bound on bytes in memory. Who wants to hold some reserves them first, and waits if there are
/// none left; first come, first served.
pub struct Budget {
    units: Arc<Semaphore>,
    total: usize,
    /// What this is a part of.
    whole: Option<Arc<Budget>>,
}

/// Bytes reserved; given back when dropped.
pub struct Reserved {
    permit: OwnedSemaphorePermit,
    /// The same bytes in the budget that this one is a part of.
    whole: Option<Box<Reserved>>,
}

impl Budget {
    pub fn new(bytes: usize) -> Arc<Self> {
        let total = (bytes / UNIT).clamp(1, u32::MAX as usize);
        Arc::new(Self { units: Arc::new(Semaphore::new(total)), total, whole: None })
    }

    /// A part of this budget: what is reserved from it counts in the whole as well, and there is
    /// never more of it than `bytes`. The rest is left to others.
    pub fn part(self: &Arc<Self>, bytes: usize) -> Arc<Self> {
        let total = (bytes / UNIT).clamp(1, self.total);
        let whole = Some(Arc::clone(self));
        Arc::new(Self { units: Arc::new(Semaphore::new(total)), total, whole })
    }

    pub fn capacity(&self) -> usize {
        self.total * UNIT
    }

    pub fn used(&self) -> usize {
        (self.total - self.units.available_permits().min(self.total)) * UNIT
    }

    /// Waits for room. What is larger than the whole budget takes all of it.
    pub async fn reserve(&self, bytes: usize) -> Reserved {
        let units = self.units_of(bytes);
        let Ok(permit) = self.units.clone().acquire_many_owned(units).await else {
            // The semaphore is never closed.
            return std::future::pending().await;
        };
        let whole = match &self.whole {
            Some(whole) => Some(Box::new(Box::pin(whole.reserve(units as usize * UNIT)).await)),
            None => None,
        };
        Reserved { permit, whole }
    }

    /// Room, if there is some now and nobody waits for it.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reserved> {
        let units = self.units_of(bytes);
        let permit = match self.units.clone().try_acquire_many_owned(units) {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => return None,
        };
        let whole = match &self.whole {
            Some(whole) => Some(Box::new(whole.try_reserve(units as usize * UNIT)?)),
            None => None,
        };
        Some(Reserved { permit, whole })
    }

    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT).min(self.total)).unwrap_or(u32::MAX)
    }
}

impl Reserved {
    pub fn bytes(&self) -> usize {
        self.permit.num_permits() * UNIT
    }

    /// Joins two reservations of one budget.
    pub fn merge(&mut self, other: Reserved) {
        self.permit.merge(other.permit);
        if let (Some(mine), Some(whole)) = (&mut self.whole, other.whole) {
            mine.merge(*whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_reserved_is_used_until_it_is_dropped() {
        let budget = Budget::new(100 << 10);
        let one = budget.reserve(60 << 10).await;
        assert_eq!(budget.used(), 60 << 10);
        assert!(budget.try_reserve(50 << 10).is_none());
        drop(one);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn more_than_everything_takes_everything() {
        let budget = Budget::new(100 << 10);
        assert_eq!(budget.reserve(1 << 30).await.bytes(), budget.capacity());
    }

    #[tokio::test]
    async fn a_part_leaves_the_rest_to_others() {
        let budget = Budget::new(100 << 10);
        let part = budget.part(80 << 10);
        let mut held = part.reserve(60 << 10).await;
        held.merge(part.reserve(20 << 10).await);
        assert!(part.try_reserve(1).is_none());
        assert_eq!((part.used(), budget.used()), (80 << 10, 80 << 10));
        assert!(budget.try_reserve(20 << 10).is_some());
        drop(held);
        assert_eq!((part.used(), budget.used()), (0, 0));
    }

    #[tokio::test]
    async fn a_part_gets_no_more_than_the_whole_has() {
        let budget = Budget::new(100 << 10);
        let part = budget.part(80 << 10);
        let _others = budget.reserve(90 << 10).await;
        assert!(part.try_reserve(20 << 10).is_none());
        assert_eq!(part.used(), 0, "nothing is held of what could not be had");
    }

    #[tokio::test]
    async fn a_waiter_gets_what_is_given_back() {
        let budget = Budget::new(10 << 10);
        let all = budget.reserve(10 << 10).await;
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.reserve(1).await.bytes() }
        });
        tokio::task::yield_now().await;
        drop(all);
        assert_eq!(waiting.await.unwrap(), 1 << 10);
    }
}
