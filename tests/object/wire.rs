//! Requests to an S3 server, as they are sent.

use bytes::Bytes;
use jfs::object::{GetRequest, Spec, Tier, open};

use crate::s3::{S3Server, SECRET_KEY};

fn tier(class: &str, tag: &str) -> Tier {
    Tier { class: class.to_owned(), tag: tag.to_owned() }
}

#[tokio::test]
async fn a_body_is_not_signed_and_has_only_the_checksum_of_juicefs() {
    let server = S3Server::start();
    let store = open(&server.spec("bucket")).unwrap();
    store.put("a", Bytes::from_static(b"123456789"), 0).await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("PUT", "/bucket/a"));
    assert_eq!(seen.header("x-amz-content-sha256"), "UNSIGNED-PAYLOAD");
    assert_eq!(seen.header("content-length"), "9");
    assert_eq!(seen.header("content-type"), "application/octet-stream");
    assert_eq!(seen.header("x-amz-meta-crc32c"), "3808858755");
    for name in ["content-encoding", "transfer-encoding", "expect", "x-amz-storage-class"] {
        assert_eq!(seen.header(name), "", "{name}");
    }
    for name in ["x-amz-tagging", "x-amz-trailer", "x-amz-sdk-checksum-algorithm"] {
        assert_eq!(seen.header(name), "", "{name}");
    }
    assert!(seen.headers.keys().all(|name| !name.as_str().starts_with("x-amz-checksum")));
    assert!(
        seen.header("authorization").starts_with("AWS4-HMAC-SHA256 Credential=test-access-key/")
    );
    assert!(!format!("{seen:?}").contains(SECRET_KEY));
}

/// With classes that the server knows.
#[tokio::test]
async fn a_tier_has_its_class_and_tag() {
    let server = S3Server::start();
    let mut spec = server.spec("bucket");
    spec.tiers = [(0, tier("STANDARD", "")), (2, tier("REDUCED_REDUNDANCY", "team=a b"))].into();
    let store = open(&spec).unwrap();
    for number in [0, 2, 3] {
        store.put("a", Bytes::from_static(b"x"), number).await.unwrap();
    }
    let seen = server.seen();
    let placed =
        |at: usize| (seen[at].header("x-amz-storage-class"), seen[at].header("x-amz-tagging"));
    assert_eq!(placed(0), ("STANDARD", ""));
    assert_eq!(placed(1), ("REDUCED_REDUNDANCY", "team=a+b"));
    assert_eq!(placed(2), ("STANDARD", ""));
}

#[tokio::test]
async fn the_checksum_can_be_disabled_by_the_address() {
    let server = S3Server::start();
    let mut spec = server.spec("bucket");
    spec.bucket += "?disable-checksum=true";
    let store = open(&spec).unwrap();
    store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
    assert_eq!(server.seen()[0].header("x-amz-meta-crc32c"), "");
}

#[tokio::test]
async fn a_range_is_requested_by_its_first_and_last_byte() {
    let server = S3Server::start();
    let store = open(&server.spec("bucket")).unwrap();
    store.put("a", Bytes::from_static(b"0123456789"), 0).await.unwrap();
    store.get("a", GetRequest::range(2..5)).await.unwrap();
    store.get("a", GetRequest::whole()).await.unwrap();
    let seen = server.seen();
    assert_eq!((seen[1].header("range"), seen[2].header("range")), ("bytes=2-4", ""));
}

#[tokio::test]
async fn a_session_token_is_sent_and_anonymous_requests_are_not_signed() {
    let server = S3Server::start();
    let mut spec = server.spec("bucket");
    spec.session_token = jfs::secret::Secret::new("token");
    // The server knows no tokens; only the request matters.
    let _ = open(&spec).unwrap().head("a").await;
    assert_eq!(server.seen()[0].header("x-amz-security-token"), "token");

    let anonymous = Spec { access_key: "anonymous".to_owned(), ..server.spec("bucket") };
    let error = open(&anonymous).unwrap().get("a", GetRequest::whole()).await.unwrap_err();
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    assert_eq!(server.seen()[0].header("authorization"), "");
}

#[tokio::test]
async fn a_listing_requests_encoded_keys_after_the_marker() {
    let server = S3Server::start();
    let store = open(&server.spec("bucket")).unwrap();
    store.list("a b/", "a b/c", 7).await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!(seen.path, "/bucket/");
    for part in ["list-type=2", "prefix=a%20b%2F", "start-after=a%20b%2Fc", "max-keys=7"] {
        assert!(seen.query.split('&').any(|one| one == part), "{part}: {}", seen.query);
    }
    assert!(seen.query.contains("encoding-type=url"), "{}", seen.query);
}

#[tokio::test]
async fn connections_are_reused() {
    let server = S3Server::start();
    let store = open(&server.spec("bucket")).unwrap();
    for _ in 0..20 {
        store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
        store.get("a", GetRequest::whole()).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_missing_bucket_is_created() {
    let server = S3Server::start();
    let spec = Spec { bucket: server.address("new"), ..server.spec("other") };
    let store = open(&spec).unwrap();
    let error = store.put("a", Bytes::from_static(b"x"), 0).await.unwrap_err();
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
    store.create().await.unwrap();
    store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
}
