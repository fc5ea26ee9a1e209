//! Dir stats: usage of directories' direct entries that is not sent yet, and recounting directories
//! whose stored record is missing or wrong.

use std::collections::HashMap;
use std::time::Duration;

use futures::{StreamExt, stream};

use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::client::Meta;
use crate::meta::engine::{Key, Record};
use crate::meta::record::attr::align4k;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Attr, DirStat};
use crate::sync::{Mutex, MutexGuard};

/// Directories updated by one request.
const BATCH: usize = 1000;
/// Directories counted concurrently.
const RECOUNTS_AT_ONCE: usize = 8;
/// How often a directory is counted that changes meanwhile.
const MAX_ATTEMPTS: usize = 5;
/// How long a stat that would turn negative waits for usage that other clients have not sent yet;
/// every client sends it each second.
const OTHER_CLIENTS_DELAY: Duration = Duration::from_millis(2500);
/// How often it is tried meanwhile.
const RETRY_PERIOD: Duration = Duration::from_millis(100);
/// An operation adds its usage this soon after its commit.
const ACCOUNTING_DELAY: Duration = Duration::from_millis(5);

#[derive(Default)]
pub struct DirStats {
    unsent: Mutex<HashMap<Ino, DirStat>>,
    flushing: tokio::sync::Mutex<()>,
}

impl DirStats {
    pub fn add(&self, dir: Ino, delta: DirStat) {
        *self.lock().entry(dir).or_default() += delta;
    }

    /// Usage of a directory that the store does not know yet.
    pub fn unsent(&self, dir: Ino) -> DirStat {
        self.lock().get(&dir).copied().unwrap_or_default()
    }

    /// Drops unsent usage of a directory that is gone or about to be counted.
    pub fn forget(&self, dir: Ino) {
        self.lock().remove(&dir);
    }

    fn has_unsent(&self, dir: Ino) -> bool {
        self.lock().contains_key(&dir)
    }

    fn take(&self) -> Vec<(Ino, DirStat)> {
        self.lock().drain().filter(|(_, delta)| !delta.is_zero()).collect()
    }

    fn restore_unsent<'a>(&self, deltas: impl IntoIterator<Item = &'a (Ino, DirStat)>) {
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
    /// Sends usage that the store does not know yet; directories without a valid record are
    /// counted. What fails stays unsent.
    ///
    /// A record that would turn negative usually lacks usage of another client, for example of a
    /// file that was created there and removed here. A count would include that usage, and the other
    /// client would add it again, so such a record is counted only if it stays too low.
    pub async fn flush_dir_stats(&self) -> Result<()> {
        let _flushing = self.dir_stats.flushing.lock().await;
        let unsent = self.dir_stats.take();
        if !self.context.setting().dir_stats {
            return Ok(());
        }
        let mut invalid = Vec::new();
        for (sent, deltas) in unsent.chunks(BATCH).enumerate() {
            match self.engine.add_dir_stats(deltas).await {
                Ok(dirs) => invalid.extend(dirs),
                Err(error) => {
                    self.dir_stats.restore_unsent(&unsent[sent * BATCH..]);
                    return Err(error);
                }
            }
        }
        let invalid = match self.wait_for_other_clients(&unsent, invalid).await {
            Ok(invalid) => invalid,
            Err((dirs, error)) => {
                let again = unsent.iter().filter(|(dir, _)| dirs.contains(dir));
                self.dir_stats.restore_unsent(again);
                return Err(error);
            }
        };
        let recounts = stream::iter(invalid)
            .map(|dir| async move { (dir, self.recount_dir(dir).await) })
            .buffer_unordered(RECOUNTS_AT_ONCE)
            .collect::<Vec<_>>();
        let mut outcome = Ok(());
        for (dir, recount) in recounts.await {
            match recount {
                Ok(_) | Err(Error::NotFound | Error::NotDirectory) => {}
                Err(error) => {
                    // Counting again does not repair damage.
                    if !matches!(error, Error::Damaged { .. }) {
                        let again: Vec<_> = unsent.iter().filter(|(of, _)| *of == dir).collect();
                        self.dir_stats.restore_unsent(again);
                    }
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    /// Repeats deltas that would turn a record negative, and returns the directories to count. With an
    /// error come the directories whose deltas are not sent.
    async fn wait_for_other_clients(
        &self,
        unsent: &[(Ino, DirStat)],
        mut invalid: Vec<Ino>,
    ) -> std::result::Result<Vec<Ino>, (Vec<Ino>, Error)> {
        let deadline = tokio::time::Instant::now() + OTHER_CLIENTS_DELAY;
        let mut without_record = Vec::new();
        loop {
            let mut too_low = Vec::new();
            for (at, dir) in invalid.iter().enumerate() {
                match self.stored_dir_stat(*dir).await {
                    Ok(Some(_)) => too_low.push(*dir),
                    Ok(None) => without_record.push(*dir),
                    Err(error) => {
                        let rest = invalid[at..].iter().chain(&too_low).chain(&without_record);
                        return Err((rest.copied().collect(), error));
                    }
                }
            }
            if too_low.is_empty() || tokio::time::Instant::now() >= deadline {
                without_record.extend(too_low);
                return Ok(without_record);
            }
            tokio::time::sleep(RETRY_PERIOD).await;
            let deltas: Vec<_> =
                unsent.iter().filter(|(dir, _)| too_low.contains(dir)).copied().collect();
            invalid = match self.engine.add_dir_stats(&deltas).await {
                Ok(invalid) => invalid,
                Err(error) => {
                    too_low.extend(without_record);
                    return Err((too_low, error));
                }
            };
        }
    }

    /// The usage of a directory's direct entries: the stored record with unsent usage, or a count
    /// if there is no valid record.
    pub async fn dir_stat(&self, dir: Ino) -> Result<DirStat> {
        match self.stored_dir_stat(dir).await? {
            Some(mut stat) => {
                stat += self.dir_stats.unsent(dir);
                Ok(stat)
            }
            None if self.context.options.read_only => self.count_dir(dir).await,
            None => self.recount_dir(dir).await,
        }
    }

    /// The stored record, if there is a valid one.
    pub(in crate::meta::client) async fn stored_dir_stat(
        &self,
        dir: Ino,
    ) -> Result<Option<DirStat>> {
        match self.engine.read(&[Key::DirStat(dir)]).await?.pop() {
            Some(Record::DirStat(stat)) => Ok(stat.filter(|stat| !stat.is_negative())),
            other => Err(Error::damaged("dir stat", format!("the engine returned {other:?}"))),
        }
    }

    /// Counts a directory's entries and stores the result.
    pub(in crate::meta::client) async fn recount_dir(&self, dir: Ino) -> Result<DirStat> {
        self.counts.recount();
        let stat = self.count_quiet_dir(dir).await?;
        self.stored_attr(dir).await?.ok_or(Error::NotFound)?.into_dir()?;
        self.engine.put_dir_stat(dir, &stat).await?;
        self.log_separately(LogOp::DirStat { ino: dir, stat }).await;
        Ok(stat)
    }

    /// Stores the dir stat of the root if there is none, since no `mkdir` has created it. Done
    /// before the first operation: a count concurrent with operations may count them twice.
    pub(in crate::meta::client) async fn ensure_root_stat(&self) -> Result<()> {
        if self.context.setting().dir_stats && self.stored_dir_stat(Ino::ROOT).await?.is_none() {
            self.recount_dir(Ino::ROOT).await?;
        }
        Ok(())
    }

    /// Counts a directory's entries, if possible while this client does not change it: usage added
    /// during the count may be counted twice.
    async fn count_quiet_dir(&self, dir: Ino) -> Result<DirStat> {
        let mut attempt = 1;
        loop {
            // Everything added so far is about to be counted.
            self.dir_stats.forget(dir);
            let stat = self.count_dir(dir).await?;
            tokio::time::sleep(ACCOUNTING_DELAY).await;
            if attempt == MAX_ATTEMPTS || !self.dir_stats.has_unsent(dir) {
                return Ok(stat);
            }
            attempt += 1;
        }
    }

    /// Counts a directory's entries.
    pub(in crate::meta::client) async fn count_dir(&self, dir: Ino) -> Result<DirStat> {
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
