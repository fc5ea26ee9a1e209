//! Background jobs: what one client does for all, by turns.
//!
//! Every job has the same shape: it wakes up, asks the store whether the last turn was long enough
//! ago, and if so takes the turn. Jobs are safe to run at the same time; turns only spare work.

mod change_log;
mod deleted_files;
mod slices;
mod times;

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

pub(super) use times::JobTimes;

use super::Meta;
use crate::error::Result;
use crate::meta::Timestamp;
use crate::meta::record::Counter;

const HOUR: Duration = Duration::from_hours(1);
/// A turn ends before the next one begins, whatever is left.
const LONGEST: Duration = Duration::from_mins(55);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// Cleans up after clients that went away.
    StaleSessions,
    /// Deletes the data of removed files that other clients did not.
    DeletedFiles,
    /// Deletes objects of slices that nothing refers to.
    Slices,
    /// Empties the trash of what is in it long enough.
    Trash,
    /// Drops change log lines that are old or too many.
    ChangeLog,
}

impl Job {
    pub const ALL: [Job; 5] =
        [Job::StaleSessions, Job::DeletedFiles, Job::Slices, Job::Trash, Job::ChangeLog];

    pub fn name(self) -> &'static str {
        match self {
            Self::StaleSessions => "stale sessions",
            Self::DeletedFiles => "deleted files",
            Self::Slices => "slices",
            Self::Trash => "trash",
            Self::ChangeLog => "change log",
        }
    }

    fn period(self, heartbeat: Duration) -> Duration {
        match self {
            Self::StaleSessions => heartbeat,
            Self::DeletedFiles | Self::Slices | Self::Trash => HOUR,
            Self::ChangeLog => Duration::from_mins(5),
        }
    }

    /// Holds the time of the last turn.
    fn counter(self) -> Counter {
        match self {
            Self::StaleSessions => Counter::LastCleanupSessions,
            Self::DeletedFiles => Counter::LastCleanupFiles,
            Self::Slices => Counter::NextCleanupSlices,
            Self::Trash => Counter::LastCleanupTrash,
            Self::ChangeLog => Counter::LastCleanupChangelog,
        }
    }
}

impl Meta {
    /// Does the job now, whoever's turn it is; answers how many things it dealt with.
    pub async fn run_job(&self, job: Job) -> Result<u64> {
        let (times, now) = (&self.job_times, Timestamp::now().sec);
        match job {
            Job::StaleSessions => self.clean_stale_sessions().await,
            Job::DeletedFiles => {
                times.measure("cleanupDeletedFiles", self.clean_deleted_files(now)).await
            }
            Job::Slices => times.measure("cleanupSlices", self.clean_slices()).await,
            Job::Trash => {
                let emptied = times.measure("cleanTrashFile", self.clean_trash(now)).await;
                let released =
                    times.measure("cleanDelayedSlice", self.clean_delayed_slices(now)).await;
                Ok(emptied? + released?)
            }
            Job::ChangeLog => self.trim_change_log().await,
        }
    }

    /// Does the job if it is this client's turn.
    pub async fn take_turn(&self, job: Job) -> Result<Option<u64>> {
        self.check_ours()?;
        let period = job.period(self.facts.options.heartbeat);
        // The last turn may have been jittered to come early.
        let gap = (period * 9 / 10).as_secs().cast_signed();
        if !self.engine.claim(job.counter(), Timestamp::now().sec, gap).await? {
            return Ok(None);
        }
        self.counts.job();
        Ok(Some(self.run_job(job).await?))
    }

    pub(super) fn start_jobs(self: &Arc<Self>) {
        let options = &self.facts.options;
        if options.no_background_jobs {
            return;
        }
        for job in Job::ALL {
            let period = job.period(options.heartbeat);
            if period.is_zero() {
                continue;
            }
            self.every(period, move |meta| async move {
                match tokio::time::timeout(LONGEST, meta.take_turn(job)).await {
                    Ok(Ok(None)) => {}
                    Ok(Ok(Some(done))) => debug!(job = job.name(), done, "job done"),
                    Ok(Err(error)) => {
                        meta.counts.failed_job();
                        warn!(job = job.name(), %error, "job failed");
                    }
                    Err(_) => warn!(job = job.name(), "job left off: its turn is over"),
                }
            });
        }
    }
}
