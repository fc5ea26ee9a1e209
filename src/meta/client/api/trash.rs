//! The trash: finding, creating, emptying and restoring from its hour directories.

use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::sync::Mutex;
use tracing::warn;

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::engine::{Key, Record};
use crate::meta::op::names::create::{Create, CreateOutcome};
use crate::meta::op::names::rmdir::Rmdir;
use crate::meta::record::trash::Trashed;
use crate::meta::record::{Counter, Entry, FileKind, trash};
use crate::meta::{Caller, EntryRef, Ino, Name, RenameMode, Timestamp};

/// The current hour directory, so that a removal need not look it up.
#[derive(Default)]
pub struct HourDir {
    current: Mutex<Option<(Name, Ino)>>,
}

/// Hours that removed files stay beyond the configured days, since clocks differ.
const GRACE_HOURS: i64 = 2;

/// The outcome of restoring an hour directory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    pub restored: u64,
    /// Left in the trash: the parent is not in the same hour directory, and `put_back` was not set.
    pub skipped: u64,
    /// The name is taken.
    pub conflicts: u64,
    pub failed: u64,
}

impl Meta {
    /// The hour directory for something removed from `dir`, created if necessary; none if the trash
    /// is not used.
    pub(in crate::meta::client) async fn hour_dir_for(
        &self,
        dir: Ino,
        skip_trash: bool,
    ) -> Result<Option<Ino>> {
        if skip_trash || dir.is_trash() || self.context.setting().trash_days <= 0 {
            return Ok(None);
        }
        let name = trash::hour_name(Timestamp::now());
        let mut current = self.hour_dir.current.lock().await;
        if let Some((_, ino)) = current.as_ref().filter(|(known, _)| *known == name) {
            return Ok(Some(*ino));
        }
        let ino = match self.trash_entry(&name).await? {
            Some(entry) => entry.ino,
            None => self.create_hour_dir(&name).await?,
        };
        if !ino.is_sub_trash() {
            return Err(Error::damaged(format!("trash directory {name}"), format!("inode {ino}")));
        }
        *current = Some((name, ino));
        Ok(Some(ino))
    }

    async fn trash_entry(&self, name: &Name) -> Result<Option<Entry>> {
        let records = self.engine.read(&[Key::Entry(Ino::TRASH, name.clone())]).await?;
        match records.into_iter().next() {
            Some(Record::Entry(entry)) => Ok(entry),
            other => Err(Error::damaged("trash", format!("the engine returned {other:?}"))),
        }
    }

    async fn create_hour_dir(&self, name: &Name) -> Result<Ino> {
        let number = self.engine.add_counter(Counter::NextTrash, 1).await?;
        let op = Create {
            caller: &Caller::root(),
            dir: Ino::TRASH,
            name,
            kind: FileKind::Dir,
            mode: 0o555,
            umask: 0,
            rdev: 0,
            target: &Bytes::new(),
            ino: Ino(Ino::TRASH.0 + number.cast_unsigned()),
        };
        match self.run(&op).await? {
            CreateOutcome::Created(ino, _) | CreateOutcome::Existing(ino, _) => Ok(ino),
        }
    }

    /// Removes entries that have been in the trash for longer than the setting's days. Returns how
    /// many.
    pub async fn clean_trash(&self, now: i64) -> Result<u64> {
        let days = self.context.setting().trash_days;
        self.clean_trash_before(now - (days * 24 + GRACE_HOURS) * 3600).await
    }

    /// Removes every hour directory from before `edge` (unix seconds) with its entries.
    pub async fn clean_trash_before(&self, edge: i64) -> Result<u64> {
        let (mut removed, mut outcome) = (0, Ok(()));
        let mut hours = self.hours().await?;
        hours.sort_unstable_by_key(|(_, start, _)| *start);
        for (name, start, ino) in hours {
            if start >= edge {
                break;
            }
            let caller = Caller::root();
            let (count, emptied) = self.empty(&caller, ino).await;
            removed += count;
            let dropped = match emptied {
                Ok(()) => {
                    let op = Rmdir { caller: &caller, dir: Ino::TRASH, name: &name, hour: None };
                    self.run(&op).await.map(drop)
                }
                failed => failed,
            };
            // A failure in one hour does not prevent the cleanup of the others.
            outcome = outcome.and(dropped);
        }
        outcome.map(|()| removed)
    }

    /// All hour directories, each with the unix second at which its hour begins.
    pub async fn hours(&self) -> Result<Vec<(Name, i64, Ino)>> {
        let mut hours = Vec::new();
        let mut listing = self.list(Ino::TRASH, false);
        while let Some(page) = listing.next().await? {
            for entry in page {
                if let Some(start) = trash::parse_hour(&entry.name) {
                    hours.push((entry.name, start, entry.ino));
                }
            }
        }
        Ok(hours)
    }

    /// Moves the entries of an hour directory back: into directories that are in the same hour
    /// directory, or with `put_back` to where they were removed from. Moves `at_once` entries at a
    /// time.
    pub async fn restore(&self, hour: &Name, put_back: bool, at_once: usize) -> Result<Restored> {
        let entry = self.trash_entry(hour).await?.ok_or(Error::NotFound)?;
        let mut entries = Vec::new();
        let mut listing = self.list(entry.ino, false);
        while let Some(page) = listing.next().await? {
            entries.extend(page);
        }
        let dirs: std::collections::HashSet<Ino> =
            entries.iter().filter(|e| e.kind == FileKind::Dir).map(|e| e.ino).collect();
        let outcomes = stream::iter(entries).map(|kept| {
            let dirs = &dirs;
            async move {
                let Some(Trashed { parent, name, .. }) = Trashed::parse(&kept.name) else {
                    return RestoreOutcome::Failed;
                };
                if !put_back && !dirs.contains(&parent) {
                    return RestoreOutcome::Skipped;
                }
                let caller = Caller::root();
                let from = EntryRef::new(entry.ino, &kept.name);
                let to = EntryRef::new(parent, &name);
                match self.rename(&caller, from, to, RenameMode::Restore).await {
                    Ok(_) => RestoreOutcome::Restored,
                    Err(Error::Exists) => RestoreOutcome::Conflict,
                    Err(error) => {
                        warn!(entry = %kept.name, %error, "cannot restore an entry of the trash");
                        RestoreOutcome::Failed
                    }
                }
            }
        });
        let mut restored = Restored::default();
        let mut outcomes = outcomes.buffer_unordered(at_once.max(1));
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                RestoreOutcome::Restored => restored.restored += 1,
                RestoreOutcome::Skipped => restored.skipped += 1,
                RestoreOutcome::Conflict => restored.conflicts += 1,
                RestoreOutcome::Failed => restored.failed += 1,
            }
        }
        Ok(restored)
    }
}

enum RestoreOutcome {
    Restored,
    Skipped,
    Conflict,
    Failed,
}
