//! Periodic jobs that one client runs for all.
//!
//! Each job wakes up, asks the store whether the last run was long enough ago, and if so claims the
//! next one. Jobs are safe to run concurrently; claims only avoid duplicate work.

mod deleted_data;
mod metrics;

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

pub use metrics::JobTimes;

use crate::error::Result;
use crate::meta::Timestamp;
use crate::meta::client::Meta;
use crate::meta::record::Counter;

const HOUR: Duration = Duration::from_hours(1);
/// A run is stopped before the next one begins, whatever is left.
const MAX_DURATION: Duration = Duration::from_mins(55);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// Cleans up after clients that died.
    StaleSessions,
    /// Deletes the data of removed files that other clients left.
    DeletedFiles,
    /// Deletes the objects of unreferenced slices.
    Slices,
    /// Removes expired entries from the trash.
    Trash,
    /// Trims the change log to its age and size limits.
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

    /// The counter that holds the time of the last run.
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
    /// Runs the job now; returns how many things it processed.
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

    /// Runs the job if the last run of any client was long enough ago.
    pub async fn run_job_if_due(&self, job: Job) -> Result<Option<u64>> {
        self.check_not_lost()?;
        let period = job.period(self.context.options.heartbeat);
        // Jitter may have made the last run late and this one early.
        let gap = (period * 9 / 10).as_secs().cast_signed();
        if !self.engine.claim(job.counter(), Timestamp::now().sec, gap).await? {
            return Ok(None);
        }
        self.counts.job();
        Ok(Some(self.run_job(job).await?))
    }

    pub(in crate::meta::client) fn start_jobs(self: &Arc<Self>) {
        let options = &self.context.options;
        if options.no_background_jobs {
            return;
        }
        for job in Job::ALL {
            let period = job.period(options.heartbeat);
            if period.is_zero() {
                continue;
            }
            self.run_every(period, move |meta| async move {
                match tokio::time::timeout(MAX_DURATION, meta.run_job_if_due(job)).await {
                    Ok(Ok(None)) => {}
                    Ok(Ok(Some(done))) => debug!(job = job.name(), done, "job done"),
                    Ok(Err(error)) => {
                        meta.counts.failed_job();
                        warn!(job = job.name(), %error, "job failed");
                    }
                    Err(_) => warn!(job = job.name(), "job stopped: it reached its time limit"),
                }
            });
        }
    }
}
