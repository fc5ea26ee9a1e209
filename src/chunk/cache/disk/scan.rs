//! Scans of a disk: finds blocks of earlier runs and of other clients, and removes what crashed
//! clients left behind.

use std::fs::{self, DirEntry, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::health::HealthState;
use super::volume_disk::VolumeDisk;
use crate::chunk::BlockKey;
use crate::chunk::cache::accounting::IndexEntry;
use crate::chunk::cache::block_file::format::Trailer;
use crate::chunk::cache::block_file::{BlockFile, is_draft};
use crate::chunk::cache::eviction::Victim;
use crate::chunk::cache::options::Checksum;

/// Drafts and empty directories younger than this may still be in use, by this client or by any
/// other on the same directory, including the Go client. A draft is written in one go, and each
/// write updates its time, so an older draft is abandoned. A writer that continues it after all
/// finds it missing, and uploads the block instead.
pub const STALE_AFTER: Duration = Duration::from_mins(1);
/// Entries swept in one step. Others can lock the accounting between two steps.
const SWEEP: usize = 10_000;
/// Levels: `chunks`, two levels of directories, and files.
const DEPTH: usize = 4;

impl VolumeDisk {
    /// Removes abandoned drafts. Blocking.
    pub fn remove_stale_drafts(&self, stop: &AtomicBool) {
        for root in [self.dir.staging(), self.dir.raw()] {
            self.walk(&root, stop, &mut |_, _| {});
        }
    }

    /// Brings the accounting up to date. Blocking, for long if there are many blocks; ends early if
    /// `stop` is set. Returns whether there are drafts too young to be removed.
    pub fn scan(&self, stop: &AtomicBool) -> bool {
        let id = self.dir.id;
        self.disk.lock_state().accounting.begin_scan(id);
        // Staged blocks first, so that none is ever mistaken for an evictable one.
        let mut drafts = self.walk(&self.dir.staging(), stop, &mut |block, metadata| {
            self.found_staged(block, metadata);
        });
        drafts |= self.walk(&self.dir.raw(), stop, &mut |block, metadata| {
            let mut state = self.disk.lock_state();
            let known = state.accounting.find_seen(id, block);
            if known.is_some_and(|entry| entry.staged) {
                return;
            }
            if metadata.nlink() > 1 {
                drop(state);
                self.found_staged(block, metadata);
            } else {
                state
                    .accounting
                    .insert(id, IndexEntry { block, atime: atime(metadata), staged: false });
            }
        });
        self.remove_other_leftovers();
        if self.is_stopped(stop) {
            return drafts;
        }
        let mut from = self.disk.lock_state().accounting.len(id);
        while from > 0 {
            (from, _) =
                self.disk.lock_state().accounting.sweep(id, from, SWEEP, |_, missed| missed);
        }
        self.disk.lock_state().accounting.end_scan(id);
        self.disk.evict_to_limit();
        drafts
    }

    /// Drops blocks that were not used since the given time. Blocking.
    pub fn expire(&self, since: u32) {
        let id = self.dir.id;
        let mut from = self.disk.lock_state().accounting.len(id);
        while from > 0 {
            let old = |entry: IndexEntry, _| !entry.staged && entry.atime < since;
            let (next, dropped) = self.disk.lock_state().accounting.sweep(id, from, SWEEP, old);
            from = next;
            let victims = dropped.into_iter().map(|block| Victim { account: id, block });
            self.disk.remove_files(&victims.collect::<Vec<_>>());
        }
    }

    /// Returns all blocks that are staged here, with their tiers, as found on the disk. Blocking.
    pub fn staged(&self, stop: &AtomicBool) -> Vec<(BlockKey, u8)> {
        let mut found = Vec::new();
        self.walk(&self.dir.staging(), stop, &mut |block, metadata| {
            let has_footer = Trailer::of(block.size, metadata.len())
                .is_none_or(|trailer| trailer.footer.is_some());
            // Damage is detected when the block is read; the tier is not needed then.
            let tier = if has_footer { self.tier_of(block).unwrap_or(0) } else { 0 };
            found.push((block, tier));
        });
        found
    }

    /// Removes abandoned files beside the blocks: drafts of the lock file, and probes.
    fn remove_other_leftovers(&self) {
        let probes = fs::read_dir(self.dir.probe_dir()).into_iter().flatten();
        let drafts = fs::read_dir(self.dir.root()).into_iter().flatten();
        let drafts = drafts.flatten().filter(|entry| is_draft(entry.file_name().as_bytes()));
        for entry in probes.flatten().chain(drafts) {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.modified().is_ok_and(|changed| changed < stale_before()) {
                let path = entry.path();
                let _ = if metadata.is_dir() {
                    fs::remove_dir_all(path)
                } else {
                    fs::remove_file(path)
                };
            }
        }
    }

    fn found_staged(&self, block: BlockKey, metadata: &Metadata) {
        let entry = IndexEntry { block, atime: atime(metadata), staged: true };
        self.disk.lock_state().accounting.insert(self.dir.id, entry);
        // It may have been uploaded since it was found, and the accounting was right before.
        if !self.dir.staged_path(block).exists() {
            self.disk
                .lock_state()
                .accounting
                .insert(self.dir.id, IndexEntry { staged: false, ..entry });
        }
    }

    fn tier_of(&self, block: BlockKey) -> Option<u8> {
        let path = self.dir.staged_path(block);
        BlockFile::open(&path, block.size, Checksum::None).ok()?.tier().ok()
    }

    /// Visits the block files below a directory and removes abandoned drafts and directories.
    /// Returns whether there are drafts too young to be removed.
    fn walk(
        &self,
        root: &Path,
        stop: &AtomicBool,
        visit: &mut dyn FnMut(BlockKey, &Metadata),
    ) -> bool {
        let mut walk =
            Walk { volume_disk: self, stop, stale_before: stale_before(), drafts: false, visit };
        walk.dir(&root.join("chunks"), "chunks", DEPTH);
        walk.drafts
    }

    fn is_stopped(&self, stop: &AtomicBool) -> bool {
        stop.load(Ordering::Relaxed) || self.disk.health_state() == HealthState::Down
    }
}

struct Walk<'a> {
    volume_disk: &'a VolumeDisk,
    stop: &'a AtomicBool,
    stale_before: SystemTime,
    /// Whether drafts too young to be removed were seen.
    drafts: bool,
    visit: &'a mut dyn FnMut(BlockKey, &Metadata),
}

impl Walk<'_> {
    /// `key` is the prefix of the keys below `path`; `depth` is the number of levels below,
    /// including files.
    fn dir(&mut self, path: &Path, key: &str, depth: usize) {
        let Ok(entries) = self.volume_disk.disk.attempt(|| fs::read_dir(path)) else { return };
        for entry in entries.flatten() {
            if self.volume_disk.is_stopped(self.stop) {
                return;
            }
            self.entry(&entry, key, depth - 1);
        }
    }

    fn entry(&mut self, entry: &DirEntry, key: &str, depth: usize) {
        // Removed by another client meanwhile.
        let Ok(metadata) = entry.metadata() else { return };
        let is_stale = metadata.modified().is_ok_and(|changed| changed < self.stale_before);
        let name = entry.file_name();
        let path = entry.path();
        if metadata.is_dir() {
            if let Some(name) = name.to_str().filter(|_| depth > 1) {
                self.dir(&path, &format!("{key}/{name}"), depth);
            }
            if is_stale {
                // Succeeds only if it is empty.
                let _ = fs::remove_dir(&path);
            }
        } else if is_draft(name.as_bytes()) {
            if is_stale {
                let _ = fs::remove_file(&path);
            } else {
                self.drafts = true;
            }
        } else if let Some(block) = name
            .to_str()
            .and_then(|name| self.volume_disk.dir.layout.parse(&format!("{key}/{name}")))
        {
            (self.visit)(block, &metadata);
        }
    }
}

fn stale_before() -> SystemTime {
    SystemTime::now().checked_sub(STALE_AFTER).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn atime(metadata: &Metadata) -> u32 {
    u32::try_from(metadata.atime().max(0)).unwrap_or(u32::MAX)
}
