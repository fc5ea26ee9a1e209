//! The change log: a line per operation, written in the operation's own commit.

use crate::meta::engine::Change;
use crate::meta::record::changelog::{LogLine, LogOp};
use crate::meta::{MetaTxn, Plan};

/// Adds a line if the volume keeps a change log.
pub fn log<T>(tx: &MetaTxn<'_>, plan: &mut Plan<T>, op: LogOp<'_>) {
    let facts = tx.facts();
    if facts.setting().change_log {
        let line = LogLine { at: tx.now(), op };
        plan.push(Change::Log(line.render(facts.sid(), facts.next_log_number())));
    }
}
