//! Random interleavings of the tasks that share a multiplexer.
//!
//! Tasks interfere with each other only while none of them holds the multiplexer's lock: during I/O
//! on the socket, and when a waker is called. The model runs in one thread. At exactly these points
//! it lets other tasks run: requests start, are polled or cancelled, the server executes a command,
//! the socket accepts bytes, either side closes the connection. Choices come from proptest, which
//! shrinks a failure to the shortest one.
//!
//! A task is polled only after its waker was called, so a lost wake-up is a request that never ends.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;
use redis::{Pipeline, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::multiplexer::Multiplexer;
use super::super::request_queue::{NoReply, Response};
use super::super::resp::{self, Scan};

/// How deep tasks may run inside each other.
const MAX_DEPTH: usize = 3;

type Exchange = Pin<Box<dyn Future<Output = Response> + Send>>;

struct Model {
    choices: Mutex<std::vec::IntoIter<u8>>,
    depth: AtomicUsize,
    multiplexer: OnceLock<Arc<Multiplexer>>,
    requests: Mutex<Vec<Request>>,
    network: Mutex<Network>,
}

struct Request {
    words: Vec<String>,
    /// None while it is polled, and when it has ended.
    exchange: Option<Exchange>,
    is_woken: bool,
    outcome: Outcome,
}

enum Outcome {
    Pending,
    Cancelled,
    Ended(Response),
}

/// The bytes on their way, and the server.
#[derive(Default)]
struct Network {
    to_server: Vec<u8>,
    to_client: VecDeque<u8>,
    /// Bytes that the socket accepts before it would block.
    window: usize,
    read_waker: Option<Waker>,
    write_waker: Option<Waker>,
    is_closed: bool,
    /// How often the server executed each word.
    executed: HashMap<String, usize>,
}

impl Model {
    fn new(choices: Vec<u8>) -> Arc<Self> {
        let model = Arc::new(Self {
            choices: Mutex::new(choices.into_iter()),
            depth: AtomicUsize::new(0),
            multiplexer: OnceLock::new(),
            requests: Mutex::default(),
            network: Mutex::default(),
        });
        let stream = Box::new(ModelStream(Arc::clone(&model)));
        let multiplexer = Multiplexer::new("a server".to_owned(), stream);
        assert!(model.multiplexer.set(multiplexer).is_ok());
        model
    }

    fn multiplexer(&self) -> &Arc<Multiplexer> {
        self.multiplexer.get().unwrap()
    }

    /// Returns a number below `limit`; 0 when there are no more choices.
    fn choose(&self, limit: usize) -> usize {
        self.choices.lock().unwrap().next().map_or(0, |choice| usize::from(choice) % limit)
    }

    fn has_choices(&self) -> bool {
        self.choices.lock().unwrap().len() > 0
    }

    /// Lets another task run, or none.
    fn interleave(self: &Arc<Self>) {
        if self.depth.fetch_add(1, Ordering::Relaxed) < MAX_DEPTH {
            match self.choose(24) {
                1..=6 => _ = self.poll_one(self.choose(8)),
                7..=9 => self.start_request(),
                10 => self.cancel(self.choose(8)),
                11..=15 => _ = self.execute_one(),
                16..=19 => _ = self.accept(1 + self.choose(60)),
                20 if self.choose(6) == 1 => self.close_by_server(),
                21 if self.choose(6) == 1 => self.multiplexer().close("closed by the model"),
                _ => {}
            }
        }
        self.depth.fetch_sub(1, Ordering::Relaxed);
    }

    fn start_request(self: &Arc<Self>) {
        let multiplexer = Arc::clone(self.multiplexer());
        let mut requests = self.requests.lock().unwrap();
        let index = requests.len();
        let words = (0..=index % 2).map(|n| format!("{index}.{n}")).collect::<Vec<_>>();
        let mut pipe = Pipeline::new();
        for word in &words {
            pipe.cmd("ECHO").arg(word);
        }
        let exchange = Box::pin(async move { multiplexer.exchange(&pipe).await });
        requests.push(Request {
            words,
            exchange: Some(exchange),
            is_woken: true,
            outcome: Outcome::Pending,
        });
    }

    /// Polls one of the requests that were woken. Returns whether there was one.
    fn poll_one(self: &Arc<Self>, choice: usize) -> bool {
        let (index, mut exchange) = {
            let mut requests = self.requests.lock().unwrap();
            let is_ready = |request: &Request| request.is_woken && request.exchange.is_some();
            let ready: Vec<usize> =
                (0..requests.len()).filter(|index| is_ready(&requests[*index])).collect();
            let Some(&index) = ready.get(choice % ready.len().max(1)) else { return false };
            requests[index].is_woken = false;
            (index, requests[index].exchange.take().unwrap())
        };
        let waker = Waker::from(Arc::new(TaskWaker { model: Arc::clone(self), index }));
        let polled = exchange.as_mut().poll(&mut Context::from_waker(&waker));
        let mut requests = self.requests.lock().unwrap();
        match polled {
            Poll::Pending => requests[index].exchange = Some(exchange),
            Poll::Ready(response) => requests[index].outcome = Outcome::Ended(response),
        }
        true
    }

    fn cancel(&self, choice: usize) {
        let exchange = {
            let mut requests = self.requests.lock().unwrap();
            let count = requests.len().max(1);
            let Some(request) = requests.get_mut(choice % count) else { return };
            let Some(exchange) = request.exchange.take() else { return };
            request.outcome = Outcome::Cancelled;
            exchange
        };
        drop(exchange);
    }

    /// Lets the server execute a command that has arrived. Returns whether there was one.
    fn execute_one(&self) -> bool {
        let waker = {
            let mut network = self.network.lock().unwrap();
            if network.is_closed {
                return false;
            }
            let Some(end) = Scan::new().end(&network.to_server).unwrap() else { return false };
            let Value::Array(mut parts) = resp::parse(&network.to_server[..end]).unwrap() else {
                panic!("not a command")
            };
            network.to_server.drain(..end);
            let Some(Value::BulkString(word)) = parts.pop() else { panic!("not a word") };
            let word = String::from_utf8(word).unwrap();
            network.to_client.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
            *network.executed.entry(word).or_default() += 1;
            network.read_waker.take()
        };
        wake(waker);
        true
    }

    /// Lets the socket accept more bytes. Returns whether it would block before.
    fn accept(&self, bytes: usize) -> bool {
        let waker = {
            let mut network = self.network.lock().unwrap();
            network.window += bytes;
            network.write_waker.take()
        };
        let was_blocked = waker.is_some();
        wake(waker);
        was_blocked
    }

    fn close_by_server(&self) {
        let wakers = {
            let mut network = self.network.lock().unwrap();
            network.is_closed = true;
            [network.read_waker.take(), network.write_waker.take()]
        };
        wakers.into_iter().for_each(wake);
    }

    /// Lets everything run that can.
    fn run_to_end(self: &Arc<Self>) {
        loop {
            let accepted = self.accept(1 << 20);
            let executed = self.execute_one();
            let polled = self.poll_one(0);
            if !accepted && !executed && !polled {
                return;
            }
        }
    }

    fn check(&self) {
        let executed = self.network.lock().unwrap().executed.clone();
        let count = |word: &String| executed.get(word).copied().unwrap_or(0);
        for (index, request) in self.requests.lock().unwrap().iter().enumerate() {
            let counts: Vec<usize> = request.words.iter().map(count).collect();
            match &request.outcome {
                Outcome::Pending => panic!("request {index} waits, and nothing wakes it"),
                Outcome::Ended(Ok(values)) => {
                    let text = |word: &String| Value::BulkString(word.as_bytes().to_vec());
                    let expected: Vec<Value> = request.words.iter().map(text).collect();
                    assert_eq!(*values, expected, "request {index} got another reply");
                    assert!(counts.iter().all(|count| *count == 1), "request {index}: {counts:?}");
                }
                Outcome::Ended(Err(NoReply::Unsent(_))) => {
                    assert!(counts.iter().all(|count| *count == 0), "request {index}: {counts:?}");
                }
                Outcome::Cancelled | Outcome::Ended(Err(NoReply::Lost(_))) => {
                    assert!(counts.iter().all(|count| *count <= 1), "request {index}: {counts:?}");
                }
            }
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

struct TaskWaker {
    model: Arc<Model>,
    index: usize,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.model.interleave();
        self.model.requests.lock().unwrap()[self.index].is_woken = true;
    }
}

struct ModelStream(Arc<Model>);

impl AsyncRead for ModelStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.interleave();
        let limit = 1 + self.0.choose(20);
        let mut network = self.0.network.lock().unwrap();
        let count = network.to_client.len().min(buffer.remaining()).min(limit);
        if count == 0 && !network.is_closed {
            network.read_waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        buffer.put_slice(&network.to_client.drain(..count).collect::<Vec<u8>>());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ModelStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.interleave();
        let mut network = self.0.network.lock().unwrap();
        if network.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = bytes.len().min(network.window);
        if count == 0 {
            network.write_waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        network.window -= count;
        network.to_server.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.interleave();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_with_its_own_reply_or_an_error_that_is_true(
        choices in prop::collection::vec(any::<u8>(), 0..600)
    ) {
        let model = Model::new(choices);
        while model.has_choices() {
            model.interleave();
        }
        model.run_to_end();
        model.check();
        // The stream holds the model: ends the cycle.
        model.multiplexer().close("the model ends");
    }
}
