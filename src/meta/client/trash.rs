//! The trash's hour directories: finding, making, emptying and restoring from them.

use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::sync::Mutex;

use super::{Caller, Meta};
use crate::error::{Error, Result};
use crate::meta::engine::{Key, Record};
use crate::meta::op::make::{Made, Make};
use crate::meta::op::rename::RenameMode;
use crate::meta::op::rmdir::Rmdir;
use crate::meta::record::trash::Trashed;
use crate::meta::record::{Counter, Entry, FileKind, trash};
use crate::meta::{Ino, Name, Timestamp};

/// The hour directory in use, so that a removal needs no look-up of it.
#[derive(Default)]
pub struct HourDir {
    current: Mutex<Option<(Name, Ino)>>,
}

/// Hours that stay beyond the trash's days, for clocks that differ.
const GRACE_HOURS: i64 = 2;

/// What came of restoring an hour.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    pub restored: u64,
    /// Left alone: its parent is not in this hour, and putting back was not asked for.
    pub skipped: u64,
    /// Something else has the name.
    pub conflicts: u64,
    pub failed: u64,
}

impl Meta {
    /// Where something removed from `dir` goes: this hour's directory, made if need be, or nowhere.
    pub(super) async fn hour_for(&self, dir: Ino, skip_trash: bool) -> Result<Option<Ino>> {
        if skip_trash || dir.is_trash() || self.facts.setting().trash_days <= 0 {
            return Ok(None);
        }
        let name = trash::hour_name(Timestamp::now());
        let mut current = self.hour_dir.current.lock().await;
        if let Some((_, ino)) = current.as_ref().filter(|(known, _)| *known == name) {
            return Ok(Some(*ino));
        }
        let ino = match self.trash_entry(&name).await? {
            Some(entry) => entry.ino,
            None => self.make_hour(&name).await?,
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
            other => Err(Error::damaged("trash", format!("the engine answered {other:?}"))),
        }
    }

    async fn make_hour(&self, name: &Name) -> Result<Ino> {
        let number = self.engine.add_counter(Counter::NextTrash, 1).await?;
        let op = Make {
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
            Made::New(ino, _) | Made::Found(ino, _) => Ok(ino),
        }
    }

    /// Removes what lies in the trash longer than the setting's days. Answers how many entries.
    pub async fn clean_trash(&self, now: i64) -> Result<u64> {
        let days = self.facts.setting().trash_days;
        self.clean_trash_before(now - (days * 24 + GRACE_HOURS) * 3600).await
    }

    /// Removes every hour directory of before `edge` (unix seconds) with all it holds.
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
            // What stays of one hour does not keep the others.
            outcome = outcome.and(dropped);
        }
        outcome.map(|()| removed)
    }

    /// Every hour directory with the unix second it begins at.
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

    /// Moves the entries of an hour back: into directories that lie in the same hour, or with
    /// `put_back` to where they were removed from.
    pub async fn restore(&self, hour: &Name, put_back: bool) -> Result<Restored> {
        const AT_ONCE: usize = 10;
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
                    return Outcome::Failed;
                };
                if !put_back && !dirs.contains(&parent) {
                    return Outcome::Skipped;
                }
                let caller = Caller::root();
                let (from, to) = ((entry.ino, &kept.name), (parent, &name));
                match self.rename(&caller, from, to, RenameMode::Restore).await {
                    Ok(_) => Outcome::Restored,
                    Err(Error::Exists) => Outcome::Conflict,
                    Err(_) => Outcome::Failed,
                }
            }
        });
        let mut restored = Restored::default();
        let mut outcomes = outcomes.buffer_unordered(AT_ONCE);
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                Outcome::Restored => restored.restored += 1,
                Outcome::Skipped => restored.skipped += 1,
                Outcome::Conflict => restored.conflicts += 1,
                Outcome::Failed => restored.failed += 1,
            }
        }
        Ok(restored)
    }
}

enum Outcome {
    Restored,
    Skipped,
    Conflict,
    Failed,
}
