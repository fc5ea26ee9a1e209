//! Metrics of background jobs: durations and deletions.

use std::time::Instant;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, exponential_buckets};

use crate::error::Result;

/// The metrics of one client's jobs. Exported, their names begin with `juicefs_` twice, as
/// JuiceFS's do.
pub struct JobTimes {
    durations: Option<HistogramVec>,
    deletions: Option<IntCounterVec>,
}

/// A running job; its duration is recorded on drop. Dropped early, it counts as cancelled.
struct Running<'a> {
    times: &'a JobTimes,
    job: &'static str,
    begun: Instant,
    status: &'static str,
}

impl Default for JobTimes {
    fn default() -> Self {
        // Names and buckets are valid, so neither is `None`.
        let durations = HistogramOpts::new("juicefs_bgjob_duration_seconds", "Seconds of jobs");
        let deletions = Opts::new("juicefs_bgjob_deletions_total", "Things that jobs deleted");
        let buckets = exponential_buckets(1.0, 2.0, 13).ok();
        Self {
            durations: buckets.and_then(|buckets| {
                HistogramVec::new(durations.buckets(buckets), &["job", "status"]).ok()
            }),
            deletions: IntCounterVec::new(deletions, &["job"]).ok(),
        }
    }
}

impl JobTimes {
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        if let Some(durations) = &self.durations {
            registry.register(Box::new(durations.clone()))?;
        }
        if let Some(deletions) = &self.deletions {
            registry.register(Box::new(deletions.clone()))?;
        }
        Ok(())
    }

    /// Runs a job that returns how many things it deleted.
    pub async fn measure(
        &self,
        job: &'static str,
        work: impl Future<Output = Result<u64>>,
    ) -> Result<u64> {
        let mut running = Running { times: self, job, begun: Instant::now(), status: "canceled" };
        let done = work.await;
        running.status = if done.is_ok() { "success" } else { "failed" };
        if let (Ok(count), Some(deletions)) = (&done, &self.deletions) {
            deletions.with_label_values(&[job]).inc_by(*count);
        }
        done
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(durations) = &self.times.durations {
            let labels = [self.job, self.status];
            durations.with_label_values(&labels).observe(self.begun.elapsed().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;
    use crate::error::Error;

    #[tokio::test]
    async fn jobs_are_counted_by_outcome() {
        let (times, registry) = (JobTimes::default(), Registry::new());
        times.register(&registry).unwrap();
        times.measure("one", async { Ok(7) }).await.unwrap();
        times.measure("one", async { Err(Error::NotFound) }).await.unwrap_err();
        let cut_off = times.measure("two", std::future::pending());
        assert!(tokio::time::timeout(std::time::Duration::ZERO, cut_off).await.is_err());
        let shown = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            r#"juicefs_bgjob_duration_seconds_count{job="one",status="success"} 1"#,
            r#"juicefs_bgjob_duration_seconds_count{job="one",status="failed"} 1"#,
            r#"juicefs_bgjob_duration_seconds_count{job="two",status="canceled"} 1"#,
            r#"juicefs_bgjob_deletions_total{job="one"} 7"#,
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
        }
    }
}
