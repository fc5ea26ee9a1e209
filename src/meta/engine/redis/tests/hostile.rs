//! Servers that mean harm, or are no Redis: the connection ends with an error that says so, and no
//! memory is taken for what they announce.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, join, repeat, sink};

use super::super::connect;
use super::super::line::Line;
use super::super::resp::LARGEST;
use super::super::wire::single;

/// A server that answers everybody with `first` and then with `then` for ever, and counts what it
/// could send.
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

async fn refusal(port: u16) -> String {
    let url = format!("redis://127.0.0.1:{port}/1");
    let connected = tokio::time::timeout(Duration::from_mins(1), connect(&url, &|_| None));
    connected.await.expect("an answer in time").map(drop).unwrap_err().to_string()
}

#[tokio::test]
async fn what_has_no_end_is_cut_off_and_named() {
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
        let told = refusal(port).await;
        let case = first.escape_ascii();
        assert!(told.contains("does not answer as Redis does"), "{case}: {told}");
        assert!(told.contains(&format!("127.0.0.1:{port}")), "{case}: {told}");
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 2 * LARGEST as u64, "{case}: {sent} bytes");
    }
}

#[tokio::test]
async fn answers_without_questions_end_the_connection() {
    let (port, sent) = server(b"", b"$-1\r\n");
    let told = refusal(port).await;
    assert!(told.contains("an answer without a question"), "{told}");
    assert!(sent.load(Ordering::SeqCst) < 2 * LARGEST as u64);
}

#[tokio::test]
async fn a_server_that_is_no_redis_is_said_to_be_none() {
    let cases: [&[u8]; 5] = [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"220 mail.test ESMTP\r\n",
        b"SSH-2.0-test\r\n",
        b":1\r\n",
        b"*1\r\n$1\r\na\r\n",
    ];
    for first in cases {
        let (port, _) = server(first, b"");
        let told = refusal(port).await;
        assert!(told.contains("does not answer as Redis does"), "{told}");
        assert!(!told.contains("damaged record"), "{told}");
    }
}

/// Between two polls of the one that reads for all, others on its thread have their turn.
#[tokio::test]
async fn a_long_answer_is_read_in_turns_with_others() {
    let first = format!("${}\r\n", LARGEST - 13);
    let answer = AsyncReadExt::chain(std::io::Cursor::new(first.into_bytes()), repeat(b'x'));
    let line = Line::new("a server".to_owned(), Box::new(join(answer, sink())));
    let question = single(redis::cmd("PING"));
    let mut asking = pin!(line.exchange(&question));
    let mut polls = 0;
    let answer = poll_fn(|cx| {
        polls += 1;
        asking.as_mut().poll(cx)
    });
    // It goes on where it should end.
    assert!(answer.await.is_err());
    assert!(polls >= 16, "{polls} polls for {LARGEST} bytes");
}
