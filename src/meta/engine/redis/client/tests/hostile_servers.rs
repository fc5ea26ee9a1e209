//! Servers that are malicious or not Redis: the connection fails with an error that says so, and no
//! memory is allocated for what they announce.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, join, repeat, sink};

use super::super::super::connect;
use super::super::multiplexer::Multiplexer;
use super::super::resp::MAX_REPLY_BYTES;
use super::super::single;

/// Starts a server that sends every client `first` and then `then` again and again, and counts the
/// bytes that it could send.
fn server(first: &[u8], then: &[u8]) -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent = Arc::new(AtomicU64::new(0));
    let (first, counter) = (first.to_vec(), Arc::clone(&sent));
    let many = if then.is_empty() { Vec::new() } else { then.repeat((64 << 10) / then.len() + 1) };
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
            let (first, many, sent) = (first.clone(), many.clone(), Arc::clone(&counter));
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 1024]);
                let mut next = first;
                while stream.write_all(&next).is_ok() && !many.is_empty() {
                    sent.fetch_add(next.len() as u64, Ordering::SeqCst);
                    next.clone_from(&many);
                }
                let _ = stream.read(&mut [0; 1024]);
            });
        }
    });
    (port, sent)
}

async fn connect_error(port: u16) -> String {
    let url = format!("redis://127.0.0.1:{port}/1");
    let connected = tokio::time::timeout(Duration::from_mins(1), connect(&url, &|_| None));
    connected.await.expect("connecting hangs").map(drop).unwrap_err().to_string()
}

#[tokio::test]
async fn endless_replies_are_cut_off() {
    let cases: [(&[u8], &[u8]); 8] = [
        (b"$9223372036854775807\r\n", b"x"),
        (b"$536870912\r\n", b"x"),
        (b"*1000000000\r\n", b":1\r\n"),
        (b"*9223372036854775807\r\n", b"$1\r\nx\r\n"),
        (b"", b"*1\r\n"),
        (b"+", b"x"),
        (b"-ERR ", b"x"),
        (b"*999999\r\n", b"*999999\r\n"),
    ];
    for (first, then) in cases {
        let (port, sent) = server(first, then);
        let error = connect_error(port).await;
        let case = first.escape_ascii();
        assert!(error.contains("does not answer as Redis does"), "{case}: {error}");
        assert!(error.contains(&format!("127.0.0.1:{port}")), "{case}: {error}");
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 2 * MAX_REPLY_BYTES as u64, "{case}: {sent} bytes");
    }
}

#[tokio::test]
async fn replies_without_requests_close_the_connection() {
    let (port, sent) = server(b"", b"$-1\r\n");
    let error = connect_error(port).await;
    assert!(error.contains("a reply without a request"), "{error}");
    assert!(sent.load(Ordering::SeqCst) < 2 * MAX_REPLY_BYTES as u64);
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_reported_as_such() {
    let cases: [&[u8]; 5] = [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"220 mail.test ESMTP\r\n",
        b"SSH-2.0-test\r\n",
        b":1\r\n",
        b"*1\r\n$1\r\na\r\n",
    ];
    for first in cases {
        let (port, _) = server(first, b"");
        let error = connect_error(port).await;
        assert!(error.contains("does not answer as Redis does"), "{error}");
        assert!(!error.contains("damaged record"), "{error}");
    }
}

/// Other tasks on the thread run between two polls of the task that reads for all.
#[tokio::test]
async fn a_long_reply_is_read_in_several_polls() {
    let first = format!("${}\r\n", MAX_REPLY_BYTES - 13);
    let reply = AsyncReadExt::chain(std::io::Cursor::new(first.into_bytes()), repeat(b'x'));
    let multiplexer = Multiplexer::new("a server".to_owned(), Box::new(join(reply, sink())));
    let request = single(redis::cmd("PING"));
    let mut exchange = pin!(multiplexer.exchange(&request));
    let mut polls = 0;
    let response = poll_fn(|cx| {
        polls += 1;
        exchange.as_mut().poll(cx)
    });
    // The string is longer than announced.
    assert!(response.await.is_err());
    assert!(polls >= 16, "{polls} polls for {MAX_REPLY_BYTES} bytes");
}
