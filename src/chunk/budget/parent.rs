//! The parent of a budget, and how a part reserves from it.

use std::sync::{Arc, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use super::{Budget, Reserved, UNIT};

pub struct Parent {
    budget: Arc<Budget>,
    floor: Option<Floor>,
}

/// Bytes that a part can use whatever others hold of the parent.
struct Floor {
    units: Arc<Semaphore>,
    total: usize,
    /// The same bytes reserved from the parent, so that no one else gets them.
    _reserved: Arc<OnceLock<Reserved>>,
    _reserving: AbortOnDropHandle<()>,
}

/// How far reservations may exceed their floors, all together.
#[derive(Clone)]
pub struct Excess {
    units: Arc<Semaphore>,
    total: usize,
}

/// What backs one reservation of a part: its floor, its parent, or, after a merge, both.
pub struct ParentReservation {
    floor: Option<OwnedSemaphorePermit>,
    /// The remainder of a reservation larger than the floor.
    excess: Option<OwnedSemaphorePermit>,
    parent: Option<Box<Reserved>>,
}

impl Parent {
    pub fn of(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), floor: None }
    }

    pub fn with_floor(budget: &Arc<Budget>, bytes: usize) -> Self {
        let total = bytes / UNIT;
        let floor = (total > 0).then(|| Floor::new(budget, total));
        Self { budget: Arc::clone(budget), floor }
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    pub fn try_reserve(&self, units: u32) -> Option<ParentReservation> {
        let from_parent =
            || self.budget.try_reserve(units as usize * UNIT).map(ParentReservation::from_parent);
        let Some(floor) = &self.floor else { return from_parent() };
        // If the floor covers the reservation, the parent is left to others. If it does not, the
        // parent is preferred.
        if units <= floor.covering(units) {
            floor.try_reserve(units, &self.budget.excess).or_else(from_parent)
        } else {
            from_parent().or_else(|| floor.try_reserve(units, &self.budget.excess))
        }
    }

    /// Reserves from the floor or from the parent, whichever has room first. All of it comes from
    /// one of them: a task that held a part of one while waiting for the other could deadlock with
    /// another task.
    pub async fn reserve(&self, units: u32) -> ParentReservation {
        if let Some(reserved) = self.try_reserve(units) {
            return reserved;
        }
        let parent = Box::pin(self.budget.reserve(units as usize * UNIT));
        let Some(floor) = &self.floor else { return ParentReservation::from_parent(parent.await) };
        tokio::select! {
            biased;
            Some(reserved) = floor.reserve(units, &self.budget.excess) => reserved,
            reserved = parent => ParentReservation::from_parent(reserved),
        }
    }
}

impl Floor {
    fn new(budget: &Arc<Budget>, total: usize) -> Self {
        let taken: Arc<OnceLock<Reserved>> = Arc::default();
        let (parent, place) = (Arc::clone(budget), Arc::clone(&taken));
        let taking = tokio::spawn(async move {
            let _ = place.set(parent.reserve(total * UNIT).await);
        });
        Self {
            units: Arc::new(Semaphore::new(total)),
            total,
            _reserved: taken,
            _reserving: AbortOnDropHandle::new(taking),
        }
    }

    fn try_reserve(&self, units: u32, excess: &Excess) -> Option<ParentReservation> {
        let covering = self.covering(units);
        let permit = self.units.clone().try_acquire_many_owned(covering).ok()?;
        let rest = excess.covering(units - covering);
        let rest = excess.units.clone().try_acquire_many_owned(rest).ok()?;
        Some(ParentReservation::from_floor(permit, rest))
    }

    async fn reserve(&self, units: u32, excess: &Excess) -> Option<ParentReservation> {
        let covering = self.covering(units);
        let permit = self.units.clone().acquire_many_owned(covering).await.ok()?;
        let rest = excess.covering(units - covering);
        let rest = excess.units.clone().acquire_many_owned(rest).await.ok()?;
        Some(ParentReservation::from_floor(permit, rest))
    }

    /// Returns how many of `units` the floor covers: at most all of the floor.
    fn covering(&self, units: u32) -> u32 {
        units.min(u32::try_from(self.total).unwrap_or(u32::MAX))
    }
}

impl Excess {
    pub fn new(total: usize) -> Self {
        Self { units: Arc::new(Semaphore::new(total)), total }
    }

    pub fn unlimited() -> Self {
        Self::new(Semaphore::MAX_PERMITS)
    }

    fn covering(&self, units: u32) -> u32 {
        units.min(u32::try_from(self.total).unwrap_or(u32::MAX))
    }
}

impl ParentReservation {
    fn from_floor(permit: OwnedSemaphorePermit, excess: OwnedSemaphorePermit) -> Self {
        Self { floor: Some(permit), excess: Some(excess), parent: None }
    }

    fn from_parent(reserved: Reserved) -> Self {
        Self { floor: None, excess: None, parent: Some(Box::new(reserved)) }
    }

    pub fn merge(&mut self, other: Self) {
        for (mine, permit) in [(&mut self.floor, other.floor), (&mut self.excess, other.excess)] {
            match (mine, permit) {
                (Some(mine), Some(permit)) => mine.merge(permit),
                (mine @ None, permit) => *mine = permit,
                (Some(_), None) => {}
            }
        }
        match (&mut self.parent, other.parent) {
            (Some(mine), Some(reserved)) => mine.merge(*reserved),
            (mine @ None, reserved) => *mine = reserved,
            (Some(_), None) => {}
        }
    }

    /// Splits up to `units` off. There may be fewer, since a floor may back a larger reservation.
    pub fn split(&mut self, units: usize) -> Self {
        let mut left = units;
        let mut take = |permit: &mut Option<OwnedSemaphorePermit>| {
            let permit = permit.as_mut()?;
            let part = left.min(permit.num_permits());
            left -= part;
            permit.split(part)
        };
        let (excess, floor) = (take(&mut self.excess), take(&mut self.floor));
        let parent = self.parent.as_mut().and_then(|parent| {
            let part = (left * UNIT).min(parent.bytes());
            parent.split(part).map(Box::new)
        });
        Self { floor, excess, parent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    async fn settled(budget: &Budget, used: usize) {
        while budget.used() != used {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_floor_is_available_whatever_others_hold() {
        let parent = Budget::new(100 * KIB);
        let others = parent.reserve(100 * KIB).await;
        let share = parent.share(10 * KIB, 50 * KIB);
        let held = share.reserve(10 * KIB).await;
        assert!(share.try_reserve(1).is_none());
        drop(others);
        // Now the floor is reserved from the parent as well.
        settled(&parent, 10 * KIB).await;
        assert_eq!(share.used(), 10 * KIB);
        drop(held);
        assert_eq!((share.used(), parent.used()), (0, 10 * KIB));
    }

    #[tokio::test]
    async fn above_its_floor_a_share_uses_the_parent_up_to_its_limit() {
        let parent = Budget::new(100 * KIB);
        let share = parent.share(10 * KIB, 50 * KIB);
        settled(&parent, 10 * KIB).await;
        let mut held = share.reserve(10 * KIB).await;
        held.merge(share.reserve(40 * KIB).await);
        assert_eq!((share.used(), parent.used()), (50 * KIB, 50 * KIB));
        assert!(share.try_reserve(1).is_none());
        drop(held.split(15 * KIB));
        assert_eq!((share.used(), parent.used()), (35 * KIB, 45 * KIB));
        drop(held);
        assert_eq!((share.used(), parent.used()), (0, 10 * KIB));
    }

    #[tokio::test]
    async fn a_waiter_gets_the_floor_or_the_parent_whichever_is_free_first() {
        let parent = Budget::new(100 * KIB);
        let share = parent.share(10 * KIB, 50 * KIB);
        settled(&parent, 10 * KIB).await;
        let others = parent.reserve(90 * KIB).await;
        let floor = share.reserve(10 * KIB).await;
        let mut waiting = Box::pin(share.reserve(5 * KIB));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(floor);
        let by_floor = waiting.await;
        let mut waiting = Box::pin(share.reserve(8 * KIB));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(others);
        drop((waiting.await, by_floor));
        assert_eq!((share.used(), parent.used()), (0, 10 * KIB));
    }

    #[tokio::test]
    async fn a_reservation_larger_than_the_floor_may_take_all_of_it() {
        let parent = Budget::new(100 * KIB);
        let share = parent.share(10 * KIB, 50 * KIB);
        settled(&parent, 10 * KIB).await;
        let _others = parent.reserve(90 * KIB).await;
        let mut large = share.reserve(30 * KIB).await;
        assert_eq!(large.bytes(), 30 * KIB);
        assert!(share.try_reserve(1).is_none());
        drop(large.split(20 * KIB));
        drop(large);
        assert_eq!(share.used(), 0);
        assert!(share.try_reserve(10 * KIB).is_some());
    }

    #[tokio::test]
    async fn reservations_exceed_their_floors_by_no_more_than_the_excess() {
        let parent = Budget::with_excess(100 * KIB, 20 * KIB);
        let shares = [0; 3].map(|_| parent.share(10 * KIB, 50 * KIB));
        settled(&parent, 30 * KIB).await;
        let others = parent.reserve(70 * KIB).await;
        let large = [shares[0].reserve(20 * KIB).await, shares[1].reserve(20 * KIB).await];
        assert!(shares[2].try_reserve(20 * KIB).is_none());
        let mut waiting = Box::pin(shares[2].reserve(20 * KIB));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(large);
        drop(waiting.await);
        drop(others);
        assert!(shares.iter().all(|share| share.used() == 0));
        assert_eq!(parent.used(), 30 * KIB);
    }

    #[tokio::test]
    async fn dropping_a_share_gives_its_floor_back() {
        let parent = Budget::new(100 * KIB);
        let share = parent.share(10 * KIB, 50 * KIB);
        settled(&parent, 10 * KIB).await;
        drop(share);
        settled(&parent, 0).await;
    }
}
