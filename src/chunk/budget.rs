//! The memory budget: how many bytes of file data this process may hold at once.

#[cfg(test)]
mod interleavings;
mod parent;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use parent::{Excess, Parent, ParentReservation};

use crate::sync::{Mutex, MutexGuard};

/// The budget is counted in units of this size, since a permit count is limited to 32 bits.
const UNIT: usize = 1 << 10;

/// A limit on bytes in memory. Bytes are reserved before they are used; if none are left, a
/// reservation waits, first come, first served.
///
/// A task that waits here must not hold memory of the same budget that it releases only after the
/// wait. Then the first waiter in the queue always gets its turn, since all holders release their
/// memory without waiting for more.
pub struct Budget {
    units: Arc<Semaphore>,
    total: usize,
    usage: Arc<Usage>,
    waiting: AtomicUsize,
    reclaimers: Mutex<Vec<Weak<dyn Reclaim>>>,
    /// Shared by all parts of the root budget: limits what reservations larger than their floor may
    /// take.
    excess: Excess,
    /// The budget that this one is a part of.
    parent: Option<Parent>,
}

/// A reservation. Dropping it gives the bytes back.
pub struct Reserved {
    permit: OwnedSemaphorePermit,
    usage: Arc<Usage>,
    /// The same bytes in the parent budget.
    parent: Option<ParentReservation>,
}

/// A holder of memory that it does not strictly need, such as a cache, and releases when a
/// reservation waits.
pub trait Reclaim: Send + Sync {
    /// Releases at least `bytes`, or everything. Returns how many bytes it released.
    fn reclaim(&self, bytes: usize) -> usize;

    /// Releases like [`Reclaim::reclaim`], but only memory that nobody is expected to use again.
    fn reclaim_unneeded(&self, _bytes: usize) -> usize {
        0
    }
}

#[derive(Default)]
struct Usage {
    used: AtomicUsize,
    peak: AtomicUsize,
}

/// Counts one waiter while it exists.
struct WaiterGuard<'a>(&'a AtomicUsize);

impl Budget {
    pub fn new(bytes: usize) -> Arc<Self> {
        Self::with(units(bytes), None, Excess::unlimited())
    }

    /// Creates a root budget as [`Budget::new`] does. Parts with a floor exceed both their floor
    /// and the budget by at most `excess` bytes, all together.
    pub fn with_excess(bytes: usize, excess: usize) -> Arc<Self> {
        Self::with(units(bytes), None, Excess::new(excess / UNIT))
    }

    /// Creates a part of this budget, of at most `bytes`. Its reservations also count in this
    /// budget; the rest is left to others.
    pub fn part(self: &Arc<Self>, bytes: usize) -> Arc<Self> {
        let parent = Some(Parent::of(self));
        Self::with((bytes / UNIT).clamp(1, self.total), parent, self.excess.clone())
    }

    /// Creates a part as [`Budget::part`] does, with a floor: that many bytes are always available
    /// to it, whatever others hold of this budget. Must be called within a runtime.
    ///
    /// The floor is reserved from this budget as soon as there is room. Until then, usage may
    /// exceed the capacity by as much. A reservation larger than the floor may take the whole
    /// floor, if [`Budget::with_excess`] allows enough for the remainder.
    pub fn share(self: &Arc<Self>, floor: usize, bytes: usize) -> Arc<Self> {
        let floor = floor.min(self.capacity() / 2);
        Self::with(
            (bytes.max(floor) / UNIT).clamp(1, self.total),
            Some(Parent::with_floor(self, floor)),
            self.excess.clone(),
        )
    }

    fn with(total: usize, parent: Option<Parent>, excess: Excess) -> Arc<Self> {
        Arc::new(Self {
            units: Arc::new(Semaphore::new(total)),
            total,
            usage: Arc::default(),
            waiting: AtomicUsize::new(0),
            reclaimers: Mutex::default(),
            excess,
            parent,
        })
    }

    pub fn capacity(&self) -> usize {
        self.total * UNIT
    }

    pub fn used(&self) -> usize {
        self.usage.used.load(Ordering::Acquire) * UNIT
    }

    /// Returns the highest usage so far.
    pub fn peak(&self) -> usize {
        self.usage.peak.load(Ordering::Acquire) * UNIT
    }

    /// Returns how many bytes a reservation of `bytes` really takes.
    pub fn rounded(bytes: usize) -> usize {
        bytes.div_ceil(UNIT) * UNIT
    }

    /// Whether a reservation waits. Caches must not keep anything new while one does.
    pub fn has_waiters(&self) -> bool {
        let here = self.waiting.load(Ordering::SeqCst) > 0;
        here || self.parent.as_ref().is_some_and(|parent| parent.budget().has_waiters())
    }

    /// Registers a holder to reclaim memory from when a reservation waits, here or in the parent.
    pub fn reclaim_from(&self, reclaimer: Weak<dyn Reclaim>) {
        if let Some(parent) = &self.parent {
            parent.budget().reclaim_from(reclaimer.clone());
        }
        let mut reclaimers = self.reclaimers();
        reclaimers.retain(|reclaimer| reclaimer.strong_count() > 0);
        reclaimers.push(reclaimer);
    }

    /// Waits for `bytes`. A reservation larger than the budget takes all of it.
    pub async fn reserve(&self, bytes: usize) -> Reserved {
        if let Some(reserved) = self.try_reserve(bytes) {
            return reserved;
        }
        // Counted as a waiter before anything is reclaimed, so that a cache keeps nothing new from
        // now on.
        let _waiting = WaiterGuard::new(&self.waiting);
        self.reclaim(bytes);
        let units = self.units_of(bytes);
        let Ok(permit) = self.units.clone().acquire_many_owned(units).await else {
            // The semaphore is never closed.
            return std::future::pending().await;
        };
        let parent = match &self.parent {
            Some(parent) => Some(parent.reserve(units).await),
            None => None,
        };
        Reserved::new(permit, &self.usage, parent)
    }

    /// Reserves `bytes` if they are available now and no other reservation waits.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reserved> {
        let units = self.units_of(bytes);
        let permit = match self.units.clone().try_acquire_many_owned(units) {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => return None,
        };
        let parent = match &self.parent {
            Some(parent) => Some(parent.try_reserve(units)?),
            None => None,
        };
        Some(Reserved::new(permit, &self.usage, parent))
    }

    /// Reserves as [`Budget::try_reserve`] does, but only if about `spare` bytes are left
    /// afterwards. If too few are free, memory that nobody needs is reclaimed first, here and in
    /// the parent.
    pub fn try_reserve_leaving(&self, bytes: usize, spare: usize) -> Option<Reserved> {
        if let Some(reserved) = self.try_reserve_of_free(bytes, spare) {
            return Some(reserved);
        }
        if self.has_waiters() {
            return None;
        }
        let free = self.units.available_permits() * UNIT;
        let missing = (bytes + spare).saturating_sub(free);
        self.reclaim_by(missing.max(bytes), |from, bytes| from.reclaim_unneeded(bytes));
        if let Some(reserved) = self.try_reserve_of_free(bytes, spare) {
            return Some(reserved);
        }
        // The caches of this budget had nothing to give, or the parent is full.
        let parent = self.parent.as_ref()?.budget();
        parent.reclaim_by(bytes, |from, bytes| from.reclaim_unneeded(bytes));
        self.try_reserve_of_free(bytes, spare)
    }

    fn try_reserve_of_free(&self, bytes: usize, spare: usize) -> Option<Reserved> {
        let free = self.units.available_permits();
        let needed = bytes.div_ceil(UNIT) + spare.div_ceil(UNIT);
        if needed <= free { self.try_reserve(bytes) } else { None }
    }

    fn reclaim(&self, bytes: usize) {
        self.reclaim_by(bytes, |from, bytes| from.reclaim(bytes));
    }

    fn reclaim_by(&self, bytes: usize, reclaim: impl Fn(&dyn Reclaim, usize) -> usize) {
        // Outside the lock: freeing the reclaimed memory may take a while.
        let reclaimers: Vec<_> = self.reclaimers().iter().filter_map(Weak::upgrade).collect();
        let mut missing = bytes;
        for reclaimer in reclaimers {
            missing = missing.saturating_sub(reclaim(&*reclaimer, missing));
            if missing == 0 {
                return;
            }
        }
    }

    fn reclaimers(&self) -> MutexGuard<'_, Vec<Weak<dyn Reclaim>>> {
        self.reclaimers.lock()
    }

    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT).min(self.total)).unwrap_or(u32::MAX)
    }
}

fn units(bytes: usize) -> usize {
    (bytes / UNIT).clamp(1, u32::MAX as usize)
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

impl Reserved {
    fn new(
        permit: OwnedSemaphorePermit,
        usage: &Arc<Usage>,
        parent: Option<ParentReservation>,
    ) -> Self {
        let units = permit.num_permits();
        let used = usage.used.fetch_add(units, Ordering::AcqRel) + units;
        usage.peak.fetch_max(used, Ordering::AcqRel);
        Self { permit, usage: Arc::clone(usage), parent }
    }

    pub fn bytes(&self) -> usize {
        self.permit.num_permits() * UNIT
    }

    /// Merges another reservation of the same budget into this one.
    pub fn merge(&mut self, mut other: Reserved) {
        if let Some(all) = other.permit.split(other.permit.num_permits()) {
            self.permit.merge(all);
        }
        if let (Some(mine), Some(parent)) = (&mut self.parent, other.parent.take()) {
            mine.merge(parent);
        }
    }

    /// Splits `bytes` off this reservation, or returns `None` if it has fewer.
    pub fn split(&mut self, bytes: usize) -> Option<Reserved> {
        let permit = self.permit.split(bytes.div_ceil(UNIT))?;
        let parent = self.parent.as_mut().map(|parent| parent.split(permit.num_permits()));
        Some(Self { permit, usage: Arc::clone(&self.usage), parent })
    }
}

impl Drop for Reserved {
    /// Lowers the usage before the permit is released, so that the reported usage never exceeds the
    /// capacity.
    fn drop(&mut self) {
        self.usage.used.fetch_sub(self.permit.num_permits(), Ordering::AcqRel);
    }
}

impl<'a> WaiterGuard<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for WaiterGuard<'_> {
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
    async fn a_part_gets_no_more_than_its_parent_has() {
        let budget = Budget::new(100 << 10);
        let part = budget.part(80 << 10);
        let _others = budget.reserve(90 << 10).await;
        assert!(part.try_reserve(20 << 10).is_none());
        assert_eq!(part.used(), 0, "a failed reservation holds nothing");
    }

    #[tokio::test]
    async fn a_reservation_counts_as_used_until_it_is_dropped() {
        let budget = Budget::new(100 << 10);
        let one = budget.reserve(60 << 10).await;
        assert_eq!(budget.used(), 60 << 10);
        assert!(budget.try_reserve(50 << 10).is_none());
        drop(one);
        assert_eq!((budget.used(), budget.peak()), (0, 60 << 10));
    }

    #[tokio::test]
    async fn a_reservation_larger_than_the_budget_takes_all_of_it() {
        let budget = Budget::new(100 << 10);
        assert_eq!(budget.reserve(1 << 30).await.bytes(), budget.capacity());
    }

    #[tokio::test]
    async fn a_waiter_gets_memory_that_is_given_back() {
        let budget = Budget::new(10 << 10);
        let all = budget.reserve(10 << 10).await;
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.reserve(1).await.bytes() }
        });
        while !budget.has_waiters() {
            tokio::task::yield_now().await;
        }
        drop(all);
        assert_eq!(waiting.await.unwrap(), 1 << 10);
        assert!(!budget.has_waiters());
    }

    #[tokio::test]
    async fn a_waiter_that_gives_up_leaves_no_trace() {
        let budget = Budget::new(10 << 10);
        let all = budget.reserve(10 << 10).await;
        assert!(futures::poll!(Box::pin(budget.reserve(1))).is_pending());
        assert!(!budget.has_waiters());
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
    async fn try_reserve_leaving_leaves_room_for_others() {
        let budget = Budget::new(10 << 10);
        assert!(budget.try_reserve_leaving(6 << 10, 5 << 10).is_none());
        assert!(budget.try_reserve_leaving(5 << 10, 5 << 10).is_some());
    }

    #[tokio::test]
    async fn a_waiter_reclaims_memory_from_caches() {
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
        let reclaimer: Arc<dyn Reclaim> = Arc::new(Keeper(Mutex::new(kept)));
        budget.reclaim_from(Arc::downgrade(&reclaimer));
        let reserved = budget.reserve(3 << 10).await;
        assert_eq!((reserved.bytes(), budget.used()), (3 << 10, 10 << 10));
    }
}
