//! Errors of the client library: which are transient, and which prove that a commit had no effect.

use std::time::Duration;

use tikv_client::{Error as Cause, ProtoKeyError};

use crate::error::Error;

/// Time for one read or one commit with all its retries. The locks of a client that died block a
/// key for three seconds, and a region that moves for less.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(15);

/// gRPC codes for a response that is too large for the server to send, or for the library to
/// accept.
const RESOURCE_EXHAUSTED: i32 = 8;
const OUT_OF_RANGE: i32 = 11;

/// Returns whether a retry may help: a key is locked, a region is moving, or a server is busy,
/// restarting or briefly unreachable.
pub(super) fn is_transient(cause: &Cause) -> bool {
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
        Cause::UndeterminedError(inner) => is_transient(inner),
        Cause::KeyError(error) => error.locked.is_some() || error.txn_not_found.is_some(),
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => all.iter().any(is_transient),
        _ => false,
    }
}

/// Returns whether the response was larger than the server or this client allows.
pub(super) fn is_too_large(cause: &Cause) -> bool {
    match cause {
        Cause::GrpcAPI(status) => {
            let code = i32::from(status.code());
            code == RESOURCE_EXHAUSTED || code == OUT_OF_RANGE
        }
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => all.iter().any(is_too_large),
        _ => false,
    }
}

/// Returns the start of the transaction whose lock blocks a key while its primary key has no trace
/// of it: it is just being written, or its client died before it wrote the primary key.
pub(super) fn transaction_without_primary(cause: &Cause) -> Option<u64> {
    match cause {
        Cause::TxnNotFound(gone) => Some(gone.start_ts),
        Cause::KeyError(error) => error.txn_not_found.as_ref().map(|gone| gone.start_ts),
        Cause::UndeterminedError(inner) => transaction_without_primary(inner),
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => {
            all.iter().find_map(transaction_without_primary)
        }
        _ => None,
    }
}

/// Returns whether a commit failed before anything was committed: a key was changed or is locked,
/// or another client took the transaction for dead and rolled it back.
pub(super) fn is_rejection(cause: &Cause) -> bool {
    match cause {
        // Keys were locked, and nothing else happened.
        Cause::ResolveLockError(_) | Cause::OnePcFailure => true,
        Cause::KeyError(error) => is_key_rejection(error),
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => {
            !all.is_empty() && all.iter().all(is_rejection)
        }
        _ => false,
    }
}

/// Returns whether the server does not commit in one phase, either now or ever.
pub(super) fn declines_one_phase(cause: &Cause) -> bool {
    match cause {
        Cause::OnePcFailure => true,
        Cause::RegionError(error) => error.max_timestamp_not_synced.is_some(),
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => {
            all.iter().any(declines_one_phase)
        }
        _ => false,
    }
}

fn is_key_rejection(error: &ProtoKeyError) -> bool {
    error.conflict.is_some()
        || error.locked.is_some()
        || error.txn_not_found.is_some()
        || error.commit_ts_expired.is_some()
        // "TxnLockNotFound": the primary lock is gone, and our commit did not remove it.
        || !error.retryable.is_empty()
}

/// Returns the error that the engine reports.
pub(super) fn engine_error(place: &str, cause: &Cause) -> Error {
    let place = place.to_owned();
    if is_transient(cause) {
        Error::Unreachable { place, cause: describe(cause) }
    } else {
        Error::Engine { place, cause: describe(cause) }
    }
}

/// Returns the error for a response that no TiKV server sends.
pub(super) fn unexpected_response(place: &str, what: &str) -> Error {
    Error::Engine {
        place: place.to_owned(),
        cause: format!("unexpected response for a TiKV server: {what}"),
    }
}

pub(super) fn timed_out(place: &str, what: &str) -> Error {
    let cause = format!("{what} took longer than {} s", TIME_LIMIT.as_secs());
    Error::Unreachable { place: place.to_owned(), cause }
}

/// Describes an error in one line. The library itself prints whole messages, with keys and values
/// as lists of numbers.
fn describe(cause: &Cause) -> String {
    match cause {
        Cause::ResolveLockError(_) => "a key is locked by another client".to_owned(),
        Cause::GrpcAPI(status) => format!("{:?}: {}", status.code(), status.message()),
        Cause::Grpc(error) => chain(error),
        Cause::RegionError(error) => format!("region error: {}", error.message),
        Cause::UndeterminedError(inner) => describe(inner),
        Cause::KeyError(error) => describe_key(error),
        Cause::ExtractedErrors(all) | Cause::MultipleKeyErrors(all) => {
            all.first().map_or_else(|| "an unspecified error".to_owned(), describe)
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
