//! The memory budget: how many bytes of data this process may hold at once.

#[cfg(test)]
mod interleavings;
mod whole;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use whole::{Drawn, Excess, Whole};

use crate::sync::{Mutex, MutexGuard};

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
    /// For what is reserved on a floor that is smaller, by any part.
    excess: Excess,
    /// What this is a part of.
    whole: Option<Whole>,
}

/// Bytes reserved; given back when dropped.
pub struct Reserved {
    permit: OwnedSemaphorePermit,
    ledger: Arc<Ledger>,
    /// The same bytes in the budget that this one is a part of.
    whole: Option<Drawn>,
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
        Self::with(whole_units(bytes), None, Excess::unlimited())
    }

    /// As [`Budget::new`]; what parts with a floor hold beyond it and beyond the budget is never more than
    /// `excess`.
    pub fn with_excess(bytes: usize, excess: usize) -> Arc<Self> {
        Self::with(whole_units(bytes), None, Excess::new(excess / UNIT))
    }

    /// A part of this budget: what is reserved from it counts in the whole as well, and there is
    /// never more of it than `bytes`. The rest is left to others.
    pub fn part(self: &Arc<Self>, bytes: usize) -> Arc<Self> {
        let whole = Some(Whole::of(self));
        Self::with((bytes / UNIT).clamp(1, self.total), whole, self.excess.clone())
    }

    /// As [`Budget::part`], with a floor: so many bytes are always there for this part, whatever others
    /// hold of the whole. Must be called within a runtime.
    ///
    /// The floor is taken from the whole, as soon as there is room; until then there is more in use than
    /// the whole has, by as much. A reservation larger than the floor may have all of it, if there is
    /// enough of what [`Budget::with_excess`] allows for the rest.
    pub fn share(self: &Arc<Self>, floor: usize, bytes: usize) -> Arc<Self> {
        let floor = floor.min(self.capacity() / 2);
        Self::with(
            (bytes.max(floor) / UNIT).clamp(1, self.total),
            Some(Whole::with_floor(self, floor)),
            self.excess.clone(),
        )
    }

    fn with(total: usize, whole: Option<Whole>, excess: Excess) -> Arc<Self> {
        Arc::new(Self {
            units: Arc::new(Semaphore::new(total)),
            total,
            ledger: Arc::default(),
            waiting: AtomicUsize::new(0),
            keepers: Mutex::default(),
            excess,
            whole,
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
        let here = self.waiting.load(Ordering::SeqCst) > 0;
        here || self.whole.as_ref().is_some_and(|whole| whole.budget().is_short())
    }

    /// Asked for room from now on when somebody waits for it, here or in the whole.
    pub fn reclaim_from(&self, keeper: Weak<dyn Reclaim>) {
        if let Some(whole) = &self.whole {
            whole.budget().reclaim_from(keeper.clone());
        }
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
        let units = self.units_of(bytes);
        let Ok(permit) = self.units.clone().acquire_many_owned(units).await else {
            // The semaphore is never closed.
            return std::future::pending().await;
        };
        let whole = match &self.whole {
            Some(whole) => Some(whole.draw(units).await),
            None => None,
        };
        Reserved::new(permit, &self.ledger, whole)
    }

    /// Room, if there is some now and nobody waits for it.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reserved> {
        let units = self.units_of(bytes);
        let permit = match self.units.clone().try_acquire_many_owned(units) {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => return None,
        };
        let whole = match &self.whole {
            Some(whole) => Some(whole.try_draw(units)?),
            None => None,
        };
        Some(Reserved::new(permit, &self.ledger, whole))
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
        self.keepers.lock()
    }

    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT).min(self.total)).unwrap_or(u32::MAX)
    }
}

fn whole_units(bytes: usize) -> usize {
    (bytes / UNIT).clamp(1, u32::MAX as usize)
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

impl Reserved {
    fn new(permit: OwnedSemaphorePermit, ledger: &Arc<Ledger>, whole: Option<Drawn>) -> Self {
        let units = permit.num_permits();
        let used = ledger.used.fetch_add(units, Ordering::AcqRel) + units;
        ledger.peak.fetch_max(used, Ordering::AcqRel);
        Self { permit, ledger: Arc::clone(ledger), whole }
    }

    pub fn bytes(&self) -> usize {
        self.permit.num_permits() * UNIT
    }

    /// Joins two reservations of one budget.
    pub fn merge(&mut self, mut other: Reserved) {
        if let Some(all) = other.permit.split(other.permit.num_permits()) {
            self.permit.merge(all);
        }
        if let (Some(mine), Some(whole)) = (&mut self.whole, other.whole.take()) {
            mine.merge(whole);
        }
    }

    /// Takes so many bytes out of it; none if it has fewer.
    pub fn split(&mut self, bytes: usize) -> Option<Reserved> {
        let permit = self.permit.split(bytes.div_ceil(UNIT))?;
        let whole = self.whole.as_mut().map(|whole| whole.split(permit.num_permits()));
        Some(Self { permit, ledger: Arc::clone(&self.ledger), whole })
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
    async fn a_part_leaves_the_rest_to_others() {
        let budget = Budget::new(100 << 10);
        let part = budget.part(80 << 10);
        let mut held = part.reserve(60 << 10).await;
        held.merge(part.reserve(20 << 10).await);
        assert!(part.try_reserve(1).is_none());
        assert_eq!((part.used(), budget.used()), (80 << 10, 80 << 10));
        assert!(budget.try_reserve(20 << 10).is_some());
        drop(held.split(30 << 10));
        assert_eq!((part.used(), budget.used()), (50 << 10, 50 << 10));
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
                let mut kept = self.0.lock();
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
