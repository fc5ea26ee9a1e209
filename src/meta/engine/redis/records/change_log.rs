//! The change log: a list of lines, and the version of the last line.

use super::super::client::reply;
use super::super::{RedisEngine, scripts};
use crate::error::Result;

/// Lines read or removed in one step.
const STEP: usize = 1000;

impl RedisEngine {
    /// Returns lines with versions above `after`.
    pub(crate) async fn log_lines(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>> {
        let keys = [self.keyspace.change_log(), self.keyspace.last_log_version()];
        let mut cmd = scripts::READ_CHANGE_LOG.call(&keys);
        cmd.arg(after).arg(limit);
        let mut lines = self.client.query_one(cmd).await?.list(&keys[0])?.into_iter();
        let Some(first) = lines.next() else { return Ok(Vec::new()) };
        let first = reply::number(&first, &keys[1])?;
        Ok((first..).zip(lines.map(|raw| String::from_utf8_lossy(&raw).into_owned())).collect())
    }

    pub(crate) async fn trim_log(&self, before: Option<i64>, keep: Option<u64>) -> Result<()> {
        let mut first_kept = i64::MIN;
        if let Some(keep) = keep {
            first_kept = self.first_of_last(keep).await?;
        }
        if let Some(before) = before {
            first_kept = first_kept.max(self.first_since(before).await?);
        }
        self.drop_lines_before(first_kept).await
    }

    /// Returns the version of the first of the last `keep` lines.
    async fn first_of_last(&self, keep: u64) -> Result<i64> {
        let key = self.keyspace.last_log_version();
        let mut cmd = redis::cmd("GET");
        cmd.arg(&key);
        let last = self.client.query_one(cmd).await?.number(&key)?.unwrap_or(0);
        Ok(last.saturating_add(1).saturating_sub_unsigned(keep))
    }

    /// Returns the version of the first line written at or after `before`. Lines without a readable time
    /// are treated like the lines around them.
    async fn first_since(&self, before: i64) -> Result<i64> {
        let mut after = 0;
        loop {
            let lines = self.log_lines(after, STEP).await?;
            let Some((last, _)) = lines.last() else { return Ok(after + 1) };
            for (version, line) in &lines {
                if written_at(line).is_some_and(|at| at >= before) {
                    return Ok(*version);
                }
            }
            after = *last;
        }
    }

    /// Removes lines by version, so that two clients that trim at the same time do not remove twice as
    /// much.
    async fn drop_lines_before(&self, first_kept: i64) -> Result<()> {
        if first_kept <= 1 {
            return Ok(());
        }
        let keys = [self.keyspace.change_log(), self.keyspace.last_log_version()];
        loop {
            let mut cmd = scripts::TRIM_CHANGE_LOG.call(&keys);
            cmd.arg(first_kept).arg(STEP * 10);
            if self.client.query_one(cmd).await?.int(&keys[0])? == 0 {
                return Ok(());
            }
        }
    }
}

/// Returns the second at which a line was written.
fn written_at(line: &str) -> Option<i64> {
    line.split_once('.')?.0.parse().ok()
}
