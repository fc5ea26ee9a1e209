//! Accounting: which blocks of which volume lie on one disk, or in memory.
//!
//! Never touches a file.

mod index;

use std::collections::BTreeMap;

use super::eviction::Eviction;
use crate::chunk::BlockKey;
use index::Index;
pub use index::IndexEntry;

/// Identifies the account of one volume on one disk. A cache never reuses one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub u32);

/// The accounts of all volumes on a disk.
#[derive(Debug)]
pub struct Accounting {
    pub(super) accounts: BTreeMap<AccountId, Account>,
    pub(super) eviction: Eviction,
    /// Counted for each block besides its bytes.
    overhead: u64,
    bytes: u64,
    blocks: u64,
}

/// The blocks of one volume on a disk.
#[derive(Debug)]
pub struct Account {
    pub(super) index: Index,
    /// Without staged blocks, which cannot be evicted.
    pub(super) bytes: u64,
    staged_bytes: u64,
    pub(super) share: Option<u64>,
    /// The number of the last scan that began.
    mark: u8,
    /// Whether the index holds every block on the disk.
    complete: bool,
}

/// What a volume has on a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeUsage {
    pub blocks: u64,
    pub bytes: u64,
    pub staged_blocks: u64,
    pub staged_bytes: u64,
}

impl Accounting {
    pub fn new(eviction: Eviction, overhead: u64) -> Self {
        Self { accounts: BTreeMap::new(), eviction, overhead, bytes: 0, blocks: 0 }
    }

    /// Opens an account. It is `complete` if the disk cannot hold blocks that are not in it.
    pub fn open(&mut self, id: AccountId, share: Option<u64>, complete: bool) {
        let index = Index::new();
        let account = Account { index, bytes: 0, staged_bytes: 0, share, mark: 0, complete };
        self.accounts.insert(id, account);
    }

    pub fn close(&mut self, id: AccountId) {
        if let Some(account) = self.accounts.remove(&id) {
            self.bytes -= account.bytes;
            self.blocks -= account.index.len() as u64;
        }
    }

    pub fn set_share(&mut self, id: AccountId, share: Option<u64>) {
        if let Some(account) = self.accounts.get_mut(&id) {
            account.share = share;
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    pub fn usage(&self, id: AccountId) -> VolumeUsage {
        let Some(account) = self.accounts.get(&id) else { return VolumeUsage::default() };
        VolumeUsage {
            blocks: account.index.len() as u64,
            bytes: account.bytes,
            staged_blocks: (account.index.len() - account.index.evictable()) as u64,
            staged_bytes: account.staged_bytes,
        }
    }

    /// Whether a block that is not in the account is not on the disk either.
    pub fn is_complete(&self, id: AccountId) -> bool {
        self.accounts.get(&id).is_none_or(|account| account.complete)
    }

    pub fn find(&self, id: AccountId, block: BlockKey) -> Option<IndexEntry> {
        self.accounts.get(&id)?.index.find(block)
    }

    /// Finds a block that the running scan has seen, or that was added since the scan began.
    pub fn find_seen(&self, id: AccountId, block: BlockKey) -> Option<IndexEntry> {
        let account = self.accounts.get(&id)?;
        let (entry, mark) = account.index.find_marked(block)?;
        (mark == account.mark).then_some(entry)
    }

    pub fn touch(&mut self, id: AccountId, block: BlockKey, now: u32) -> Option<IndexEntry> {
        self.accounts.get_mut(&id)?.index.touch(block, now)
    }

    pub fn insert(&mut self, id: AccountId, entry: IndexEntry) {
        let Some(account) = self.accounts.get_mut(&id) else { return };
        let cost = u64::from(entry.block.size) + self.overhead;
        let before = account.index.insert(entry, account.mark);
        match before {
            Some(IndexEntry { staged: true, .. }) => account.staged_bytes -= cost,
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

    pub fn remove(&mut self, id: AccountId, block: BlockKey) -> Option<IndexEntry> {
        let account = self.accounts.get_mut(&id)?;
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

    /// Begins a scan of the disk. Blocks that it does not see are removed at its end.
    pub fn begin_scan(&mut self, id: AccountId) {
        if let Some(account) = self.accounts.get_mut(&id) {
            account.mark = account.mark.wrapping_add(1);
        }
    }

    /// Ends a scan that has seen every block on the disk.
    pub fn end_scan(&mut self, id: AccountId) {
        let Some(account) = self.accounts.get_mut(&id) else { return };
        account.complete = true;
        if self.eviction == Eviction::Lru {
            account.index.reorder();
        }
    }

    /// Visits up to `count` entries below number `from` and removes those for which `drop` returns
    /// true. `drop` also gets whether the last scan missed the block. Returns where to continue, 0
    /// at the end, and the removed blocks.
    pub fn sweep(
        &mut self,
        id: AccountId,
        from: usize,
        count: usize,
        mut drop: impl FnMut(IndexEntry, bool) -> bool,
    ) -> (usize, Vec<BlockKey>) {
        let Some(account) = self.accounts.get(&id) else { return (0, Vec::new()) };
        let (end, mark) = (from.min(account.index.len()), account.mark);
        let start = end.saturating_sub(count);
        let visited = (start..end).filter_map(|slot| account.index.at(slot));
        let dropped: Vec<BlockKey> = visited
            .filter(|(entry, seen)| drop(*entry, *seen != mark))
            .map(|(entry, _)| entry.block)
            .collect();
        for block in &dropped {
            self.remove(id, *block);
        }
        (start, dropped)
    }

    pub fn len(&self, id: AccountId) -> usize {
        self.accounts.get(&id).map_or(0, |account| account.index.len())
    }
}

#[cfg(test)]
pub(super) mod tests;
