//! Counters, and the timestamps by which clients claim periodic jobs.

use redis::Cmd;

use super::super::{RedisEngine, scripts};
use crate::error::Result;
use crate::meta::record::Counter;

/// Redis stores the last id in use; the other engines store the next free one.
fn offset(counter: Counter) -> i64 {
    i64::from(matches!(counter, Counter::NextInode | Counter::NextChunk))
}

/// Ids lost to a repeated request do no harm; usage counted twice does.
fn is_repeatable(counter: Counter) -> bool {
    !matches!(counter, Counter::UsedSpace | Counter::TotalInodes)
}

impl RedisEngine {
    pub(crate) async fn increase(&self, counter: Counter, by: i64) -> Result<i64> {
        let key = self.keyspace.counter(counter);
        let mut cmd = redis::cmd("INCRBY");
        cmd.arg(&key).arg(by);
        let mut replies = if is_repeatable(counter) {
            self.client.query_one(cmd).await?
        } else {
            self.client.execute_once(cmd, "adding to a counter").await?
        };
        Ok(replies.int(&key)? + offset(counter))
    }

    pub(crate) async fn count(&self, counter: Counter) -> Result<i64> {
        let key = self.keyspace.counter(counter);
        let mut cmd = Cmd::new();
        cmd.arg("GET").arg(&key);
        Ok(self.client.query_one(cmd).await?.number(&key)?.unwrap_or(0) + offset(counter))
    }

    /// Claims a job. Repeated after a lost reply it returns false, and the job waits for its next period.
    pub(crate) async fn elect(&self, counter: Counter, now: i64, gap: i64) -> Result<bool> {
        let key = self.keyspace.counter(counter);
        let mut cmd = scripts::CLAIM.call(&[&key]);
        cmd.arg(now).arg(gap);
        Ok(self.client.query_one(cmd).await?.int(&key)? == 1)
    }
}
