//! What lies on one disk (or in memory), volume by volume, and who makes room.
//!
//! Counts and chooses; never touches a file.

use std::collections::BTreeMap;

use super::index::{Entry, Index};
use super::options::Eviction;
use crate::chunk::BlockKey;

/// A volume within its fair part loses only blocks that it has not used for that long (seconds).
const PROTECTED: u32 = 600;

/// Stands for one volume on one disk; never used twice by a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AreaId(pub u32);

/// Bytes and blocks to shrink to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    pub bytes: u64,
    pub blocks: u64,
}

/// All volumes of a disk.
#[derive(Debug)]
pub struct Ledger {
    accounts: BTreeMap<AreaId, Account>,
    eviction: Eviction,
    /// Counted for each block besides its bytes.
    overhead: u64,
    bytes: u64,
    blocks: u64,
}

/// One volume.
#[derive(Debug)]
struct Account {
    index: Index,
    /// Without staged blocks: those cannot be given up.
    bytes: u64,
    staged_bytes: u64,
    share: Option<u64>,
    mark: u8,
    /// Whether the index holds all that there is.
    complete: bool,
}

/// What a volume has on a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holding {
    pub blocks: u64,
    pub bytes: u64,
    pub staged_blocks: u64,
    pub staged_bytes: u64,
}

impl Ledger {
    pub fn new(eviction: Eviction, overhead: u64) -> Self {
        Self { accounts: BTreeMap::new(), eviction, overhead, bytes: 0, blocks: 0 }
    }

    /// Opens an account. It is `complete` if there can be nothing that it does not know.
    pub fn open(&mut self, area: AreaId, share: Option<u64>, complete: bool) {
        let index = Index::new();
        let account = Account { index, bytes: 0, staged_bytes: 0, share, mark: 0, complete };
        self.accounts.insert(area, account);
    }

    pub fn close(&mut self, area: AreaId) {
        if let Some(account) = self.accounts.remove(&area) {
            self.bytes -= account.bytes;
            self.blocks -= account.index.len() as u64;
        }
    }

    pub fn set_share(&mut self, area: AreaId, share: Option<u64>) {
        if let Some(account) = self.accounts.get_mut(&area) {
            account.share = share;
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    pub fn holding(&self, area: AreaId) -> Holding {
        let Some(account) = self.accounts.get(&area) else { return Holding::default() };
        Holding {
            blocks: account.index.len() as u64,
            bytes: account.bytes,
            staged_blocks: (account.index.len() - account.index.evictable()) as u64,
            staged_bytes: account.staged_bytes,
        }
    }

    /// Whether a block that is not found is not there.
    pub fn is_complete(&self, area: AreaId) -> bool {
        self.accounts.get(&area).is_none_or(|account| account.complete)
    }

    pub fn find(&self, area: AreaId, block: BlockKey) -> Option<Entry> {
        self.accounts.get(&area)?.index.find(block)
    }

    /// As [`Ledger::find`], if the running scan has seen it or it is newer than that.
    pub fn find_seen(&self, area: AreaId, block: BlockKey) -> Option<Entry> {
        let account = self.accounts.get(&area)?;
        let (entry, mark) = account.index.find_marked(block)?;
        (mark == account.mark).then_some(entry)
    }

    pub fn touch(&mut self, area: AreaId, block: BlockKey, now: u32) -> Option<Entry> {
        self.accounts.get_mut(&area)?.index.touch(block, now)
    }

    pub fn insert(&mut self, area: AreaId, entry: Entry) {
        let Some(account) = self.accounts.get_mut(&area) else { return };
        let cost = u64::from(entry.block.size) + self.overhead;
        let before = account.index.insert(entry, account.mark);
        match before {
            Some(Entry { staged: true, .. }) => account.staged_bytes -= cost,
            Some(_) => {
                account.bytes -= cost;
                self.bytes -= cost;
            }
            None => self.blocks += 1,
        }
        if entry.staged {
            account.staged_bytes += cost;
        } else {
            account.bytes += cost;
            self.bytes += cost;
        }
    }

    pub fn remove(&mut self, area: AreaId, block: BlockKey) -> Option<Entry> {
        let account = self.accounts.get_mut(&area)?;
        let entry = account.index.remove(block)?;
        let cost = u64::from(block.size) + self.overhead;
        self.blocks -= 1;
        if entry.staged {
            account.staged_bytes -= cost;
        } else {
            account.bytes -= cost;
            self.bytes -= cost;
        }
        Some(entry)
    }

    /// Takes blocks off the books until the goal is met or `limit` of them are chosen.
    pub fn evict(
        &mut self,
        goal: Goal,
        capacity: u64,
        now: u32,
        limit: usize,
    ) -> Vec<(AreaId, BlockKey)> {
        let mut chosen = Vec::new();
        while chosen.len() < limit && (self.bytes > goal.bytes || self.blocks > goal.blocks) {
            let Some((area, entry)) = self.victim(capacity, now) else { break };
            self.remove(area, entry.block);
            chosen.push((area, entry.block));
        }
        chosen
    }

    /// Begins a scan: what it does not find is forgotten at its end.
    pub fn begin_scan(&mut self, area: AreaId) {
        if let Some(account) = self.accounts.get_mut(&area) {
            account.mark = account.mark.wrapping_add(1);
        }
    }

    /// Ends a scan: everything that there is has been found.
    pub fn end_scan(&mut self, area: AreaId) {
        let Some(account) = self.accounts.get_mut(&area) else { return };
        account.complete = true;
        if self.eviction == Eviction::Lru {
            account.index.reorder();
        }
    }

    /// Looks at up to `count` entries below number `from` and takes those off the books that `drop`
    /// names; it is told whether the last scan missed them. Answers where to go on; 0 is the end.
    pub fn sweep(
        &mut self,
        area: AreaId,
        from: usize,
        count: usize,
        mut drop: impl FnMut(Entry, bool) -> bool,
    ) -> (usize, Vec<BlockKey>) {
        let Some(account) = self.accounts.get(&area) else { return (0, Vec::new()) };
        let (end, mark) = (from.min(account.index.len()), account.mark);
        let start = end.saturating_sub(count);
        let looked = (start..end).filter_map(|slot| account.index.at(slot));
        let dropped: Vec<BlockKey> = looked
            .filter(|(entry, seen)| drop(*entry, *seen != mark))
            .map(|(entry, _)| entry.block)
            .collect();
        for block in &dropped {
            self.remove(area, *block);
        }
        (start, dropped)
    }

    pub fn len(&self, area: AreaId) -> usize {
        self.accounts.get(&area).map_or(0, |account| account.index.len())
    }

    /// The next block to go: of a volume over its share; else of the one furthest over its fair
    /// part of the disk, unless another has something older that it no longer uses; else of any.
    fn victim(&self, capacity: u64, now: u32) -> Option<(AreaId, Entry)> {
        let open = || self.accounts.iter().filter(|(_, account)| account.index.evictable() > 0);
        let excess = |limit: &dyn Fn(&Account) -> u64| {
            let over = open().map(|(area, account)| {
                (account.bytes.saturating_sub(limit(account)), *area, account)
            });
            over.filter(|(excess, ..)| *excess > 0).max_by_key(|(excess, ..)| *excess)
        };
        if let Some((_, area, account)) = excess(&|account| account.share.unwrap_or(u64::MAX)) {
            return Some((area, self.choose(account)?));
        }
        let fair = capacity / (self.accounts.len() as u64).max(1);
        let any = self.any_of(open())?;
        let Some((_, area, account)) = excess(&|_| fair) else { return Some(any) };
        let greedy = (area, self.choose(account)?);
        let unused = any.1.atime.saturating_add(PROTECTED) < now;
        Some(if unused && any.1.atime < greedy.1.atime { any } else { greedy })
    }

    /// A block of any volume, of the larger ones more often.
    fn any_of<'a>(
        &'a self,
        accounts: impl Iterator<Item = (&'a AreaId, &'a Account)>,
    ) -> Option<(AreaId, Entry)> {
        let chosen = accounts.filter_map(|(area, account)| Some((*area, self.choose(account)?)));
        if self.eviction == Eviction::Lru {
            return chosen.min_by_key(|(_, entry)| entry.atime);
        }
        let weighed = chosen.map(|(area, entry)| {
            let weight = self.accounts.get(&area).map_or(0, |account| account.index.evictable());
            // The largest of these is each one's as often as its weight says.
            (rand::random::<f64>().ln() / weight as f64, area, entry)
        });
        let (_, area, entry) = weighed.max_by(|one, other| one.0.total_cmp(&other.0))?;
        Some((area, entry))
    }

    fn choose(&self, account: &Account) -> Option<Entry> {
        match self.eviction {
            Eviction::TwoRandom => account.index.older_of_two(),
            Eviction::Lru => account.index.least_recent(),
            Eviction::None => None,
        }
    }
}

#[cfg(test)]
mod tests;
