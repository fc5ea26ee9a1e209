//! A failing S3 server: what is reported, and what is retried.

use std::time::Duration;

use bytes::Bytes;
use jfs::object::{GetRequest, ObjectStore, Spec, open};
use jfs::policy::{Flags, Policy};
use jfs::secret::Secret;
use jfs::{Error, Result};

use crate::s3::{ACCESS_KEY, Fault, S3Server, SECRET_KEY};

fn error_message<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Storage { .. } | Error::Denied { .. }), "{error:?}");
    let error_message = error.to_string();
    assert!(
        !error_message.contains(SECRET_KEY) && !error_message.contains("Signature="),
        "{error_message}"
    );
    error_message
}

async fn stocked(server: &S3Server, retries: u32) -> std::sync::Arc<dyn ObjectStore> {
    let store = open(&Spec { retries, ..server.spec("bucket") }).unwrap();
    store.put("a", Bytes::from(vec![7; 300_000]), 0).await.unwrap();
    store
}

#[tokio::test]
async fn an_error_names_place_key_code_status_and_request() {
    let server = S3Server::start();
    let store = stocked(&server, 0).await;
    server.fail([Fault::Answer(403, "AccessDenied")]);
    let error_message = error_message(store.get("a", GetRequest::whole()).await);
    for part in
        ["s3://127.0.0.1:", "/bucket/", "get a", "AccessDenied", "status 403", "test-request"]
    {
        assert!(error_message.contains(part), "{part} is not in: {error_message}");
    }
}

#[tokio::test]
async fn denied_keys_and_forbidden_addresses_are_distinct_from_failures() {
    let server = S3Server::start();
    let store = stocked(&server, 0).await;
    for status in [401, 403] {
        server.fail([Fault::Answer(status, "AccessDenied")]);
        let error = store.get("a", GetRequest::whole()).await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    }
    server.fail([Fault::Answer(400, "InvalidRequest")]);
    let error = store.get("a", GetRequest::whole()).await.unwrap_err();
    assert!(matches!(error, Error::Storage { .. }), "{error:?}");
    // A name that resolves to an address that the policy forbids.
    let policy = Policy::new(Flags::default()).unwrap();
    let named = Spec { policy, retries: 9, ..server.spec("bucket") };
    let named = Spec { bucket: named.bucket.replace("127.0.0.1", "localhost"), ..named };
    let store = open(&named).unwrap();
    let error = store.put("a", Bytes::from_static(b"x"), 0).await.unwrap_err();
    assert!(matches!(error, Error::Forbidden(_)), "{error:?}");
}

#[tokio::test]
async fn a_missing_bucket_is_not_a_missing_object() {
    let server = S3Server::start();
    let spec = Spec { bucket: server.address("nowhere"), ..server.spec("bucket") };
    let store = open(&spec).unwrap();
    assert!(error_message(store.get("a", GetRequest::whole()).await).contains("NoSuchBucket"));
    error_message(store.head("a").await);
    error_message(store.list("", "", 1).await);
    // A proxy that knows nothing of objects.
    server.fail([Fault::Answer(404, "")]);
    error_message(open(&server.spec("bucket")).unwrap().get("a", GetRequest::whole()).await);
}

#[tokio::test]
async fn wrong_keys_are_reported_without_showing_them() {
    let server = S3Server::start();
    let mut spec = server.spec("bucket");
    spec.secret_key = Secret::new("open sesame");
    let error_message = error_message(open(&spec).unwrap().get("a", GetRequest::whole()).await);
    assert!(error_message.contains("SignatureDoesNotMatch"), "{error_message}");
    assert!(!error_message.contains("sesame"), "{error_message}");
}

#[tokio::test]
async fn an_unreachable_server_is_reported() {
    let mut spec = Spec::new("s3", "http://127.0.0.1:1/bucket");
    (spec.access_key, spec.secret_key) = (ACCESS_KEY.to_owned(), Secret::new(SECRET_KEY));
    spec.retries = 0;
    let error_message = error_message(open(&spec).unwrap().get("a", GetRequest::whole()).await);
    assert!(error_message.contains("refused"), "{error_message}");
}

#[tokio::test]
async fn wrong_bytes_are_detected_by_their_checksum() {
    let server = S3Server::start();
    let store = stocked(&server, 0).await;
    server.fail([Fault::WrongByte]);
    assert!(error_message(store.get("a", GetRequest::whole()).await).contains("checksum"));
    server.fail([Fault::Short(1000)]);
    assert!(error_message(store.get("a", GetRequest::whole()).await).contains("checksum"));
}

#[tokio::test]
async fn a_broken_connection_is_an_error_and_not_a_short_object() {
    let server = S3Server::start();
    let store = stocked(&server, 0).await;
    for at in [0, 1, 200_000] {
        server.fail([Fault::Cut(at)]);
        error_message(store.get("a", GetRequest::whole()).await);
    }
    server.fail([Fault::Cut(10)]);
    error_message(store.get("a", GetRequest::range(0..1000)).await);
    assert_eq!(store.get("a", GetRequest::whole()).await.unwrap().len(), 300_000);
}

#[tokio::test]
async fn a_late_response_is_an_error() {
    let server = S3Server::start();
    stocked(&server, 0).await;
    let short = Duration::from_millis(200);
    let spec = Spec { get_timeout: short, ..server.spec("bucket") };
    let store = open(&spec).unwrap();
    server.fail([Fault::Delay(Duration::from_mins(10))]);
    assert!(
        error_message(store.get("a", GetRequest::whole()).await)
            .contains("no response within 200ms")
    );
}

#[tokio::test]
async fn transient_failures_are_retried() {
    let server = S3Server::start();
    let store = stocked(&server, 1).await;
    for fault in [
        Fault::Answer(503, "SlowDown"),
        Fault::Answer(500, "InternalError"),
        Fault::Cut(1000),
        Fault::WrongByte,
    ] {
        server.fail([fault]);
        assert_eq!(store.get("a", GetRequest::whole()).await.unwrap().len(), 300_000, "{fault:?}");
    }
    server.fail([Fault::LoseAnswer]);
    store.put("b", Bytes::from_static(b"x"), 0).await.unwrap();
    server.fail([Fault::LoseAnswer]);
    store.delete("b").await.unwrap();
    assert!(matches!(store.get("b", GetRequest::whole()).await, Err(Error::NotFound)));
}
