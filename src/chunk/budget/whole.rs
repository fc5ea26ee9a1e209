//! What a budget is a part of, and how a part draws on it.

use std::sync::{Arc, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use super::{Budget, Reserved, UNIT};

pub struct Whole {
    budget: Arc<Budget>,
    floor: Option<Floor>,
}

/// What a part has whatever others hold.
struct Floor {
    units: Arc<Semaphore>,
    total: usize,
    /// The same bytes of the whole, which nobody else gets.
    _taken: Arc<OnceLock<Reserved>>,
    _taking: AbortOnDropHandle<()>,
}

/// What floors may stand for beyond what they are.
#[derive(Clone)]
pub struct Excess {
    units: Arc<Semaphore>,
    total: usize,
}

/// What was drawn for one reservation: from the floor, from the whole, or, after a merge, both.
pub struct Drawn {
    floor: Option<OwnedSemaphorePermit>,
    /// What the floor was too small for.
    excess: Option<OwnedSemaphorePermit>,
    whole: Option<Box<Reserved>>,
}

impl Whole {
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

    pub fn try_draw(&self, units: u32) -> Option<Drawn> {
        let of_whole = || self.budget.try_reserve(units as usize * UNIT).map(Drawn::of_whole);
        let Some(floor) = &self.floor else { return of_whole() };
        // What fits leaves the whole to others. What does not is better off there.
        if units <= floor.covering(units) {
            floor.try_draw(units, &self.budget.excess).or_else(of_whole)
        } else {
            of_whole().or_else(|| floor.try_draw(units, &self.budget.excess))
        }
    }

    /// Whichever has room first. All of it comes from one of them: who held a part of one while waiting
    /// for the other could keep both from moving.
    pub async fn draw(&self, units: u32) -> Drawn {
        if let Some(drawn) = self.try_draw(units) {
            return drawn;
        }
        let whole = Box::pin(self.budget.reserve(units as usize * UNIT));
        let Some(floor) = &self.floor else { return Drawn::of_whole(whole.await) };
        tokio::select! {
            biased;
            Some(drawn) = floor.draw(units, &self.budget.excess) => drawn,
            reserved = whole => Drawn::of_whole(reserved),
        }
    }
}

impl Floor {
    fn new(budget: &Arc<Budget>, total: usize) -> Self {
        let taken: Arc<OnceLock<Reserved>> = Arc::default();
        let (whole, place) = (Arc::clone(budget), Arc::clone(&taken));
        let taking = tokio::spawn(async move {
            let _ = place.set(whole.reserve(total * UNIT).await);
        });
        Self {
            units: Arc::new(Semaphore::new(total)),
            total,
            _taken: taken,
            _taking: AbortOnDropHandle::new(taking),
        }
    }

    fn try_draw(&self, units: u32, excess: &Excess) -> Option<Drawn> {
        let covering = self.covering(units);
        let permit = self.units.clone().try_acquire_many_owned(covering).ok()?;
        let rest = excess.covering(units - covering);
        let rest = excess.units.clone().try_acquire_many_owned(rest).ok()?;
        Some(Drawn::of_floor(permit, rest))
    }

    async fn draw(&self, units: u32, excess: &Excess) -> Option<Drawn> {
        let covering = self.covering(units);
        let permit = self.units.clone().acquire_many_owned(covering).await.ok()?;
        let rest = excess.covering(units - covering);
        let rest = excess.units.clone().acquire_many_owned(rest).await.ok()?;
        Some(Drawn::of_floor(permit, rest))
    }

    /// What stands for so many units: no more than there is.
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

impl Drawn {
    fn of_floor(permit: OwnedSemaphorePermit, excess: OwnedSemaphorePermit) -> Self {
        Self { floor: Some(permit), excess: Some(excess), whole: None }
    }

    fn of_whole(reserved: Reserved) -> Self {
        Self { floor: None, excess: None, whole: Some(Box::new(reserved)) }
    }

    pub fn merge(&mut self, other: Self) {
        for (mine, permit) in [(&mut self.floor, other.floor), (&mut self.excess, other.excess)] {
            match (mine, permit) {
                (Some(mine), Some(permit)) => mine.merge(permit),
                (mine @ None, permit) => *mine = permit,
                (Some(_), None) => {}
            }
        }
        match (&mut self.whole, other.whole) {
            (Some(mine), Some(reserved)) => mine.merge(*reserved),
            (mine @ None, reserved) => *mine = reserved,
            (Some(_), None) => {}
        }
    }

    /// Takes so many units out of it, as far as there are: a floor may stand for more than it is.
    pub fn split(&mut self, units: usize) -> Self {
        let mut left = units;
        let mut take = |permit: &mut Option<OwnedSemaphorePermit>| {
            let permit = permit.as_mut()?;
            let part = left.min(permit.num_permits());
            left -= part;
            permit.split(part)
        };
        let (excess, floor) = (take(&mut self.excess), take(&mut self.floor));
        let whole = self.whole.as_mut().and_then(|whole| {
            let part = (left * UNIT).min(whole.bytes());
            whole.split(part).map(Box::new)
        });
        Self { floor, excess, whole }
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
    async fn a_floor_is_there_whatever_others_hold() {
        let whole = Budget::new(100 * KIB);
        let others = whole.reserve(100 * KIB).await;
        let share = whole.share(10 * KIB, 50 * KIB);
        let held = share.reserve(10 * KIB).await;
        assert!(share.try_reserve(1).is_none());
        drop(others);
        // Now it is taken from the whole as well.
        settled(&whole, 10 * KIB).await;
        assert_eq!(share.used(), 10 * KIB);
        drop(held);
        assert_eq!((share.used(), whole.used()), (0, 10 * KIB));
    }

    #[tokio::test]
    async fn above_its_floor_a_share_draws_on_the_whole_up_to_its_limit() {
        let whole = Budget::new(100 * KIB);
        let share = whole.share(10 * KIB, 50 * KIB);
        settled(&whole, 10 * KIB).await;
        let mut held = share.reserve(10 * KIB).await;
        held.merge(share.reserve(40 * KIB).await);
        assert_eq!((share.used(), whole.used()), (50 * KIB, 50 * KIB));
        assert!(share.try_reserve(1).is_none());
        drop(held.split(15 * KIB));
        assert_eq!((share.used(), whole.used()), (35 * KIB, 45 * KIB));
        drop(held);
        assert_eq!((share.used(), whole.used()), (0, 10 * KIB));
    }

    #[tokio::test]
    async fn who_waits_gets_the_floor_or_the_whole_whichever_comes_first() {
        let whole = Budget::new(100 * KIB);
        let share = whole.share(10 * KIB, 50 * KIB);
        settled(&whole, 10 * KIB).await;
        let others = whole.reserve(90 * KIB).await;
        let floor = share.reserve(10 * KIB).await;
        let mut waiting = Box::pin(share.reserve(5 * KIB));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(floor);
        let by_floor = waiting.await;
        let mut waiting = Box::pin(share.reserve(8 * KIB));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(others);
        drop((waiting.await, by_floor));
        assert_eq!((share.used(), whole.used()), (0, 10 * KIB));
    }

    #[tokio::test]
    async fn more_than_the_floor_may_have_all_of_it() {
        let whole = Budget::new(100 * KIB);
        let share = whole.share(10 * KIB, 50 * KIB);
        settled(&whole, 10 * KIB).await;
        let _others = whole.reserve(90 * KIB).await;
        let mut large = share.reserve(30 * KIB).await;
        assert_eq!(large.bytes(), 30 * KIB);
        assert!(share.try_reserve(1).is_none());
        drop(large.split(20 * KIB));
        drop(large);
        assert_eq!(share.used(), 0);
        assert!(share.try_reserve(10 * KIB).is_some());
    }

    #[tokio::test]
    async fn floors_stand_for_no_more_than_the_excess_that_is_allowed() {
        let whole = Budget::with_excess(100 * KIB, 20 * KIB);
        let shares = [0; 3].map(|_| whole.share(10 * KIB, 50 * KIB));
        settled(&whole, 30 * KIB).await;
        let others = whole.reserve(70 * KIB).await;
        let large = [shares[0].reserve(20 * KIB).await, shares[1].reserve(20 * KIB).await];
        assert!(shares[2].try_reserve(20 * KIB).is_none());
        let mut waiting = Box::pin(shares[2].reserve(20 * KIB));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(large);
        drop(waiting.await);
        drop(others);
        assert!(shares.iter().all(|share| share.used() == 0));
        assert_eq!(whole.used(), 30 * KIB);
    }

    #[tokio::test]
    async fn a_share_that_is_gone_gives_its_floor_back() {
        let whole = Budget::new(100 * KIB);
        let share = whole.share(10 * KIB, 50 * KIB);
        settled(&whole, 10 * KIB).await;
        drop(share);
        settled(&whole, 0).await;
    }
}
