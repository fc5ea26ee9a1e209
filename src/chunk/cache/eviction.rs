//! Eviction: when blocks must go, how many, and which.
//!
//! The free space of a disk and the limits of the cache decide when and how many. The policy and the
//! shares of the volumes decide which.

use std::str::FromStr;
use std::sync::atomic::Ordering;

use super::accounting::{Account, AccountId, Accounting, IndexEntry};
use super::disk::free_space::Shortage;
use super::disk::health::HealthState;
use super::disk::{Disk, now};
use crate::chunk::BlockKey;
use crate::error::{Error, Result};

/// A volume within its fair share loses only blocks that it has not used for this many seconds.
const PROTECTED_SECONDS: u32 = 600;
/// Blocks evicted in one step. Others can lock the accounting between two steps.
const BATCH: usize = 256;

/// The eviction policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eviction {
    /// Of two random blocks, evicts the less recently used one.
    #[default]
    TwoRandom,
    /// Evicts the least recently used block.
    Lru,
    /// Evicts nothing: new blocks are dropped.
    None,
}

/// Bytes and blocks to shrink to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictionGoal {
    pub bytes: u64,
    pub blocks: u64,
}

/// A block that was chosen for eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim {
    pub account: AccountId,
    pub block: BlockKey,
}

impl FromStr for Eviction {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "2-random" => Self::TwoRandom,
            "lru" => Self::Lru,
            "none" => Self::None,
            _ => {
                return Err(Error::bad_input(format!(
                    "cache-eviction {text:?} is not one of 2-random, lru, none"
                )));
            }
        })
    }
}

impl Disk {
    /// Evicts blocks if there are too many or if the disk is nearly full. Blocking.
    pub fn make_room(&self) {
        if self.health_state() == HealthState::Down {
            return;
        }
        let Ok(space) = self.attempt(|| self.space.disk_space(self.dir())) else { return };
        let shortage = space.shortage(self.free_ratio);
        self.evict(shortage);
        let space = if shortage.is_none() {
            space
        } else {
            match self.attempt(|| self.space.disk_space(self.dir())) {
                Ok(space) => space,
                Err(_) => return,
            }
        };
        self.is_full.store(space.is_short(self.free_ratio), Ordering::Relaxed);
        self.is_full_for_staging.store(space.is_short(self.free_ratio / 2.0), Ordering::Relaxed);
    }

    /// Evicts as [`Disk::make_room`] does, and at least a few blocks: the disk has just refused a
    /// file.
    pub fn make_room_now(&self) {
        let some = self.lock_state().accounting.bytes() / 20;
        self.evict(Shortage { bytes: some.max(1), inodes: 0 });
        self.make_room();
    }

    /// Whether the limits of the cache are exceeded.
    pub fn is_over_limit(&self) -> bool {
        let state = self.lock_state();
        state.accounting.bytes() > self.capacity || state.accounting.blocks() > self.items
    }

    /// Evicts blocks until the limits of the cache hold.
    pub fn evict_to_limit(&self) {
        if self.is_over_limit() {
            self.evict(Shortage::default());
        }
    }

    fn evict(&self, shortage: Shortage) {
        if self.eviction == Eviction::None {
            return;
        }
        let goal = {
            let state = self.lock_state();
            let (bytes, blocks) = (state.accounting.bytes(), state.accounting.blocks());
            EvictionGoal {
                bytes: goal(bytes, self.capacity, shortage.bytes, 95),
                blocks: goal(blocks, self.items, shortage.inodes, 99),
            }
        };
        loop {
            let victims = self.lock_state().accounting.evict(goal, self.capacity, now(), BATCH);
            self.remove_files(&victims);
            if victims.len() < BATCH || self.health_state() == HealthState::Down {
                return;
            }
        }
    }
}

/// Returns what to shrink to so that the limit holds and at least `shortage` is freed. Shrinks to
/// `percent` of that, so that the next eviction is not needed at once.
fn goal(held: u64, limit: u64, shortage: u64, percent: u64) -> u64 {
    let reduced = |whole: u64| {
        let part = u128::from(whole) * u128::from(percent) / 100;
        u64::try_from(part).unwrap_or(whole)
    };
    let mut goal = held;
    if held > limit {
        goal = reduced(limit);
    }
    if shortage > 0 {
        goal = goal.min(reduced(held.saturating_sub(shortage)));
    }
    goal
}

impl Accounting {
    /// Chooses blocks and removes them from the accounting until the goal is reached or `limit`
    /// blocks are chosen.
    pub fn evict(
        &mut self,
        goal: EvictionGoal,
        capacity: u64,
        now: u32,
        limit: usize,
    ) -> Vec<Victim> {
        let mut chosen = Vec::new();
        while chosen.len() < limit && (self.bytes() > goal.bytes || self.blocks() > goal.blocks) {
            let Some((account, entry)) = self.victim(capacity, now) else { break };
            self.remove(account, entry.block);
            chosen.push(Victim { account, block: entry.block });
        }
        chosen
    }

    /// Returns the next block to evict: one of a volume over its share; otherwise one of the volume
    /// furthest over its fair share of the disk, unless another volume has an older block that it no
    /// longer uses; otherwise one of any volume.
    fn victim(&self, capacity: u64, now: u32) -> Option<(AccountId, IndexEntry)> {
        let evictable = || self.accounts.iter().filter(|(_, one)| one.index.evictable() > 0);
        let furthest_over = |limit: &dyn Fn(&Account) -> u64| {
            let over = evictable()
                .map(|(id, account)| (account.bytes.saturating_sub(limit(account)), *id, account));
            over.filter(|(excess, ..)| *excess > 0).max_by_key(|(excess, ..)| *excess)
        };
        if let Some((_, id, account)) = furthest_over(&|account| account.share.unwrap_or(u64::MAX))
        {
            return Some((id, self.choose(account)?));
        }
        let fair = capacity / (self.accounts.len() as u64).max(1);
        let any = self.any_of(evictable())?;
        let Some((_, id, account)) = furthest_over(&|_| fair) else { return Some(any) };
        let greedy = (id, self.choose(account)?);
        let is_unused = any.1.atime.saturating_add(PROTECTED_SECONDS) < now;
        Some(if is_unused && any.1.atime < greedy.1.atime { any } else { greedy })
    }

    /// Returns a block of any volume; larger volumes are chosen more often.
    fn any_of<'a>(
        &'a self,
        accounts: impl Iterator<Item = (&'a AccountId, &'a Account)>,
    ) -> Option<(AccountId, IndexEntry)> {
        let chosen = accounts.filter_map(|(id, account)| Some((*id, self.choose(account)?)));
        if self.eviction == Eviction::Lru {
            return chosen.min_by_key(|(_, entry)| entry.atime);
        }
        let weighed = chosen.map(|(id, entry)| {
            let weight = self.accounts.get(&id).map_or(0, |account| account.index.evictable());
            // Each volume has the largest of these values with a probability in proportion to its
            // weight.
            (rand::random::<f64>().ln() / weight as f64, id, entry)
        });
        let (_, id, entry) = weighed.max_by(|one, other| one.0.total_cmp(&other.0))?;
        Some((id, entry))
    }

    fn choose(&self, account: &Account) -> Option<IndexEntry> {
        match self.eviction {
            Eviction::TwoRandom => account.index.older_of_two(),
            Eviction::Lru => account.index.least_recent(),
            Eviction::None => None,
        }
    }
}

#[cfg(test)]
mod tests;
