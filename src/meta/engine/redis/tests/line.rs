//! A connection that many share, over a stream within the process.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, poll};
use rand::RngExt;
use redis::{Pipeline, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::super::address::Endpoint;
use super::super::line::Line;
use super::super::link::Link;
use super::super::queue::{Answer, Silence};
use super::super::resp::{self, Scan};

/// Bytes that fit on the way, each way.
const PIPE: usize = 4096;

fn line(stream: DuplexStream) -> Arc<Line> {
    Line::new("a server".to_owned(), Box::new(stream))
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

/// Asks in a task of its own.
fn ask(line: &Arc<Line>, word: &'static str) -> tokio::task::JoinHandle<Answer> {
    let line = line.clone();
    tokio::spawn(async move { line.exchange(&echo(&[word])).await })
}

/// Lets all tasks run until they wait for something.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// What a server reads: the words that it is to answer with.
struct Reader {
    stream: DuplexStream,
    raw: Vec<u8>,
}

impl Reader {
    fn new(stream: DuplexStream) -> Self {
        Self { stream, raw: Vec::new() }
    }

    /// None when the client has hung up.
    async fn word(&mut self) -> Option<String> {
        loop {
            if let Some(end) = Scan::new().end(&self.raw).unwrap() {
                let Value::Array(mut parts) = resp::value(&self.raw[..end]).unwrap() else {
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

    async fn say(&mut self, answer: &str) {
        self.stream.write_all(answer.as_bytes()).await.unwrap();
    }

    async fn echo(&mut self) {
        let word = self.word().await.unwrap();
        self.say(&format!("${}\r\n{word}\r\n", word.len())).await;
    }
}

#[tokio::test]
async fn all_commands_of_a_request_are_answered_in_order() {
    let (ours, theirs) = duplex(PIPE);
    let (line, mut server) = (line(ours), Reader::new(theirs));
    let asked = tokio::spawn(async move { line.exchange(&echo(&["a", "b"])).await });
    server.echo().await;
    server.echo().await;
    assert_eq!(asked.await.unwrap().unwrap(), [text("a"), text("b")]);
}

#[tokio::test]
async fn a_large_request_waits_for_no_others_to_be_sent() {
    let (ours, theirs) = duplex(1 << 20);
    let (line, mut server) = (line(ours), Reader::new(theirs));
    let word = "x".repeat(20 << 10);
    let (small, large) = (echo(&["a"]), echo(&[&word]));
    let mut first = pin!(line.exchange(&small));
    assert!(poll!(&mut first).is_pending());
    let mut second = pin!(line.exchange(&large));
    assert!(poll!(&mut second).is_pending());
    // All of it is on its way, though nobody was asked to go on.
    assert_eq!(server.word().now_or_never().flatten().as_deref(), Some("a"));
    assert!(server.word().now_or_never().flatten() == Some(word));
    server.say("+1\r\n+2\r\n").await;
    assert_eq!(first.await.unwrap(), [Value::SimpleString("1".to_owned())]);
    assert_eq!(second.await.unwrap(), [Value::SimpleString("2".to_owned())]);
}

#[tokio::test]
async fn the_answer_of_one_that_gave_up_goes_to_nobody_else() {
    let (ours, theirs) = duplex(PIPE);
    let (line, mut server) = (line(ours), Reader::new(theirs));
    let (first, second, third) = (ask(&line, "a"), ask(&line, "b"), ask(&line, "c"));
    settle().await;
    second.abort();
    settle().await;
    for _ in 0..3 {
        server.echo().await;
    }
    assert_eq!(first.await.unwrap().unwrap(), [text("a")]);
    assert_eq!(third.await.unwrap().unwrap(), [text("c")]);
}

#[tokio::test]
async fn if_the_one_that_would_read_gives_up_another_reads() {
    let (ours, theirs) = duplex(PIPE);
    let (line, mut server) = (line(ours), Reader::new(theirs));
    let (first, second) = (ask(&line, "a"), ask(&line, "b"));
    settle().await;
    // The answer wakes the first one, which is gone before it runs.
    server.echo().await;
    first.abort();
    server.echo().await;
    assert_eq!(second.await.unwrap().unwrap(), [text("b")]);
}

#[tokio::test]
async fn an_answer_that_nobody_waited_for_is_out_of_the_way_of_the_next() {
    let (ours, theirs) = duplex(PIPE);
    let (line, mut server) = (line(ours), Reader::new(theirs));
    let gone = ask(&line, "a");
    settle().await;
    gone.abort();
    settle().await;
    let next = ask(&line, "b");
    server.echo().await;
    server.echo().await;
    assert_eq!(next.await.unwrap().unwrap(), [text("b")]);
}

#[tokio::test]
async fn what_was_sent_is_lost_with_the_line_and_the_rest_is_unsent() {
    let (ours, theirs) = duplex(64);
    let line = line(ours);
    let sent = ask(&line, "a");
    settle().await;
    let partly = {
        let line = line.clone();
        tokio::spawn(async move { line.exchange(&echo(&[&"b".repeat(200)])).await })
    };
    settle().await;
    let unsent = ask(&line, "c");
    settle().await;
    drop(theirs);
    assert!(matches!(sent.await.unwrap(), Err(Silence::Lost(_))));
    assert!(matches!(partly.await.unwrap(), Err(Silence::Lost(_))));
    assert!(matches!(unsent.await.unwrap(), Err(Silence::Unsent(_))));
    assert!(line.is_dead());
    assert!(matches!(line.exchange(&echo(&["d"])).await, Err(Silence::Unsent(_))));
}

#[tokio::test]
async fn nothing_is_sent_to_a_server_that_has_hung_up() {
    let (ours, theirs) = duplex(PIPE);
    let line = line(ours);
    drop(theirs);
    assert!(matches!(line.exchange(&echo(&["a"])).await, Err(Silence::Unsent(_))));
}

#[tokio::test]
async fn a_request_sent_in_part_and_given_up_is_never_completed() {
    let (ours, theirs) = duplex(64);
    let (line, mut server) = (line(ours), Reader::new(theirs));
    let partly = {
        let line = line.clone();
        tokio::spawn(async move { line.exchange(&echo(&[&"a".repeat(200)])).await })
    };
    settle().await;
    partly.abort();
    settle().await;
    assert!(matches!(line.exchange(&echo(&["b"])).await, Err(Silence::Unsent(_))));
    assert_eq!(server.word().await, None);
}

#[tokio::test]
async fn an_answer_without_a_question_ends_the_line() {
    let (ours, theirs) = duplex(PIPE);
    let (line, mut server) = (line(ours), Reader::new(theirs));
    let asked = ask(&line, "a");
    settle().await;
    server.say("+one\r\n+two\r\n").await;
    assert_eq!(asked.await.unwrap().unwrap(), [Value::SimpleString("one".to_owned())]);
    assert!(line.is_dead());
}

#[tokio::test]
async fn an_answer_before_the_question_is_nobodys_unless_it_is_a_refusal() {
    let (ours, theirs) = duplex(PIPE);
    let (refused, mut server) = (line(ours), Reader::new(theirs));
    server.say("-ERR max number of clients reached\r\n").await;
    let values = refused.exchange(&echo(&["a", "b"])).await.unwrap();
    assert_eq!(values.len(), 2);
    assert!(values.iter().all(|value| matches!(value, Value::ServerError(_))), "{values:?}");
    assert!(refused.is_dead());

    let (ours, theirs) = duplex(PIPE);
    let (odd, mut server) = (line(ours), Reader::new(theirs));
    server.say("+hello\r\n").await;
    assert!(odd.exchange(&echo(&["a"])).await.is_err());
    assert!(odd.is_dead());
}

#[tokio::test]
async fn more_requests_than_there_is_room_for_are_all_answered() {
    let (ours, theirs) = duplex(PIPE);
    let (line, mut server) = (line(ours), Reader::new(theirs));
    let all: Vec<_> = (0..3000).map(|_| ask(&line, "a")).collect();
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
async fn an_answer_that_is_overdue_ends_the_link() {
    let limit = Duration::from_secs(30);
    let (ours, theirs) = duplex(PIPE);
    let mut server = Reader::new(theirs);
    let endpoint = Endpoint::Tcp { host: "server".to_owned(), port: 1 };
    let link = Arc::new(Link::new(endpoint, Box::new(ours), Some(limit)));
    // Requests that are answered, at any later time, keep it.
    for _ in 0..5 {
        tokio::time::sleep(limit / 4 * 3).await;
        let link = link.clone();
        let asked = tokio::spawn(async move { link.exchange(&echo(&["a"])).await });
        server.echo().await;
        assert!(asked.await.unwrap().is_ok());
    }
    let started = tokio::time::Instant::now();
    let Err(Silence::Lost(cause)) = link.exchange(&echo(&["b"])).await else { panic!() };
    assert!(cause.contains("in time"), "{cause}");
    let waited = started.elapsed();
    assert!(waited >= limit && waited < limit + Duration::from_secs(1), "{waited:?}");
    assert!(link.is_dead());
}

/// How often the server carried out each word.
type Done = Arc<Mutex<HashMap<String, usize>>>;

/// Answers in pieces of any length, and hangs up now and then, with or without having carried out
/// what it was asked.
async fn fickle_server(stream: DuplexStream, done: Done) {
    let mut server = Reader::new(stream);
    while let Some(word) = server.word().await {
        if rand::rng().random_ratio(1, 800) {
            return;
        }
        *done.lock().unwrap().entry(word.clone()).or_default() += 1;
        if rand::rng().random_ratio(1, 800) {
            return;
        }
        let answer = format!("${}\r\n{word}\r\n", word.len());
        let (head, tail) = answer.split_at(rand::rng().random_range(0..answer.len()));
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

/// The line that all share, or a new one if it is dead.
fn current(shared: &Mutex<Arc<Line>>, done: &Done) -> Arc<Line> {
    let mut shared = shared.lock().unwrap();
    if shared.is_dead() {
        let (ours, theirs) = duplex(PIPE);
        tokio::spawn(fickle_server(theirs, done.clone()));
        *shared = line(ours);
    }
    shared.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everyone_gets_their_own_answer_whoever_gives_up_and_whatever_breaks() {
    let done = Done::default();
    let (ours, _) = duplex(PIPE);
    let shared = Arc::new(Mutex::new(line(ours)));
    shared.lock().unwrap().cut("not yet dialed");
    let task = |task: usize| {
        let (done, shared) = (done.clone(), shared.clone());
        async move {
            let mut answered = 0;
            for i in 0..1000 {
                let line = current(&shared, &done);
                let words = [format!("{task}-{i}"), format!("{task}-{i}-more")];
                let words = &words[..rand::rng().random_range(1..=2)];
                let pipe = echo(&words.iter().map(String::as_str).collect::<Vec<_>>());
                let patience = match rand::rng().random_range(0..8) {
                    0 => rand::rng().random_range(0..6),
                    _ => usize::MAX,
                };
                let answer = tokio::select! {
                    biased;
                    answer = line.exchange(&pipe) => answer,
                    () = yields(patience) => continue,
                };
                let count = |word: &String| done.lock().unwrap().get(word).copied().unwrap_or(0);
                match answer {
                    Ok(values) => {
                        let expected: Vec<Value> = words.iter().map(|word| text(word)).collect();
                        assert_eq!(values, expected);
                        assert!(words.iter().all(|word| count(word) == 1));
                        answered += 1;
                    }
                    Err(Silence::Unsent(_)) => assert!(words.iter().all(|word| count(word) == 0)),
                    Err(Silence::Lost(_)) => assert!(words.iter().all(|word| count(word) <= 1)),
                }
            }
            answered
        }
    };
    let all: Vec<_> = (0..32).map(|i| tokio::spawn(task(i))).collect();
    let mut answered = 0;
    for task in all {
        let limit = Duration::from_mins(2);
        answered += tokio::time::timeout(limit, task).await.expect("somebody waits").unwrap();
    }
    assert!(answered > 10_000, "{answered} of 32000 were answered");
}

async fn yields(count: usize) {
    if count == usize::MAX {
        return std::future::pending().await;
    }
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}
