//! The change log: a line per operation, written in the operation's own commit.

use crate::meta::engine::Change;
use crate::meta::{MetaTxn, Plan, Timestamp};

/// Adds the line `OP(args)[:result]` if the volume keeps a change log.
pub fn log<T>(
    tx: &MetaTxn<'_>,
    plan: &mut Plan<T>,
    line: impl FnOnce() -> String,
    now: Timestamp,
) {
    let facts = tx.facts();
    if facts.setting().change_log {
        let (sid, number) = (facts.sid(), facts.next_log_number());
        let entry = format!("{}.{:09}|{}|({sid},{number})", now.sec, now.nsec, line());
        plan.push(Change::Log(entry));
    }
}
