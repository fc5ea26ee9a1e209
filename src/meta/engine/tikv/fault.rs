//! What went wrong: which errors pass by themselves, which ones say that nothing was done.

use std::time::Duration;

use tikv_client::{Error as Cause, ProtoKeyError};

use crate::error::Error;

/// For one read or one commit with all its repetitions. Locks of a client that died are in the way
/// for three seconds, and a region that moves for less.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// What a server says of an answer that it may not send, and the library of one that it may not
/// take, in the numbers of gRPC.
const RESOURCE_EXHAUSTED: i32 = 8;
const OUT_OF_RANGE: i32 = 11;

/// Whether asking again may help: a lock or a region is in the way, or a server is busy, restarting
/// or just not reached.
pub(super) fn passes(cause: &Cause) -> bool {
    match cause {
        Cause::ResolveLockError(_)
        | Cause::RegionError(_)
        | Cause::LeaderNotFound { .. }
        | Cause::RegionForKeyNotFound { .. }
        | Cause::RegionForRangeNotFound { .. }
        | Cause::RegionNotFoundInResponse { .. }
        | Cause::EntryNotFoundInRegionCache
        | Cause::NoCurrentRegions
        | Cause::TxnNotFound(_)
        | Cause::Grpc(_)
        | Cause::GrpcAPI(_) => true,
        Cause::UndeterminedError(inner) => passes(inner),
        Cause::KeyError(error) => error.locked.is_some() || error.txn_not_found.is_some(),
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => all.iter().any(passes),
        _ => false,
    }
}

/// Whether the answer is larger than a message may be: one of the servers', or of ours.
pub(super) fn too_large(cause: &Cause) -> bool {
    match cause {
        Cause::GrpcAPI(status) => {
            let code = i32::from(status.code());
            code == RESOURCE_EXHAUSTED || code == OUT_OF_RANGE
        }
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => all.iter().any(too_large),
        _ => false,
    }
}

/// The transaction, by its start, whose lock is in the way and whose primary key knows nothing of
/// it: it is being written, or its client died before it got there.
pub(super) fn unknown_transaction(cause: &Cause) -> Option<u64> {
    match cause {
        Cause::TxnNotFound(gone) => Some(gone.start_ts),
        Cause::KeyError(error) => error.txn_not_found.as_ref().map(|gone| gone.start_ts),
        Cause::UndeterminedError(inner) => unknown_transaction(inner),
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => {
            all.iter().find_map(unknown_transaction)
        }
        _ => None,
    }
}

/// Whether a commit failed before anything could be committed: a key was changed or is locked, or
/// the transaction was rolled back by someone who found it dead.
pub(super) fn refuses(cause: &Cause) -> bool {
    match cause {
        // Keys were locked and nothing more.
        Cause::ResolveLockError(_) | Cause::OnePcFailure => true,
        Cause::KeyError(error) => is_refusal(error),
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => {
            !all.is_empty() && all.iter().all(refuses)
        }
        _ => false,
    }
}

/// Whether the server will not commit in one phase, now or ever.
pub(super) fn declines(cause: &Cause) -> bool {
    match cause {
        Cause::OnePcFailure => true,
        Cause::RegionError(error) => error.max_timestamp_not_synced.is_some(),
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => all.iter().any(declines),
        _ => false,
    }
}

fn is_refusal(error: &ProtoKeyError) -> bool {
    error.conflict.is_some()
        || error.locked.is_some()
        || error.txn_not_found.is_some()
        || error.commit_ts_expired.is_some()
        // "TxnLockNotFound": the primary lock is gone, and no commit of ours took it.
        || !error.retryable.is_empty()
}

/// The error for those above.
pub(super) fn engine_error(place: &str, cause: &Cause) -> Error {
    let place = place.to_owned();
    if passes(cause) {
        Error::Unreachable { place, cause: describe(cause) }
    } else {
        Error::Engine { place, cause: describe(cause) }
    }
}

/// An answer that no TiKV gives.
pub(super) fn odd_answer(place: &str, what: &str) -> Error {
    Error::Engine {
        place: place.to_owned(),
        cause: format!("it does not answer as TiKV does: {what}"),
    }
}

pub(super) fn out_of_patience(place: &str, what: &str) -> Error {
    let cause = format!("{what} took longer than {} s", PATIENCE.as_secs());
    Error::Unreachable { place: place.to_owned(), cause }
}

/// In a line: the library prints whole messages, with keys and values as lists of numbers.
fn describe(cause: &Cause) -> String {
    match cause {
        Cause::ResolveLockError(_) => "a key is locked by another client".to_owned(),
        Cause::GrpcAPI(status) => format!("{:?}: {}", status.code(), status.message()),
        Cause::Grpc(error) => chain(error),
        Cause::RegionError(error) => format!("region error: {}", error.message),
        Cause::UndeterminedError(inner) => describe(inner),
        Cause::KeyError(error) => describe_key(error),
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => {
            all.first().map_or_else(|| "an unnamed error".to_owned(), describe)
        }
        other => other.to_string(),
    }
}

fn describe_key(error: &ProtoKeyError) -> String {
    match error {
        _ if error.conflict.is_some() => "write conflict".to_owned(),
        _ if error.locked.is_some() => "a key is locked by another client".to_owned(),
        _ if !error.abort.is_empty() => error.abort.clone(),
        _ if !error.retryable.is_empty() => error.retryable.clone(),
        _ if error.txn_not_found.is_some() => "the transaction is gone".to_owned(),
        _ if error.commit_ts_expired.is_some() => "the commit came too late".to_owned(),
        _ => "a key was refused".to_owned(),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
