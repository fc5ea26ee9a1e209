//! Counters and elections.

use redis::Cmd;

use super::{RedisEngine, script};
use crate::error::Result;
use crate::meta::record::Counter;

/// Redis stores the last id given out, everyone else the next one.
fn offset(counter: Counter) -> i64 {
    i64::from(matches!(counter, Counter::NextInode | Counter::NextChunk))
}

/// Ids lost to a repeated request are harmless; usage is not.
fn is_repeatable(counter: Counter) -> bool {
    !matches!(counter, Counter::UsedSpace | Counter::TotalInodes)
}

impl RedisEngine {
    pub(super) async fn increase(&self, counter: Counter, by: i64) -> Result<i64> {
        let key = self.names.counter(counter);
        let mut cmd = redis::cmd("INCRBY");
        cmd.arg(&key).arg(by);
        let mut replies = if is_repeatable(counter) {
            self.wire.ask_one(cmd).await?
        } else {
            self.wire.tell_or_unknown(cmd, "adding to a counter").await?
        };
        Ok(replies.int(&key)? + offset(counter))
    }

    pub(super) async fn count(&self, counter: Counter) -> Result<i64> {
        let key = self.names.counter(counter);
        let mut cmd = Cmd::new();
        cmd.arg("GET").arg(&key);
        Ok(self.wire.ask_one(cmd).await?.number(&key)?.unwrap_or(0) + offset(counter))
    }

    /// Repeated after a lost answer it answers false, and a job waits for its next turn.
    pub(super) async fn elect(&self, counter: Counter, now: i64, gap: i64) -> Result<bool> {
        let key = self.names.counter(counter);
        let mut cmd = script::CLAIM.call(&[&key]);
        cmd.arg(now).arg(gap);
        Ok(self.wire.ask_one(cmd).await?.int(&key)? == 1)
    }
}
