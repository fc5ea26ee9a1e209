//! Looking at what really lies on a disk: blocks of earlier runs and of other clients, and what was
//! left behind by those that died.

use std::fs::{self, DirEntry, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::file::{BlockFile, is_draft};
use super::health::State;
use super::index::Entry;
use super::layout::Shape;
use super::options::Checksum;
use super::shelf::Shelf;
use crate::chunk::BlockKey;

/// Drafts and empty directories younger than this may still be in use, by this client or any other that
/// shares the directory, the Go client among them. A draft is written in one go, and each write makes it
/// young again, so an older one is nobody's; and whoever comes back to it after all finds it gone, and
/// uploads the block instead.
pub const LEFT_BEHIND: Duration = Duration::from_mins(1);
/// Entries that are swept in one go, between which others get at the books.
const SWEEP: usize = 10_000;
/// `chunks`, two levels of directories, files.
const DEPTH: usize = 4;

impl Shelf {
    /// Removes drafts that nobody will finish. Blocks.
    pub fn clear_drafts(&self, stop: &AtomicBool) {
        for root in [self.area.staging(), self.area.raw()] {
            self.walk(&root, stop, &mut |_, _| {});
        }
    }

    /// Brings the books up to date. Blocks, for long if there is much; ends early if told to stop.
    /// Answers whether it has come upon drafts that may be left behind or not.
    pub fn scan(&self, stop: &AtomicBool) -> bool {
        let area = self.area.id;
        self.disk.books().ledger.begin_scan(area);
        // Staged blocks first, so that none is ever taken for one that can go.
        let mut drafts = self.walk(&self.area.staging(), stop, &mut |block, metadata| {
            self.found_staged(block, metadata);
        });
        drafts |= self.walk(&self.area.raw(), stop, &mut |block, metadata| {
            let mut books = self.disk.books();
            let known = books.ledger.find_seen(area, block);
            if known.is_some_and(|entry| entry.staged) {
                return;
            }
            if metadata.nlink() > 1 {
                drop(books);
                self.found_staged(block, metadata);
            } else {
                books.ledger.insert(area, Entry { block, atime: atime(metadata), staged: false });
            }
        });
        self.tidy();
        if self.is_stopped(stop) {
            return drafts;
        }
        let mut from = self.disk.books().ledger.len(area);
        while from > 0 {
            (from, _) = self.disk.books().ledger.sweep(area, from, SWEEP, |_, missed| missed);
        }
        self.disk.books().ledger.end_scan(area);
        if self.disk.is_over() {
            self.disk.evict((0, 0));
        }
        drafts
    }

    /// Drops blocks that were not used since. Blocks.
    pub fn expire(&self, since: u32) {
        let area = self.area.id;
        let mut from = self.disk.books().ledger.len(area);
        while from > 0 {
            let old = |entry: Entry, _| !entry.staged && entry.atime < since;
            let (next, dropped) = self.disk.books().ledger.sweep(area, from, SWEEP, old);
            from = next;
            self.disk.discard(&dropped.iter().map(|block| (area, *block)).collect::<Vec<_>>());
        }
    }

    /// All blocks that are staged here, with their tiers, as the disk has them. Blocks.
    pub fn staged(&self, stop: &AtomicBool) -> Vec<(BlockKey, u8)> {
        let mut found = Vec::new();
        self.walk(&self.area.staging(), stop, &mut |block, metadata| {
            let has_footer =
                Shape::of(block.size, metadata.len()).is_none_or(|shape| shape.footer.is_some());
            // Damage shows when the block is read; the tier is then of no use.
            let tier = if has_footer { self.tier_of(block).unwrap_or(0) } else { 0 };
            found.push((block, tier));
        });
        found
    }

    /// Removes what was left behind beside the blocks: drafts of the lock file, probes.
    fn tidy(&self) {
        let probes = fs::read_dir(self.area.probe_dir()).into_iter().flatten();
        let drafts = fs::read_dir(self.area.root()).into_iter().flatten();
        let drafts = drafts.flatten().filter(|entry| is_draft(entry.file_name().as_bytes()));
        for entry in probes.flatten().chain(drafts) {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.modified().is_ok_and(|changed| changed < long_ago()) {
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
        let entry = Entry { block, atime: atime(metadata), staged: true };
        self.disk.books().ledger.insert(self.area.id, entry);
        // It may have been uploaded since it was found, and the books were right already.
        if !self.area.staged_path(block).exists() {
            self.disk.books().ledger.insert(self.area.id, Entry { staged: false, ..entry });
        }
    }

    fn tier_of(&self, block: BlockKey) -> Option<u8> {
        let path = self.area.staged_path(block);
        BlockFile::open(&path, block.size, Checksum::None).ok()?.tier().ok()
    }

    /// Visits the files of blocks below a directory and removes what was left behind. Answers whether
    /// there are drafts that are too young for that.
    fn walk(
        &self,
        root: &Path,
        stop: &AtomicBool,
        visit: &mut dyn FnMut(BlockKey, &Metadata),
    ) -> bool {
        let mut walk = Walk { shelf: self, stop, long_ago: long_ago(), drafts: false, visit };
        walk.dir(&root.join("chunks"), "chunks", DEPTH);
        walk.drafts
    }

    fn is_stopped(&self, stop: &AtomicBool) -> bool {
        stop.load(Ordering::Relaxed) || self.disk.state() == State::Down
    }
}

struct Walk<'a> {
    shelf: &'a Shelf,
    stop: &'a AtomicBool,
    long_ago: SystemTime,
    /// Young ones were seen.
    drafts: bool,
    visit: &'a mut dyn FnMut(BlockKey, &Metadata),
}

impl Walk<'_> {
    /// `key` is what the names of its blocks begin with; `depth` the levels below, files included.
    fn dir(&mut self, path: &Path, key: &str, depth: usize) {
        let Ok(entries) = self.shelf.disk.attempt(|| fs::read_dir(path)) else { return };
        for entry in entries.flatten() {
            if self.shelf.is_stopped(self.stop) {
                return;
            }
            self.entry(&entry, key, depth - 1);
        }
    }

    fn entry(&mut self, entry: &DirEntry, key: &str, depth: usize) {
        // Removed by someone else in the meantime.
        let Ok(metadata) = entry.metadata() else { return };
        let left_behind = metadata.modified().is_ok_and(|changed| changed < self.long_ago);
        let name = entry.file_name();
        let path = entry.path();
        if metadata.is_dir() {
            if let Some(name) = name.to_str().filter(|_| depth > 1) {
                self.dir(&path, &format!("{key}/{name}"), depth);
            }
            if left_behind {
                // Only works if it is empty.
                let _ = fs::remove_dir(&path);
            }
        } else if is_draft(name.as_bytes()) {
            if left_behind {
                let _ = fs::remove_file(&path);
            } else {
                self.drafts = true;
            }
        } else if let Some(block) =
            name.to_str().and_then(|name| self.shelf.area.layout.parse(&format!("{key}/{name}")))
        {
            (self.visit)(block, &metadata);
        }
    }
}

fn long_ago() -> SystemTime {
    SystemTime::now().checked_sub(LEFT_BEHIND).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn atime(metadata: &Metadata) -> u32 {
    u32::try_from(metadata.atime().max(0)).unwrap_or(u32::MAX)
}
