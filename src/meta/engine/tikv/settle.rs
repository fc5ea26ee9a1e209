//! Commits whose answer was lost: first they are ended, then looked for.
//!
//! A transaction is committed when its primary key is, and whoever finds the primary's lock may
//! roll it back. Doing so ends the matter: a commit that is still under way finds no lock and
//! fails. Only then does it make sense to look at what is stored.

use bytes::Bytes;
use tikv_client::{Backoff, Error as Cause, ProtoLockInfo, Timestamp, TimestampExt};

use super::fault::unknown_transaction;
use super::patience::Patience;
use super::store::Cluster;
use crate::error::Result;

/// One write of a transaction.
pub(super) struct Trace {
    pub key: Vec<u8>,
    pub old: Before,
    pub new: Option<Bytes>,
}

/// What a key held before the transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Nobody looked.
    Unread,
    Read(Option<Bytes>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Applied,
    /// Not applied, and never will be.
    Absent,
    /// The primary key knows nothing of it. In two phases nothing was committed then, since that
    /// takes all locks; in one it may still arrive, until it is rolled back.
    NeverBegun,
    /// It has ended, or nobody answers; what is stored tells nothing.
    Unclear,
}

pub(super) async fn settle(
    cluster: &Cluster,
    primary: &[u8],
    start: &Timestamp,
    traces: &[Trace],
) -> Outcome {
    match end(cluster, primary, start).await {
        Ok(End::Decided) => {}
        Ok(End::NeverBegun) => return Outcome::NeverBegun,
        Err(_) => return Outcome::Unclear,
    }
    match stored(cluster, traces).await {
        Ok(now) => judge(traces, &now),
        Err(_) => Outcome::Unclear,
    }
}

enum End {
    /// The primary key is committed or rolled back.
    Decided,
    NeverBegun,
}

/// Commits or rolls back for good what the primary key decides.
async fn end(cluster: &Cluster, primary: &[u8], start: &Timestamp) -> Result<End> {
    let primary: Vec<u8> = cluster.full(primary).into();
    let lock = ProtoLockInfo {
        key: primary.clone(),
        primary_lock: primary,
        lock_version: start.version(),
        // The protocol's word for a lock that is not to be waited for.
        lock_ttl: 0,
        ..ProtoLockInfo::default()
    };
    let now = cluster.timestamp().await?;
    let mut patience = Patience::new(cluster, "ending a transaction");
    loop {
        let asked = async {
            let backoff = Backoff::no_jitter_backoff(2, 500, 10);
            match cluster.client.resolve_locks(vec![lock.clone()], now.clone(), backoff).await {
                Ok(left) if left.is_empty() => Ok(End::Decided),
                Ok(left) => Err(Cause::ResolveLockError(left)),
                Err(cause) if unknown_transaction(&cause).is_some() => Ok(End::NeverBegun),
                Err(cause) => Err(cause),
            }
        };
        if let Some(end) = patience.answer(asked).await? {
            return Ok(end);
        }
    }
}

/// What is stored now: at a new timestamp, so that other locks of the transaction are met, and
/// followed to its primary.
async fn stored(cluster: &Cluster, traces: &[Trace]) -> Result<Vec<Option<Bytes>>> {
    let now = cluster.timestamp().await?;
    let keys: Vec<Vec<u8>> = traces.iter().map(|trace| trace.key.clone()).collect();
    cluster.values(&keys, &now).await
}

/// Only keys whose value the commit would have changed tell anything. One that nobody looked at
/// before can say that the commit did not come through, if another one says what was there instead.
fn judge(traces: &[Trace], now: &[Option<Bytes>]) -> Outcome {
    let (mut all_new, mut all_old) = (true, true);
    let (mut any, mut any_read) = (false, false);
    for (trace, now) in traces.iter().zip(now) {
        let is_new = *now == trace.new;
        match &trace.old {
            Before::Read(old) if *old == trace.new => continue,
            Before::Unread if trace.new.is_none() => continue,
            Before::Read(old) => {
                any_read = true;
                all_old &= old == now;
            }
            Before::Unread => all_old &= !is_new,
        }
        any = true;
        all_new &= is_new;
    }
    match (all_new, all_old) {
        (true, false) if any => Outcome::Applied,
        (false, true) if any_read => Outcome::Absent,
        _ => Outcome::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &'static str) -> Option<Bytes> {
        (!text.is_empty()).then(|| Bytes::from_static(text.as_bytes()))
    }

    fn trace(old: Option<&'static str>, new: &'static str) -> Trace {
        let old = old.map_or(Before::Unread, |old| Before::Read(value(old)));
        Trace { key: b"k".to_vec(), old, new: value(new) }
    }

    #[test]
    fn all_new_is_applied_and_all_old_is_absent() {
        let traces = [trace(Some(""), "a"), trace(Some("x"), "")];
        assert_eq!(judge(&traces, &[value("a"), value("")]), Outcome::Applied);
        assert_eq!(judge(&traces, &[value(""), value("x")]), Outcome::Absent);
    }

    #[test]
    fn anything_else_is_unclear() {
        let traces = [trace(Some(""), "a"), trace(Some("x"), "y")];
        assert_eq!(judge(&traces, &[value("a"), value("x")]), Outcome::Unclear);
        assert_eq!(judge(&traces, &[value("b"), value("x")]), Outcome::Unclear);
    }

    #[test]
    fn what_was_not_looked_at_before_can_only_say_yes() {
        assert_eq!(judge(&[trace(None, "a")], &[value("a")]), Outcome::Applied);
        assert_eq!(judge(&[trace(None, "a")], &[value("")]), Outcome::Unclear);
        assert_eq!(judge(&[trace(None, "")], &[value("")]), Outcome::Unclear);
    }

    #[test]
    fn one_key_that_is_as_before_is_enough_if_no_other_is_new() {
        let traces = [trace(Some("x"), "y"), trace(None, "a")];
        assert_eq!(judge(&traces, &[value("x"), value("")]), Outcome::Absent);
        assert_eq!(judge(&traces, &[value("x"), value("a")]), Outcome::Unclear);
        assert_eq!(judge(&traces, &[value("y"), value("a")]), Outcome::Applied);
    }

    #[test]
    fn a_value_written_back_says_nothing() {
        assert_eq!(judge(&[trace(Some("a"), "a")], &[value("a")]), Outcome::Unclear);
    }
}
