//! A test of a store before a volume relies on it.

use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;
use rand::distr::Alphanumeric;
use tracing::{debug, warn};

use super::s3::without_request_id;
use super::{GetRequest, ObjectStore};
use crate::error::{Error, Result};

/// Prefix of test objects, beside a volume's own. Other clients of the volume know to ignore it.
pub const TEST_PREFIX: &str = "testing/";

/// How long to wait after each failure but the last.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// Writes an object in a tier, reads it back if `reads` is set (some storage classes cannot be read
/// at once), and deletes it. Creates the bucket if it is missing.
pub async fn probe(store: &dyn ObjectStore, tier: u8, reads: bool) -> Result<()> {
    let name: String = rand::rng().sample_iter(Alphanumeric).take(10).map(char::from).collect();
    let key = format!("{TEST_PREFIX}{name}");
    let body: Bytes = rand::random::<[u8; 100]>().to_vec().into();
    let mut backoff = RETRY_DELAYS.iter();
    loop {
        let Err(error) = attempt(store, &key, &body, tier, reads).await else { break };
        // Only debug: the caller reports the last error, and each attempt fails with the same one.
        debug!(%error, "the storage test failed");
        // Waiting does not help if the keys are wrong.
        let is_final = matches!(error, Error::Denied { .. } | Error::Forbidden(_));
        let Some(pause) = backoff.next().filter(|_| !is_final) else {
            return Err(without_variable_parts(error));
        };
        tokio::time::sleep(*pause).await;
    }
    // Only a file system has a directory there.
    let _ = store.delete(TEST_PREFIX).await;
    Ok(())
}

async fn attempt(
    store: &dyn ObjectStore,
    key: &str,
    body: &Bytes,
    tier: u8,
    reads: bool,
) -> Result<()> {
    if let Err(error) = store.put(key, body.clone(), tier).await {
        store.create().await.map_err(|second| both_errors(error, second))?;
        store.put(key, body.clone(), tier).await?;
    }
    let outcome = if reads { compare(store, key, body).await } else { Ok(()) };
    if let Err(error) = store.delete(key).await {
        // The keys may allow writing but not deleting; the volume would never shrink.
        warn!(%error, "cannot delete the test object: deleted data will stay in the bucket");
    }
    outcome
}

async fn compare(store: &dyn ObjectStore, key: &str, body: &Bytes) -> Result<()> {
    if store.get(key, GetRequest::whole()).await? == body {
        return Ok(());
    }
    Err(Error::Storage {
        place: store.place().to_owned(),
        action: "read back",
        key: key.to_owned(),
        cause: "the content differs from what was written".to_owned(),
    })
}

/// Combines both failures: if the bucket cannot be created, the first failure may have another
/// cause.
fn both_errors(error: Error, second: Error) -> Error {
    match without_variable_parts(error) {
        Error::Storage { place, action, key, cause } => {
            let second = without_variable_parts(second);
            let cause = format!("{cause}; creating the bucket failed too: {second}");
            Error::Storage { place, action, key, cause }
        }
        other => other,
    }
}

/// Removes what differs between attempts, the name of the object and the request id, so that
/// repeated errors are recognized as the same.
fn without_variable_parts(mut error: Error) -> Error {
    if let Error::Storage { key, cause, .. } | Error::Denied { key, cause, .. } = &mut error {
        if key.contains(TEST_PREFIX) {
            "a test object".clone_into(key);
        }
        *cause = without_request_id(cause).to_owned();
    }
    error
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::fault_injection::{Fault, FaultyStore};
    use super::super::mem::MemStore;
    use super::*;

    fn faulty() -> (Arc<MemStore>, FaultyStore) {
        let bucket = Arc::new(MemStore::default());
        (bucket.clone(), FaultyStore::new(bucket))
    }

    #[tokio::test(start_paused = true)]
    async fn a_working_store_is_left_as_it_was() {
        let (bucket, store) = faulty();
        probe(&store, 0, true).await.unwrap();
        assert_eq!(bucket.list("", "", 9).await.unwrap(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_returns_other_content_is_refused() {
        let (bucket, store) = faulty();
        let one = [Fault::None, Fault::WrongByte, Fault::None];
        store.script([one, one, one].concat());
        let error = probe(&store, 0, true).await.unwrap_err();
        assert!(error.to_string().contains("differs from what was written"), "{error}");
        assert_eq!(bucket.list("", "", 9).await.unwrap(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_fails_at_first_gets_more_attempts() {
        let (_, store) = faulty();
        // Put, create the bucket, put again: twice.
        store.script([Fault::Error, Fault::None, Fault::Error, Fault::Error, Fault::Error]);
        probe(&store, 0, true).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_always_fails_is_refused_with_both_reasons() {
        let (_, store) = faulty();
        store.script([Fault::Error; 100]);
        let error = probe(&store, 0, true).await.unwrap_err().to_string();
        assert!(error.contains("put a test object"), "{error}");
        assert!(error.contains("creating the bucket") && !error.contains(TEST_PREFIX), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tier_that_cannot_be_read_at_once_is_not_read() {
        let (bucket, store) = faulty();
        probe(&store, 3, false).await.unwrap();
        // Put, delete, and delete the directory.
        assert_eq!(store.requests(), 3);
        assert_eq!(bucket.list("", "", 9).await.unwrap(), []);
    }
}
