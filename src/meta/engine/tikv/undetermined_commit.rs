//! Commits whose response was lost: end them, then find out how they ended.
//!
//! A transaction is committed when its primary key is, and any client that finds the primary key's
//! lock may roll it back. That settles the outcome: a commit that is still under way finds no lock
//! and fails. Only then does it make sense to compare the stored values.

use bytes::Bytes;
use tikv_client::{Backoff, Error as Cause, ProtoLockInfo, Timestamp, TimestampExt};

use super::errors::transaction_without_primary;
use super::retry::Retry;
use super::store::Cluster;
use crate::error::Result;

/// One key that the transaction writes.
pub(super) struct WrittenKey {
    pub key: Vec<u8>,
    pub old: OldValue,
    pub new: Option<Bytes>,
}

/// The value of a key before the transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OldValue {
    /// The transaction did not read it.
    Unread,
    Read(Option<Bytes>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Applied,
    /// Not applied, and never will be.
    NotApplied,
    /// The primary key has no trace of it. In two phases nothing was committed then, since a commit
    /// needs all locks. In one phase it may still arrive, until it is rolled back.
    NotStarted,
    /// No server responds, or the stored values do not show what happened.
    Undetermined,
}

/// Ends a transaction and returns how it ended.
pub(super) async fn determine_outcome(
    cluster: &Cluster,
    primary: &[u8],
    start: &Timestamp,
    written: &[WrittenKey],
) -> Outcome {
    match end_transaction(cluster, primary, start).await {
        Ok(End::Decided) => {}
        Ok(End::NotStarted) => return Outcome::NotStarted,
        Err(_) => return Outcome::Undetermined,
    }
    match stored_values(cluster, written).await {
        Ok(now) => judge(written, &now),
        Err(_) => Outcome::Undetermined,
    }
}

enum End {
    /// The primary key is committed or rolled back.
    Decided,
    NotStarted,
}

/// Commits or rolls back for good, as the primary key decides.
async fn end_transaction(cluster: &Cluster, primary: &[u8], start: &Timestamp) -> Result<End> {
    let primary: Vec<u8> = cluster.with_prefix(primary).into();
    let lock = ProtoLockInfo {
        key: primary.clone(),
        primary_lock: primary,
        lock_version: start.version(),
        // 0 tells the server not to wait for the lock to expire.
        lock_ttl: 0,
        ..ProtoLockInfo::default()
    };
    let now = cluster.timestamp().await?;
    let mut retry = Retry::new(cluster, "resolving a transaction");
    loop {
        let request = async {
            let backoff = Backoff::no_jitter_backoff(2, 500, 10);
            match cluster.client.resolve_locks(vec![lock.clone()], now.clone(), backoff).await {
                Ok(left) if left.is_empty() => Ok(End::Decided),
                Ok(left) => Err(Cause::ResolveLockError(left)),
                Err(cause) if transaction_without_primary(&cause).is_some() => Ok(End::NotStarted),
                Err(cause) => Err(cause),
            }
        };
        if let Some(end) = retry.attempt(request).await? {
            return Ok(end);
        }
    }
}

/// Reads the values at a new timestamp, so that the read finds remaining locks of the transaction
/// and resolves them through its primary key.
async fn stored_values(cluster: &Cluster, written: &[WrittenKey]) -> Result<Vec<Option<Bytes>>> {
    let now = cluster.timestamp().await?;
    let keys: Vec<Vec<u8>> = written.iter().map(|write| write.key.clone()).collect();
    cluster.values(&keys, &now).await
}

/// Compares the stored values with the old and the new ones. Only keys whose value the commit would
/// have changed count. A key whose old value was not read can confirm that the commit was not
/// applied, if another key still has its old value.
fn judge(written: &[WrittenKey], now: &[Option<Bytes>]) -> Outcome {
    let (mut all_new, mut all_old) = (true, true);
    let (mut any, mut any_read) = (false, false);
    for (write, now) in written.iter().zip(now) {
        let is_new = *now == write.new;
        match &write.old {
            OldValue::Read(old) if *old == write.new => continue,
            OldValue::Unread if write.new.is_none() => continue,
            OldValue::Read(old) => {
                any_read = true;
                all_old &= old == now;
            }
            OldValue::Unread => all_old &= !is_new,
        }
        any = true;
        all_new &= is_new;
    }
    match (all_new, all_old) {
        (true, false) if any => Outcome::Applied,
        (false, true) if any_read => Outcome::NotApplied,
        _ => Outcome::Undetermined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &'static str) -> Option<Bytes> {
        (!text.is_empty()).then(|| Bytes::from_static(text.as_bytes()))
    }

    fn write(old: Option<&'static str>, new: &'static str) -> WrittenKey {
        let old = old.map_or(OldValue::Unread, |old| OldValue::Read(value(old)));
        WrittenKey { key: b"k".to_vec(), old, new: value(new) }
    }

    #[test]
    fn all_new_values_mean_applied_and_all_old_ones_not_applied() {
        let written = [write(Some(""), "a"), write(Some("x"), "")];
        assert_eq!(judge(&written, &[value("a"), value("")]), Outcome::Applied);
        assert_eq!(judge(&written, &[value(""), value("x")]), Outcome::NotApplied);
    }

    #[test]
    fn a_mixture_is_undetermined() {
        let written = [write(Some(""), "a"), write(Some("x"), "y")];
        assert_eq!(judge(&written, &[value("a"), value("x")]), Outcome::Undetermined);
        assert_eq!(judge(&written, &[value("b"), value("x")]), Outcome::Undetermined);
    }

    #[test]
    fn a_key_that_was_not_read_alone_can_only_confirm_the_commit() {
        assert_eq!(judge(&[write(None, "a")], &[value("a")]), Outcome::Applied);
        assert_eq!(judge(&[write(None, "a")], &[value("")]), Outcome::Undetermined);
        assert_eq!(judge(&[write(None, "")], &[value("")]), Outcome::Undetermined);
    }

    #[test]
    fn one_old_value_is_enough_if_no_other_key_is_new() {
        let written = [write(Some("x"), "y"), write(None, "a")];
        assert_eq!(judge(&written, &[value("x"), value("")]), Outcome::NotApplied);
        assert_eq!(judge(&written, &[value("x"), value("a")]), Outcome::Undetermined);
        assert_eq!(judge(&written, &[value("y"), value("a")]), Outcome::Applied);
    }

    #[test]
    fn a_key_rewritten_with_its_old_value_proves_nothing() {
        assert_eq!(judge(&[write(Some("a"), "a")], &[value("a")]), Outcome::Undetermined);
    }
}
