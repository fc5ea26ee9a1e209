//! The change log: a list of lines, and the version of the last one.

use super::{RedisEngine, reply, script};
use crate::error::Result;

/// Lines read or dropped in one step.
const STEP: usize = 1000;

impl RedisEngine {
    /// Lines with versions above `after`.
    pub(super) async fn log_lines(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>> {
        let keys = [self.names.log(), self.names.last_log()];
        let mut cmd = script::READ_LOG.call(&keys);
        cmd.arg(after).arg(limit);
        let mut lines = self.wire.ask_one(cmd).await?.list(&keys[0])?.into_iter();
        let Some(first) = lines.next() else { return Ok(Vec::new()) };
        let first = reply::number(&first, &keys[1])?;
        Ok((first..).zip(lines.map(|raw| String::from_utf8_lossy(&raw).into_owned())).collect())
    }

    pub(super) async fn trim_log(&self, before: Option<i64>, keep: Option<u64>) -> Result<()> {
        let mut edge = i64::MIN;
        if let Some(keep) = keep {
            edge = self.first_kept(keep).await?;
        }
        if let Some(before) = before {
            edge = edge.max(self.first_since(before).await?);
        }
        self.drop_lines_below(edge).await
    }

    /// The version from which on `keep` lines are left.
    async fn first_kept(&self, keep: u64) -> Result<i64> {
        let key = self.names.last_log();
        let mut cmd = redis::cmd("GET");
        cmd.arg(&key);
        let last = self.wire.ask_one(cmd).await?.number(&key)?.unwrap_or(0);
        Ok(last.saturating_add(1).saturating_sub_unsigned(keep))
    }

    /// The version of the first line written at or after `before`; lines without a readable time
    /// go with those around them.
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

    /// By version, so that two clients trimming at once do not drop twice as much.
    async fn drop_lines_below(&self, edge: i64) -> Result<()> {
        if edge <= 1 {
            return Ok(());
        }
        let keys = [self.names.log(), self.names.last_log()];
        loop {
            let mut cmd = script::TRIM_LOG.call(&keys);
            cmd.arg(edge).arg(STEP * 10);
            if self.wire.ask_one(cmd).await?.int(&keys[0])? == 0 {
                return Ok(());
            }
        }
    }
}

fn written_at(line: &str) -> Option<i64> {
    line.split_once('.')?.0.parse().ok()
}
