//! Finding out whether a store works before a volume relies on it.

use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;
use rand::distr::Alphanumeric;
use tracing::{debug, warn};

use super::s3::without_request_id;
use super::{GetRequest, ObjectStore};
use crate::error::{Error, Result};

/// Where test objects lie, beside a volume's own: its other clients know to leave them alone.
pub const TEST_PREFIX: &str = "testing/";

/// How long to wait after each failure but the last.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// Writes an object in a tier and deletes it again, and in between, if it `reads`, compares: there
/// are classes that cannot be read at once. Makes the bucket if it can and must.
pub async fn probe(store: &dyn ObjectStore, tier: u8, reads: bool) -> Result<()> {
    let name: String = rand::rng().sample_iter(Alphanumeric).take(10).map(char::from).collect();
    let key = format!("{TEST_PREFIX}{name}");
    let body: Bytes = rand::random::<[u8; 100]>().to_vec().into();
    let mut backoff = PAUSES.iter();
    loop {
        let Err(error) = attempt(store, &key, &body, tier, reads).await else { break };
        // Whoever is told tells it: a line here for each try would say the same thing.
        debug!(%error, "the storage test failed");
        // Keys that are wrong do not get right by waiting.
        let is_final = matches!(error, Error::Denied { .. } | Error::Forbidden(_));
        let Some(pause) = backoff.next().filter(|_| !is_final) else {
            return Err(without_variable_parts(error));
        };
        tokio::time::sleep(*pause).await;
    }
    // Only a file system has something there.
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
        // One may be allowed to write and not to delete; the volume then never shrinks.
        warn!(%error, "the test object could not be deleted");
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
        cause: "it is not what was written".to_owned(),
    })
}

/// Both failures: the bucket cannot be made because the first thing that failed was another one.
fn both_errors(error: Error, second: Error) -> Error {
    match without_variable_parts(error) {
        Error::Storage { place, action, key, cause } => {
            let second = without_variable_parts(second);
            let cause = format!("{cause}; nor could the bucket be made: {second}");
            Error::Storage { place, action, key, cause }
        }
        other => other,
    }
}

/// The error without what is new with each test, the name of its object and the number of a request: so
/// whoever counts errors sees one and not many.
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
    async fn a_store_that_works_is_left_as_it_was() {
        let (bucket, store) = faulty();
        probe(&store, 0, true).await.unwrap();
        assert_eq!(bucket.list("", "", 9).await.unwrap(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_answers_with_something_else_is_refused() {
        let (bucket, store) = faulty();
        let one = [Fault::None, Fault::WrongByte, Fault::None];
        store.script([one, one, one].concat());
        let error = probe(&store, 0, true).await.unwrap_err();
        assert!(error.to_string().contains("not what was written"), "{error}");
        assert_eq!(bucket.list("", "", 9).await.unwrap(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_fails_at_first_is_given_time() {
        let (_, store) = faulty();
        // Put, make the bucket, put again: twice.
        store.script([Fault::Error, Fault::None, Fault::Error, Fault::Error, Fault::Error]);
        probe(&store, 0, true).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_only_fails_is_refused_with_both_reasons() {
        let (_, store) = faulty();
        store.script([Fault::Error; 100]);
        let error = probe(&store, 0, true).await.unwrap_err().to_string();
        assert!(error.contains("put a test object"), "{error}");
        assert!(error.contains("bucket be made") && !error.contains(TEST_PREFIX), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_read_at_once_is_not_read() {
        let (bucket, store) = faulty();
        probe(&store, 3, false).await.unwrap();
        // Put, delete, and delete the folder.
        assert_eq!(store.requests(), 3);
        assert_eq!(bucket.list("", "", 9).await.unwrap(), []);
    }
}
