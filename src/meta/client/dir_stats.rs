//! Dir stats: what directories' direct entries gained and lost since the store was last told, and
//! counting anew where its record is missing or wrong.

use std::collections::HashMap;
use std::time::Duration;

use futures::{StreamExt, stream};

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::engine::{Key, Record};
use crate::meta::record::attr::align4k;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Attr, DirStat};
use crate::sync::{Mutex, MutexGuard};

/// Directories told of new usage by one request.
const BATCH: usize = 1000;
/// Directories counted anew at once.
const RECOUNTS: usize = 8;
/// How often a directory is counted that changes meanwhile.
const TRIES: usize = 5;
/// An operation tells what it changed this soon after its commit.
const SOON: Duration = Duration::from_millis(5);

#[derive(Default)]
pub struct DirStats {
    unsent: Mutex<HashMap<Ino, DirStat>>,
    flushing: tokio::sync::Mutex<()>,
}

impl DirStats {
    pub fn add(&self, dir: Ino, delta: DirStat) {
        *self.lock().entry(dir).or_default() += delta;
    }

    /// What the store does not know of this directory yet.
    pub fn unsent(&self, dir: Ino) -> DirStat {
        self.lock().get(&dir).copied().unwrap_or_default()
    }

    /// Drops what is owed for a directory that is gone, or about to be counted.
    pub fn forget(&self, dir: Ino) {
        self.lock().remove(&dir);
    }

    fn is_owed(&self, dir: Ino) -> bool {
        self.lock().contains_key(&dir)
    }

    fn take(&self) -> Vec<(Ino, DirStat)> {
        self.lock().drain().filter(|(_, delta)| !delta.is_zero()).collect()
    }

    fn owe_again<'a>(&self, deltas: impl IntoIterator<Item = &'a (Ino, DirStat)>) {
        let mut unsent = self.lock();
        for (dir, delta) in deltas {
            *unsent.entry(*dir).or_default() += *delta;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, DirStat>> {
        self.unsent.lock()
    }
}

impl Meta {
    /// Tells the store what it was not told yet; directories without a sound record are counted
    /// anew. What fails stays owed.
    pub async fn flush_dir_stats(&self) -> Result<()> {
        let _turn = self.dir_stats.flushing.lock().await;
        let owed = self.dir_stats.take();
        if !self.facts.setting().dir_stats {
            return Ok(());
        }
        let mut unsound = Vec::new();
        for (sent, deltas) in owed.chunks(BATCH).enumerate() {
            match self.engine.add_dir_stats(deltas).await {
                Ok(dirs) => unsound.extend(dirs),
                Err(error) => {
                    self.dir_stats.owe_again(&owed[sent * BATCH..]);
                    return Err(error);
                }
            }
        }
        let recounts = stream::iter(unsound)
            .map(|dir| async move { (dir, self.recount_dir(dir).await) })
            .buffer_unordered(RECOUNTS)
            .collect::<Vec<_>>();
        let mut outcome = Ok(());
        for (dir, recount) in recounts.await {
            match recount {
                Ok(_) | Err(Error::NotFound | Error::NotDirectory) => {}
                Err(error) => {
                    // Damage does not go away by counting again.
                    if !matches!(error, Error::Damaged { .. }) {
                        let again: Vec<_> = owed.iter().filter(|(of, _)| *of == dir).collect();
                        self.dir_stats.owe_again(again);
                    }
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    /// The usage of a directory's direct entries: the record and what it was not told yet, or a
    /// count if there is no sound record.
    pub async fn dir_stat(&self, dir: Ino) -> Result<DirStat> {
        match self.stored_dir_stat(dir).await? {
            Some(mut stat) => {
                stat += self.dir_stats.unsent(dir);
                Ok(stat)
            }
            None if self.facts.options.read_only => self.count_dir(dir).await,
            None => self.recount_dir(dir).await,
        }
    }

    /// The record, if there is one that makes sense.
    pub(super) async fn stored_dir_stat(&self, dir: Ino) -> Result<Option<DirStat>> {
        match self.engine.read(&[Key::DirStat(dir)]).await?.pop() {
            Some(Record::DirStat(stat)) => Ok(stat.filter(|stat| !stat.is_negative())),
            other => Err(Error::damaged("dir stat", format!("the engine answered {other:?}"))),
        }
    }

    /// Counts a directory's entries and stores the result.
    pub(super) async fn recount_dir(&self, dir: Ino) -> Result<DirStat> {
        self.counts.recount();
        let stat = self.count_quiet_dir(dir).await?;
        self.attr_now(dir).await?.ok_or(Error::NotFound)?.into_dir()?;
        self.engine.put_dir_stat(dir, &stat).await?;
        self.log_apart(LogOp::DirStat { ino: dir, stat }).await;
        Ok(stat)
    }

    /// Stores the usage of the root if nobody has: no `mkdir` began its record. Done before the
    /// first operation, since a count beside operations may count them twice.
    pub(super) async fn begin_root_stat(&self) -> Result<()> {
        if self.facts.setting().dir_stats && self.stored_dir_stat(Ino::ROOT).await?.is_none() {
            self.recount_dir(Ino::ROOT).await?;
        }
        Ok(())
    }

    /// Counts a directory's entries, if possible at a moment when this client does not change it:
    /// what is told during the count may have been counted as well.
    async fn count_quiet_dir(&self, dir: Ino) -> Result<DirStat> {
        let mut tries = 1;
        loop {
            // What is owed up to here is about to be counted.
            self.dir_stats.forget(dir);
            let stat = self.count_dir(dir).await?;
            tokio::time::sleep(SOON).await;
            if tries == TRIES || !self.dir_stats.is_owed(dir) {
                return Ok(stat);
            }
            tries += 1;
        }
    }

    /// Counts a directory's entries.
    pub(super) async fn count_dir(&self, dir: Ino) -> Result<DirStat> {
        let mut stat = DirStat::default();
        let mut listing = self.list(dir, true);
        while let Some(page) = listing.next().await? {
            for entry in page {
                let length = entry.attr.filter(Attr::is_file).map_or(0, |attr| attr.length);
                stat += DirStat { length: length.cast_signed(), space: align4k(length), inodes: 1 };
            }
        }
        Ok(stat)
    }
}
