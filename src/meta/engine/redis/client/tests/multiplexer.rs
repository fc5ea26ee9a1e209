//! The multiplexer over a stream within the process.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, poll};
use rand::RngExt;
use redis::{Pipeline, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::super::address::Endpoint;
use super::super::connection::Connection;
use super::super::multiplexer::Multiplexer;
use super::super::request_queue::{NoReply, Response};
use super::super::resp::{self, Scan};

/// Bytes that the stream buffers in each direction.
const BUFFER: usize = 4096;

fn new_multiplexer(stream: DuplexStream) -> Arc<Multiplexer> {
    Multiplexer::new("a server".to_owned(), Box::new(stream))
}

fn echo(words: &[&str]) -> Pipeline {
    let mut pipe = Pipeline::new();
    for word in words {
        pipe.cmd("ECHO").arg(word);
    }
    pipe
}

fn text(word: &str) -> Value {
    Value::BulkString(word.as_bytes().to_vec())
}

/// Sends a request in a task of its own.
fn spawn_echo(
    multiplexer: &Arc<Multiplexer>,
    word: &'static str,
) -> tokio::task::JoinHandle<Response> {
    let multiplexer = multiplexer.clone();
    tokio::spawn(async move { multiplexer.exchange(&echo(&[word])).await })
}

/// Lets all tasks run until they wait for something.
async fn let_tasks_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// The server side of a stream: reads ECHO commands and writes replies.
struct EchoServer {
    stream: DuplexStream,
    raw: Vec<u8>,
}

impl EchoServer {
    fn new(stream: DuplexStream) -> Self {
        Self { stream, raw: Vec::new() }
    }

    /// Reads the next word to echo; none if the client closed the connection.
    async fn word(&mut self) -> Option<String> {
        loop {
            if let Some(end) = Scan::new().end(&self.raw).unwrap() {
                let Value::Array(mut parts) = resp::parse(&self.raw[..end]).unwrap() else {
                    panic!("not a command")
                };
                self.raw.drain(..end);
                let Some(Value::BulkString(word)) = parts.pop() else { panic!("not a word") };
                return Some(String::from_utf8(word).unwrap());
            }
            let mut more = [0; 512];
            match self.stream.read(&mut more).await {
                Ok(count) if count > 0 => self.raw.extend_from_slice(&more[..count]),
                _ => return None,
            }
        }
    }

    async fn write(&mut self, reply: &str) {
        self.stream.write_all(reply.as_bytes()).await.unwrap();
    }

    async fn echo(&mut self) {
        let word = self.word().await.unwrap();
        self.write(&format!("${}\r\n{word}\r\n", word.len())).await;
    }
}

#[tokio::test]
async fn replies_to_the_commands_of_a_request_are_in_order() {
    let (ours, theirs) = duplex(BUFFER);
    let (multiplexer, mut server) = (new_multiplexer(ours), EchoServer::new(theirs));
    let asked = tokio::spawn(async move { multiplexer.exchange(&echo(&["a", "b"])).await });
    server.echo().await;
    server.echo().await;
    assert_eq!(asked.await.unwrap().unwrap(), [text("a"), text("b")]);
}

#[tokio::test]
async fn a_large_request_is_sent_without_waiting_for_others() {
    let (ours, theirs) = duplex(1 << 20);
    let (multiplexer, mut server) = (new_multiplexer(ours), EchoServer::new(theirs));
    let word = "x".repeat(20 << 10);
    let (small, large) = (echo(&["a"]), echo(&[&word]));
    let mut first = pin!(multiplexer.exchange(&small));
    assert!(poll!(&mut first).is_pending());
    let mut second = pin!(multiplexer.exchange(&large));
    assert!(poll!(&mut second).is_pending());
    // All of it has been sent, although no task was woken.
    assert_eq!(server.word().now_or_never().flatten().as_deref(), Some("a"));
    assert!(server.word().now_or_never().flatten() == Some(word));
    server.write("+1\r\n+2\r\n").await;
    assert_eq!(first.await.unwrap(), [Value::SimpleString("1".to_owned())]);
    assert_eq!(second.await.unwrap(), [Value::SimpleString("2".to_owned())]);
}

#[tokio::test]
async fn no_other_request_gets_the_reply_of_a_cancelled_one() {
    let (ours, theirs) = duplex(BUFFER);
    let (multiplexer, mut server) = (new_multiplexer(ours), EchoServer::new(theirs));
    let (first, second, third) = (
        spawn_echo(&multiplexer, "a"),
        spawn_echo(&multiplexer, "b"),
        spawn_echo(&multiplexer, "c"),
    );
    let_tasks_run().await;
    second.abort();
    let_tasks_run().await;
    for _ in 0..3 {
        server.echo().await;
    }
    assert_eq!(first.await.unwrap().unwrap(), [text("a")]);
    assert_eq!(third.await.unwrap().unwrap(), [text("c")]);
}

#[tokio::test]
async fn if_the_task_that_would_read_is_cancelled_another_reads() {
    let (ours, theirs) = duplex(BUFFER);
    let (multiplexer, mut server) = (new_multiplexer(ours), EchoServer::new(theirs));
    let (first, second) = (spawn_echo(&multiplexer, "a"), spawn_echo(&multiplexer, "b"));
    let_tasks_run().await;
    // The reply wakes the first task, which is cancelled before it runs.
    server.echo().await;
    first.abort();
    server.echo().await;
    assert_eq!(second.await.unwrap().unwrap(), [text("b")]);
}

#[tokio::test]
async fn the_reply_of_a_cancelled_request_does_not_disturb_the_next() {
    let (ours, theirs) = duplex(BUFFER);
    let (multiplexer, mut server) = (new_multiplexer(ours), EchoServer::new(theirs));
    let gone = spawn_echo(&multiplexer, "a");
    let_tasks_run().await;
    gone.abort();
    let_tasks_run().await;
    let next = spawn_echo(&multiplexer, "b");
    server.echo().await;
    server.echo().await;
    assert_eq!(next.await.unwrap().unwrap(), [text("b")]);
}

#[tokio::test]
async fn sent_requests_are_lost_with_the_connection_and_the_rest_is_unsent() {
    let (ours, theirs) = duplex(64);
    let multiplexer = new_multiplexer(ours);
    let sent = spawn_echo(&multiplexer, "a");
    let_tasks_run().await;
    let partly = {
        let multiplexer = multiplexer.clone();
        tokio::spawn(async move { multiplexer.exchange(&echo(&[&"b".repeat(200)])).await })
    };
    let_tasks_run().await;
    let unsent = spawn_echo(&multiplexer, "c");
    let_tasks_run().await;
    drop(theirs);
    assert!(matches!(sent.await.unwrap(), Err(NoReply::Lost(_))));
    assert!(matches!(partly.await.unwrap(), Err(NoReply::Lost(_))));
    assert!(matches!(unsent.await.unwrap(), Err(NoReply::Unsent(_))));
    assert!(multiplexer.is_dead());
    assert!(matches!(multiplexer.exchange(&echo(&["d"])).await, Err(NoReply::Unsent(_))));
}

#[tokio::test]
async fn nothing_is_sent_after_the_server_closed_the_connection() {
    let (ours, theirs) = duplex(BUFFER);
    let multiplexer = new_multiplexer(ours);
    drop(theirs);
    assert!(matches!(multiplexer.exchange(&echo(&["a"])).await, Err(NoReply::Unsent(_))));
}

#[tokio::test]
async fn a_cancelled_request_that_was_sent_in_part_is_never_completed() {
    let (ours, theirs) = duplex(64);
    let (multiplexer, mut server) = (new_multiplexer(ours), EchoServer::new(theirs));
    let partly = {
        let multiplexer = multiplexer.clone();
        tokio::spawn(async move { multiplexer.exchange(&echo(&[&"a".repeat(200)])).await })
    };
    let_tasks_run().await;
    partly.abort();
    let_tasks_run().await;
    assert!(matches!(multiplexer.exchange(&echo(&["b"])).await, Err(NoReply::Unsent(_))));
    assert_eq!(server.word().await, None);
}

#[tokio::test]
async fn a_reply_without_a_request_closes_the_connection() {
    let (ours, theirs) = duplex(BUFFER);
    let (multiplexer, mut server) = (new_multiplexer(ours), EchoServer::new(theirs));
    let asked = spawn_echo(&multiplexer, "a");
    let_tasks_run().await;
    server.write("+one\r\n+two\r\n").await;
    assert_eq!(asked.await.unwrap().unwrap(), [Value::SimpleString("one".to_owned())]);
    assert!(multiplexer.is_dead());
}

#[tokio::test]
async fn a_reply_before_its_request_closes_the_connection_and_only_an_error_is_delivered() {
    let (ours, theirs) = duplex(BUFFER);
    let (refused, mut server) = (new_multiplexer(ours), EchoServer::new(theirs));
    server.write("-ERR max number of clients reached\r\n").await;
    let values = refused.exchange(&echo(&["a", "b"])).await.unwrap();
    assert_eq!(values.len(), 2);
    assert!(values.iter().all(|value| matches!(value, Value::ServerError(_))), "{values:?}");
    assert!(refused.is_dead());

    let (ours, theirs) = duplex(BUFFER);
    let (odd, mut server) = (new_multiplexer(ours), EchoServer::new(theirs));
    server.write("+hello\r\n").await;
    assert!(odd.exchange(&echo(&["a"])).await.is_err());
    assert!(odd.is_dead());
}

#[tokio::test]
async fn more_requests_than_permits_all_get_replies() {
    let (ours, theirs) = duplex(BUFFER);
    let (multiplexer, mut server) = (new_multiplexer(ours), EchoServer::new(theirs));
    let all: Vec<_> = (0..3000).map(|_| spawn_echo(&multiplexer, "a")).collect();
    let serve = tokio::spawn(async move {
        for _ in 0..3000 {
            server.echo().await;
        }
        server
    });
    for asked in all {
        assert_eq!(asked.await.unwrap().unwrap(), [text("a")]);
    }
    serve.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_overdue_reply_closes_the_connection() {
    let limit = Duration::from_secs(30);
    let (ours, theirs) = duplex(BUFFER);
    let mut server = EchoServer::new(theirs);
    let endpoint = Endpoint::Tcp { host: "server".to_owned(), port: 1 };
    let connection = Arc::new(Connection::new(endpoint, Box::new(ours), Some(limit)));
    // Requests that get their replies in time keep it open.
    for _ in 0..5 {
        tokio::time::sleep(limit / 4 * 3).await;
        let connection = connection.clone();
        let asked = tokio::spawn(async move { connection.exchange(&echo(&["a"])).await });
        server.echo().await;
        assert!(asked.await.unwrap().is_ok());
    }
    let started = tokio::time::Instant::now();
    let Err(NoReply::Lost(cause)) = connection.exchange(&echo(&["b"])).await else { panic!() };
    assert!(cause.contains("in time"), "{cause}");
    let waited = started.elapsed();
    assert!(waited >= limit && waited < limit + Duration::from_secs(1), "{waited:?}");
    assert!(connection.is_dead());
}

/// How often the server executed each word.
type Executed = Arc<Mutex<HashMap<String, usize>>>;

/// Replies in pieces of any length, and sometimes closes the connection, before or after executing a
/// command.
async fn unreliable_server(stream: DuplexStream, executed: Executed) {
    let mut server = EchoServer::new(stream);
    while let Some(word) = server.word().await {
        if rand::rng().random_ratio(1, 800) {
            return;
        }
        *executed.lock().unwrap().entry(word.clone()).or_default() += 1;
        if rand::rng().random_ratio(1, 800) {
            return;
        }
        let reply = format!("${}\r\n{word}\r\n", word.len());
        let (head, tail) = reply.split_at(rand::rng().random_range(0..reply.len()));
        for part in [head, tail] {
            if server.stream.write_all(part.as_bytes()).await.is_err() {
                return;
            }
            if rand::rng().random_ratio(1, 3) {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Returns the shared multiplexer, or a new one if it is dead.
fn current(shared: &Mutex<Arc<Multiplexer>>, executed: &Executed) -> Arc<Multiplexer> {
    let mut shared = shared.lock().unwrap();
    if shared.is_dead() {
        let (ours, theirs) = duplex(BUFFER);
        tokio::spawn(unreliable_server(theirs, executed.clone()));
        *shared = new_multiplexer(ours);
    }
    shared.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_gets_its_own_reply_in_spite_of_cancellations_and_broken_connections() {
    let executed = Executed::default();
    let (ours, _) = duplex(BUFFER);
    let shared = Arc::new(Mutex::new(new_multiplexer(ours)));
    shared.lock().unwrap().close("not connected yet");
    let task = |task: usize| {
        let (executed, shared) = (executed.clone(), shared.clone());
        async move {
            let mut answered = 0;
            for i in 0..1000 {
                let multiplexer = current(&shared, &executed);
                let words = [format!("{task}-{i}"), format!("{task}-{i}-more")];
                let words = &words[..rand::rng().random_range(1..=2)];
                let pipe = echo(&words.iter().map(String::as_str).collect::<Vec<_>>());
                let polls = match rand::rng().random_range(0..8) {
                    0 => rand::rng().random_range(0..6),
                    _ => usize::MAX,
                };
                let response = tokio::select! {
                    biased;
                    response = multiplexer.exchange(&pipe) => response,
                    () = yields(polls) => continue,
                };
                let count =
                    |word: &String| executed.lock().unwrap().get(word).copied().unwrap_or(0);
                match response {
                    Ok(values) => {
                        let expected: Vec<Value> = words.iter().map(|word| text(word)).collect();
                        assert_eq!(values, expected);
                        assert!(words.iter().all(|word| count(word) == 1));
                        answered += 1;
                    }
                    Err(NoReply::Unsent(_)) => assert!(words.iter().all(|word| count(word) == 0)),
                    Err(NoReply::Lost(_)) => assert!(words.iter().all(|word| count(word) <= 1)),
                }
            }
            answered
        }
    };
    let all: Vec<_> = (0..32).map(|i| tokio::spawn(task(i))).collect();
    let mut answered = 0;
    for task in all {
        let limit = Duration::from_mins(2);
        answered += tokio::time::timeout(limit, task).await.expect("a request hangs").unwrap();
    }
    assert!(answered > 10_000, "{answered} of 32000 requests got replies");
}

async fn yields(count: usize) {
    if count == usize::MAX {
        return std::future::pending().await;
    }
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}
