//! A hostile object store: what it sends never takes more memory than was requested.

use std::sync::Arc;
use std::time::Duration;

use jfs::object::{GetRequest, ObjectStore, Spec, open};
use jfs::{Error, Result};
use proptest::prelude::*;

use crate::hostile_server::{Harm, Hostile, chunk, chunked, nothing, ten_terabytes, whole};

/// Some of a refused body is in transit, in buffers of both kernels.
const IN_FLIGHT: u64 = 32 << 20;

fn client(server: &Hostile) -> Arc<dyn ObjectStore> {
    let mut spec = Spec::new("s3", &format!("http://{}/bucket?region=x", server.address));
    spec.access_key = "anonymous".to_owned();
    spec.retries = 0;
    spec.get_timeout = Duration::from_mins(1);
    open(&spec).unwrap()
}

#[track_caller]
fn error_message<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Storage { .. }), "{error:?}");
    let error_message = error.to_string();
    assert!(!error_message.contains("no response within"), "{error_message}");
    assert!(error_message.len() < 2000, "{} bytes", error_message.len());
    error_message
}

fn entry(key: &str) -> String {
    let rest = "<LastModified>2024-01-01T00:00:00.000Z</LastModified><Size>1</Size>";
    format!("<Contents><Key>{key}</Key>{rest}</Contents>")
}

fn listing(entries: &str, next: Option<&str>) -> String {
    let next = match next {
        Some(token) => format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        ),
        None => "<IsTruncated>false</IsTruncated>".to_owned(),
    };
    format!("<?xml version=\"1.0\"?><ListBucketResult>{next}{entries}</ListBucketResult>")
}

#[tokio::test]
async fn an_announced_length_of_ten_terabytes_is_refused() {
    let server = Hostile::store(ten_terabytes());
    let store = client(&server);
    let whole = error_message(store.get("a", GetRequest::whole_up_to(4 << 20)).await);
    assert!(whole.contains("announces 10000000000000 bytes"), "{whole}");
    error_message(store.get("a", GetRequest::range_up_to(0..100, 4 << 20)).await);
}

#[tokio::test]
async fn an_endless_body_is_cut_off_at_the_maximum_size() {
    let piece = "x".repeat(1000);
    let server = Hostile::store(Harm::Endless { first: chunked(200, "x"), then: chunk(&piece) });
    let store = client(&server);
    for wanted in [
        GetRequest::whole_up_to(4 << 20),
        GetRequest::range_up_to(5..10, 4 << 20),
        GetRequest::whole_up_to(0),
    ] {
        let error_message = error_message(store.get("a", wanted).await);
        assert!(error_message.contains("more than"), "{error_message}");
    }
    assert!(server.sent() < 3 * IN_FLIGHT, "{}", server.sent());
}

#[tokio::test]
async fn a_range_longer_than_requested_is_refused() {
    let head = "HTTP/1.1 206 So\r\nContent-Range: bytes 0-9/100\r\nContent-Length: 5000\r\n\r\n";
    let server = Hostile::store(Harm::Say([head.as_bytes(), &[b'x'; 5000][..]].concat()));
    let error_message =
        error_message(client(&server).get("a", GetRequest::range_up_to(0..10, 4 << 20)).await);
    assert!(error_message.contains("announces 5000 bytes"), "{error_message}");
}

#[tokio::test]
async fn an_endless_error_is_cut_off() {
    let first = chunked(500, "<Error><Code>InternalError</Code><Message>");
    let server = Hostile::start(move |_| Harm::Endless {
        first: first.clone(),
        then: chunk(&"x".repeat(1000)),
    });
    let store = client(&server);
    error_message(store.get("a", GetRequest::whole()).await);
    error_message(store.put("a", bytes::Bytes::from_static(b"x"), 0).await);
    error_message(store.list("", "", 10).await);
    assert!(server.sent() < 3 * IN_FLIGHT, "{}", server.sent());
}

#[tokio::test]
async fn a_long_error_message_is_shortened() {
    let message = "many\nwords ".repeat(10_000);
    let body = format!("<Error><Code>Odd</Code><Message>{message}</Message></Error>");
    let answer = format!("HTTP/1.1 400 So\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let server = Hostile::store(Harm::Say(answer.into_bytes()));
    let error_message = error_message(client(&server).get("a", GetRequest::whole()).await);
    assert!(error_message.contains("Odd") && !error_message.contains('\n'), "{error_message}");
}

#[tokio::test]
async fn an_endless_listing_is_cut_off() {
    let first = chunked(200, "<ListBucketResult>");
    let server = Hostile::store(Harm::Endless { first, then: chunk(&entry("a")) });
    error_message(client(&server).list("", "", 10).await);
    assert!(server.sent() < IN_FLIGHT, "{}", server.sent());
}

#[tokio::test]
async fn a_listing_without_progress_ends() {
    // The same page again and again; then empty pages; then more keys than were requested.
    let same = Hostile::store(whole(&listing(&entry("a"), Some("t"))));
    let second_message = error_message(client(&same).list("", "", 1000).await);
    assert!(
        second_message.contains("\"a\" was listed before \"a\"")
            || second_message.contains("no progress"),
        "{second_message}"
    );

    let empty = Hostile::store(whole(&listing("", Some("t"))));
    assert!(error_message(client(&empty).list("", "", 1000).await).contains("makes no progress"));

    let number = std::sync::atomic::AtomicU64::new(0);
    let new = Hostile::start(move |_| {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        whole(&listing("", Some(&number.to_string())))
    });
    assert!(error_message(client(&new).list("", "", 1000).await).contains("makes no progress"));

    let entries: String = (0..50).map(|i| entry(&format!("{i:03}"))).collect();
    let many = Hostile::store(whole(&listing(&entries, None)));
    assert!(error_message(client(&many).list("", "", 10).await).contains("50 keys"));
}

#[tokio::test]
async fn endless_headers_are_cut_off() {
    for then in ["X-Many: of them\r\n", "x"] {
        let first = b"HTTP/1.1 200 OK\r\nX-Long: ".to_vec();
        let server = Hostile::store(Harm::Endless { first, then: then.as_bytes().to_vec() });
        error_message(client(&server).get("a", GetRequest::whole()).await);
        assert!(server.sent() < IN_FLIGHT, "{}", server.sent());
    }
}

/// Generates responses that are nearly valid.
fn mangled() -> impl Strategy<Value = Vec<u8>> {
    let seeds = vec![
        listing(&entry("a%2Fb"), None),
        listing(&(entry("a") + &entry("b")), Some("t")),
        "<Error><Code>SlowDown</Code><Message>later</Message></Error>".to_owned(),
        String::new(),
    ];
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..12);
    let heads = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 206 So\r\nContent-Range: bytes 0-3/9\r\nx-amz-meta-crc32c: 7\r\n",
        "HTTP/1.1 416 So\r\n",
        "HTTP/1.1 503 So\r\n",
        "HTTP/1.1 404 So\r\nLast-Modified: never\r\nx-amz-storage-class: \u{1}\r\n",
    ]);
    (prop::sample::select(seeds), heads, edits).prop_map(|(body, head, edits)| {
        let length = format!("Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        let mut raw = [head.as_bytes(), length.as_bytes(), body.as_bytes()].concat();
        for (at, byte, how) in edits {
            let at = at.index(raw.len());
            match how {
                0 => raw[at] = byte,
                1 => raw.insert(at, byte),
                2 => drop(raw.remove(at)),
                _ => raw.truncate(at.max(10)),
            }
        }
        raw
    })
}

#[test]
fn no_response_makes_a_client_panic_or_hang() {
    let answer = Arc::new(std::sync::Mutex::new(Vec::new()));
    let server = Hostile::start({
        let answer = Arc::clone(&answer);
        move |_| match answer.lock().unwrap().clone() {
            empty if empty.is_empty() => nothing(),
            // Closes the connection afterwards, so that no one waits for more.
            bytes => Harm::Say(bytes),
        }
    });
    server.hang_up();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config =
        ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner
        .run(&mangled(), |raw| {
            *answer.lock().unwrap() = raw;
            runtime.block_on(async {
                let store = client(&server);
                let asked = async {
                    let _ = store.get("a", GetRequest::whole_up_to(1000)).await;
                    let _ = store.get("a", GetRequest::range_up_to(2..5, 1000)).await;
                    let _ = store.head("a").await;
                    let _ = store.list("", "", 10).await;
                    let _ = store.put("a", bytes::Bytes::new(), 0).await;
                    let _ = store.delete("a").await;
                };
                tokio::time::timeout(Duration::from_mins(1), asked)
                    .await
                    .map_err(|_| TestCaseError::fail("no response in time"))
            })
        })
        .unwrap();
}
