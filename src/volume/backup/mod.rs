//! Backups of metadata into the bucket, as the Go client makes them: one client for all, each
//! interval, with fewer and fewer of the old ones kept.
//!
//! The time of the last backup is an attribute of the root directory. A client that replaces it
//! makes the backup.

mod compressed;
mod rotation;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use prometheus::{Gauge, Registry};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::storage::{Overrides, spec};
use crate::error::{Error, Result};
use crate::meta::dump::{DumpOptions, Skipped};
use crate::meta::{Ino, Meta};
use crate::object::{self, ObjectStore};

/// The attribute of the root directory with the time of the last backup.
const LAST_BACKUP: &[u8] = b"lastBackup";
/// Volumes with more inodes are not backed up as often as every hour.
const MAX_INODES: u64 = 1_000_000;
const OFTEN: Duration = Duration::from_hours(1);
/// A backup is larger than a block.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(30);
/// Names in the folder of backups: far more than rotation leaves.
const MAX_NAMES: usize = 100_000;
const PAGE: usize = 1000;

/// The backups of one process take turns: each is in memory while it is uploaded.
static TURN: Semaphore = Semaphore::const_new(1);

/// When and how backups are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupOptions {
    pub interval: Duration,
    pub skip_trash: bool,
    /// Bytes of memory that a backup may take.
    pub max_size: usize,
}

/// Makes backups of one volume until it is dropped.
pub struct Backups {
    _task: AbortOnDropHandle<()>,
}

impl Backups {
    /// Starts making backups. `storage` is how this client reaches the objects of the volume.
    pub fn start(
        meta: Arc<Meta>,
        storage: Overrides,
        options: BackupOptions,
        registry: &Registry,
    ) -> Result<Self> {
        let backup = Backup::new(meta, storage, options, registry)?;
        Ok(Self { _task: AbortOnDropHandle::new(tokio::spawn(backup.run())) })
    }
}

struct Backup {
    meta: Arc<Meta>,
    storage: Overrides,
    options: BackupOptions,
    last_time: Gauge,
    last_duration: Gauge,
}

/// What a check found.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The last backup is recent, or another client makes this one.
    NotDue,
    TooManyInodes(u64),
    Made(String),
}

impl Backup {
    fn new(
        meta: Arc<Meta>,
        storage: Overrides,
        options: BackupOptions,
        registry: &Registry,
    ) -> Result<Self> {
        let gauge = |name: &str, help: &str| {
            let gauge = Gauge::new(name, help).map_err(Error::bad_input)?;
            registry.register(Box::new(gauge.clone())).map_err(Error::bad_input)?;
            Ok::<_, Error>(gauge)
        };
        let last_time = gauge("last_successful_backup", "Last successful backup.")?;
        let last_duration = gauge("last_backup_duration", "Last backup duration.")?;
        Ok(Self { meta, storage, options, last_time, last_duration })
    }

    async fn run(self) {
        let mut is_skipped = false;
        loop {
            let jitter = rand::random_range(0.95..=1.05);
            tokio::time::sleep((self.options.interval / 10).mul_f64(jitter)).await;
            let (volume, started) = (self.meta.context().setting().name.clone(), Instant::now());
            let outcome = self.back_up_if_due(Utc::now()).await;
            let is_due = !matches!(outcome, Ok(Outcome::NotDue));
            self.last_duration.set(if is_due { started.elapsed().as_secs_f64() } else { 0.0 });
            match outcome {
                Ok(Outcome::Made(place)) => info!(volume, "backed up the metadata to {place}"),
                Ok(Outcome::TooManyInodes(inodes)) if !is_skipped => {
                    is_skipped = true;
                    warn!(
                        volume,
                        "the metadata is not backed up: {inodes} inodes are too many for an interval \
                         of {:?}; increase --backup-meta",
                        self.options.interval
                    );
                }
                Ok(Outcome::NotDue | Outcome::TooManyInodes(_)) => {}
                Err(error) => warn!(volume, %error, "cannot back up the metadata"),
            }
        }
    }

    /// Makes a backup if the last one of any client was long enough ago, and removes old ones.
    async fn back_up_if_due(&self, now: DateTime<Utc>) -> Result<Outcome> {
        let last = match self.meta.xattr(Ino::ROOT, LAST_BACKUP).await {
            Ok(value) => Some(value),
            Err(Error::NoAttribute) => None,
            Err(error) => return Err(error),
        };
        if !is_due(last.as_ref(), now, self.options.interval)? {
            return Ok(Outcome::NotDue);
        }
        let inodes = self.meta.statfs(Ino::ROOT).await.map_or(0, |stat| stat.used_inodes);
        if inodes > MAX_INODES && self.options.interval <= OFTEN {
            return Ok(Outcome::TooManyInodes(inodes));
        }
        // The wait for a turn comes first: who has claimed the backup must make it now.
        let _turn =
            TURN.acquire().await.map_err(|closed| Error::internal("waiting for a turn", closed))?;
        let claim = Bytes::from(now.to_rfc3339_opts(SecondsFormat::Secs, true));
        if !self.meta.replace_xattr(Ino::ROOT, LAST_BACKUP, last.as_ref(), &claim).await? {
            return Ok(Outcome::NotDue);
        }
        let store = self.store()?;
        let (body, skipped) =
            compressed::dump(&self.meta, &self.dump_options(), self.options.max_size).await?;
        let key = format!("{}{}", rotation::FOLDER, rotation::name(now));
        store.put(&key, body, 0).await?;
        self.last_time.set(seconds(now));
        self.report(skipped);
        if let Err(error) = remove_expired(store.as_ref(), now).await {
            warn!(%error, "cannot remove old backups of the metadata");
        }
        Ok(Outcome::Made(format!("{}{key}", store.place())))
    }

    /// Opens the object store as the setting is now.
    fn store(&self) -> Result<Arc<dyn ObjectStore>> {
        let mut spec = spec(&self.meta.context().setting(), &self.storage)?;
        spec.put_timeout = spec.put_timeout.max(UPLOAD_TIMEOUT);
        object::open(&spec)
    }

    fn dump_options(&self) -> DumpOptions {
        let threads = if self.meta.engine().name() == "tikv" { 10 } else { 2 };
        let skip_trash = self.options.skip_trash;
        DumpOptions { root: Ino::ROOT, skip_trash, keep_secrets: false, threads }
    }

    fn report(&self, skipped: Skipped) {
        let Skipped { gone, moved, damaged } = skipped;
        if damaged > 0 {
            let volume = self.meta.context().setting().name.clone();
            warn!(volume, gone, moved, damaged, "damaged records are left out of the backup");
        }
    }
}

fn is_due(last: Option<&Bytes>, now: DateTime<Utc>, interval: Duration) -> Result<bool> {
    let Some(last) = last.filter(|last| !last.is_empty()) else { return Ok(true) };
    let text = String::from_utf8_lossy(last);
    let last = DateTime::parse_from_rfc3339(&text).map_err(|error| {
        Error::bad_input(format!("the time of the last backup reads {text:?}: {error}"))
    })?;
    // A time in the future is that of another client's clock.
    Ok((now - last.to_utc()).to_std().is_ok_and(|age| age >= interval))
}

fn seconds(time: DateTime<Utc>) -> f64 {
    time.timestamp_micros() as f64 / 1e6
}

/// Removes the backups that rotation does not keep; other objects in their folder stay.
async fn remove_expired(store: &dyn ObjectStore, now: DateTime<Utc>) -> Result<()> {
    let (mut times, mut after, mut count) = (Vec::new(), String::new(), 0);
    loop {
        let page = store.list(rotation::FOLDER, &after, PAGE).await?;
        let is_last = page.len() < PAGE;
        count += page.len();
        for object in page {
            let name = object.key.strip_prefix(rotation::FOLDER).unwrap_or_default();
            times.extend(rotation::time_of(name));
            after = object.key;
        }
        if is_last {
            break;
        }
        if count >= MAX_NAMES {
            return Err(Error::bad_input(format!("more than {MAX_NAMES} objects")));
        }
    }
    for time in rotation::expired(times, now) {
        store.delete(&format!("{}{}", rotation::FOLDER, rotation::name(time))).await?;
    }
    Ok(())
}
