//! The memory budget: how many bytes of data this process may hold at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// Counted in units, since a permit cannot count further than 32 bits.
const UNIT: usize = 1 << 10;

/// A bound on bytes in memory. Who wants to hold some reserves them first, and waits if there are
/// none left; first come, first served.
///
/// Who waits here must hold nothing of the same budget that it gives back only after the wait:
/// then the first in the queue always gets its turn, since everything that others hold comes back
/// without their waiting for more.
pub struct Budget {
    units: Arc<Semaphore>,
    total: usize,
    ledger: Arc<Ledger>,
    waiting: AtomicUsize,
    keepers: Mutex<Vec<Weak<dyn Reclaim>>>,
}

/// Bytes reserved; given back when dropped.
pub struct Reserved {
    permit: OwnedSemaphorePermit,
    ledger: Arc<Ledger>,
}

/// Keeps reserved bytes for convenience only, and lets them go when somebody waits.
pub trait Reclaim: Send + Sync {
    /// Lets go of at least so many bytes, or of all. Answers how many.
    fn reclaim(&self, bytes: usize) -> usize;
}

#[derive(Default)]
struct Ledger {
    used: AtomicUsize,
    peak: AtomicUsize,
}

/// One who waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Budget {
    pub fn new(bytes: usize) -> Arc<Self> {
        let total = (bytes / UNIT).clamp(1, u32::MAX as usize);
        Arc::new(Self {
            units: Arc::new(Semaphore::new(total)),
            total,
            ledger: Arc::default(),
            waiting: AtomicUsize::new(0),
            keepers: Mutex::default(),
        })
    }

    pub fn capacity(&self) -> usize {
        self.total * UNIT
    }

    pub fn used(&self) -> usize {
        self.ledger.used.load(Ordering::Acquire) * UNIT
    }

    /// The most that was ever used at once.
    pub fn peak(&self) -> usize {
        self.ledger.peak.load(Ordering::Acquire) * UNIT
    }

    /// What a reservation of so many bytes really takes.
    pub fn rounded(bytes: usize) -> usize {
        bytes.div_ceil(UNIT) * UNIT
    }

    /// Whether somebody waits for room. What is only kept for convenience must not be kept now.
    pub fn is_short(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Asked for room from now on when somebody waits for it.
    pub fn reclaim_from(&self, keeper: Weak<dyn Reclaim>) {
        let mut keepers = self.keepers();
        keepers.retain(|keeper| keeper.strong_count() > 0);
        keepers.push(keeper);
    }

    /// Waits for room. What is larger than the whole budget takes all of it.
    pub async fn reserve(&self, bytes: usize) -> Reserved {
        if let Some(reserved) = self.try_reserve(bytes) {
            return reserved;
        }
        // Counted before anything is reclaimed: what a keeper is given later it does not keep.
        let _waiting = Waiting::new(&self.waiting);
        self.reclaim(bytes);
        loop {
            if let Ok(permit) = self.units.clone().acquire_many_owned(self.units_of(bytes)).await {
                return Reserved::new(permit, &self.ledger);
            }
            // The semaphore is never closed.
            std::future::pending::<()>().await;
        }
    }

    /// Room, if there is some now and nobody waits for it.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reserved> {
        match self.units.clone().try_acquire_many_owned(self.units_of(bytes)) {
            Ok(permit) => Some(Reserved::new(permit, &self.ledger)),
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => None,
        }
    }

    /// As [`Budget::try_reserve`], but only if about `spare` bytes are left afterwards.
    pub fn try_reserve_sparing(&self, bytes: usize, spare: usize) -> Option<Reserved> {
        let free = self.units.available_permits();
        let needed = bytes.div_ceil(UNIT) + spare.div_ceil(UNIT);
        if needed <= free { self.try_reserve(bytes) } else { None }
    }

    fn reclaim(&self, bytes: usize) {
        // Outside the lock: what a keeper lets go may take a while to be freed.
        let keepers: Vec<_> = self.keepers().iter().filter_map(Weak::upgrade).collect();
        let mut missing = bytes;
        for keeper in keepers {
            missing = missing.saturating_sub(keeper.reclaim(missing));
            if missing == 0 {
                return;
            }
        }
    }

    fn keepers(&self) -> MutexGuard<'_, Vec<Weak<dyn Reclaim>>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT).min(self.total)).unwrap_or(u32::MAX)
    }
}

impl Reserved {
    fn new(permit: OwnedSemaphorePermit, ledger: &Arc<Ledger>) -> Self {
        let units = permit.num_permits();
        let used = ledger.used.fetch_add(units, Ordering::AcqRel) + units;
        ledger.peak.fetch_max(used, Ordering::AcqRel);
        Self { permit, ledger: Arc::clone(ledger) }
    }

    pub fn bytes(&self) -> usize {
        self.permit.num_permits() * UNIT
    }

    /// Joins two reservations of one budget.
    pub fn merge(&mut self, mut other: Reserved) {
        if let Some(all) = other.permit.split(other.permit.num_permits()) {
            self.permit.merge(all);
        }
    }

    /// Takes so many bytes out of it; none if it has fewer.
    pub fn split(&mut self, bytes: usize) -> Option<Reserved> {
        let permit = self.permit.split(bytes.div_ceil(UNIT))?;
        Some(Self { permit, ledger: Arc::clone(&self.ledger) })
    }
}

impl Drop for Reserved {
    /// Off the ledger before the permit is free: nobody ever reads more than there is.
    fn drop(&mut self) {
        self.ledger.used.fetch_sub(self.permit.num_permits(), Ordering::AcqRel);
    }
}

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
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
        assert_eq!((budget.used(), budget.peak()), (0, 60 << 10));
    }

    #[tokio::test]
    async fn more_than_everything_takes_everything() {
        let budget = Budget::new(100 << 10);
        assert_eq!(budget.reserve(1 << 30).await.bytes(), budget.capacity());
    }

    #[tokio::test]
    async fn a_waiter_gets_what_is_given_back() {
        let budget = Budget::new(10 << 10);
        let all = budget.reserve(10 << 10).await;
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.reserve(1).await.bytes() }
        });
        while !budget.is_short() {
            tokio::task::yield_now().await;
        }
        drop(all);
        assert_eq!(waiting.await.unwrap(), 1 << 10);
        assert!(!budget.is_short());
    }

    #[tokio::test]
    async fn a_waiter_that_gives_up_leaves_no_trace() {
        let budget = Budget::new(10 << 10);
        let all = budget.reserve(10 << 10).await;
        assert!(futures::poll!(Box::pin(budget.reserve(1))).is_pending());
        assert!(!budget.is_short());
        drop(all);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn parts_of_a_reservation_count_once() {
        let budget = Budget::new(10 << 10);
        let mut all = budget.reserve(8 << 10).await;
        let part = all.split(3 << 10).unwrap();
        assert_eq!((part.bytes(), all.bytes(), budget.used()), (3 << 10, 5 << 10, 8 << 10));
        assert!(all.split(6 << 10).is_none());
        all.merge(part);
        assert_eq!((all.bytes(), budget.used()), (8 << 10, 8 << 10));
        drop(all);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn sparing_leaves_room_for_others() {
        let budget = Budget::new(10 << 10);
        assert!(budget.try_reserve_sparing(6 << 10, 5 << 10).is_none());
        assert!(budget.try_reserve_sparing(5 << 10, 5 << 10).is_some());
    }

    #[tokio::test]
    async fn what_is_kept_for_convenience_goes_to_who_waits() {
        struct Keeper(Mutex<Vec<Reserved>>);
        impl Reclaim for Keeper {
            fn reclaim(&self, bytes: usize) -> usize {
                let mut kept = self.0.lock().unwrap();
                let mut given = 0;
                while given < bytes
                    && let Some(one) = kept.pop()
                {
                    given += one.bytes();
                }
                given
            }
        }
        let budget = Budget::new(10 << 10);
        let mut kept = Vec::new();
        for _ in 0..10 {
            kept.push(budget.reserve(1 << 10).await);
        }
        let keeper: Arc<dyn Reclaim> = Arc::new(Keeper(Mutex::new(kept)));
        budget.reclaim_from(Arc::downgrade(&keeper));
        let reserved = budget.reserve(3 << 10).await;
        assert_eq!((reserved.bytes(), budget.used()), (3 << 10, 10 << 10));
    }
}
