//! Sockets: the bytes of one connection, in and out, without waiting.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use redis::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::unconstrained;

use super::resp::{self, Scan};

/// Room for what arrives: a page of a listing at once, or the answers of many.
const ROOM: usize = 64 * 1024;

/// Buffers above this are given back once they are empty.
const KEEP: usize = 1024 * 1024;

/// Any of the three kinds of stream.
pub(super) type Stream = Box<dyn Io>;

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A stream with what is to be sent and what has arrived.
pub(super) struct Socket {
    stream: Stream,
    out: Vec<u8>,
    /// How much of `out` the stream has taken.
    taken: usize,
    /// Bytes that the stream has taken, or may have, since the beginning.
    sent: u64,
    /// Whether the stream may hold back what it has taken.
    unflushed: bool,
    arrived: Vec<u8>,
    /// The part of `arrived` that is not read yet.
    fresh: Range<usize>,
    scan: Scan,
}

impl Socket {
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            out: Vec::new(),
            taken: 0,
            sent: 0,
            unflushed: false,
            arrived: vec![0; ROOM],
            fresh: 0..0,
            scan: Scan::new(),
        }
    }

    /// Bytes that may have reached the server.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether bytes that count as sent may wait for the next turn.
    pub fn holds_back(&self) -> bool {
        self.unflushed
    }

    /// Takes over what is to be sent and leaves nothing.
    pub fn load(&mut self, out: &mut Vec<u8>) {
        if self.out.is_empty() {
            std::mem::swap(&mut self.out, out);
        } else {
            self.out.append(out);
        }
    }

    /// Reads and writes as much as can be done now; `bell` is woken when there is more to do. An
    /// error ends the connection, but what was answered before it counts.
    pub fn turn(&mut self, bell: &Waker, answers: &mut Vec<Value>) -> Result<(), String> {
        let work = poll_fn(|cx| {
            // First of all: a server that has hung up gets nothing more, and what was not sent is
            // surely unsent.
            Poll::Ready(self.receive(cx, answers).and_then(|()| self.send(cx)))
        });
        // The work is that of all who wait, and bounded by what they asked. If the task that
        // happens to do it were made to pause in the midst of it, they would wait with it.
        let work = pin!(unconstrained(work));
        match work.poll(&mut Context::from_waker(bell)) {
            Poll::Ready(done) => done,
            Poll::Pending => Ok(()),
        }
    }

    fn receive(&mut self, cx: &mut Context<'_>, answers: &mut Vec<Value>) -> Result<(), String> {
        loop {
            self.make_room();
            let mut room = ReadBuf::new(&mut self.arrived[self.fresh.end..]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut room) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Ready(Ok(())) => {}
            }
            let count = room.filled().len();
            if count == 0 {
                return Err("the server closed the connection".to_owned());
            }
            self.fresh.end += count;
            self.read(answers)?;
        }
    }

    fn read(&mut self, answers: &mut Vec<Value>) -> Result<(), String> {
        loop {
            let raw = &self.arrived[self.fresh.clone()];
            let Some(end) = self.scan.end(raw)? else { return Ok(()) };
            answers.push(resp::value(&raw[..end])?);
            self.fresh.start += end;
            self.scan = Scan::new();
            if self.fresh.is_empty() {
                self.fresh = 0..0;
                return Ok(());
            }
        }
    }

    fn make_room(&mut self) {
        if self.fresh.is_empty() && self.arrived.len() > KEEP {
            self.arrived = vec![0; ROOM];
        }
        if self.arrived.len() - self.fresh.end >= ROOM / 2 {
            return;
        }
        self.arrived.copy_within(self.fresh.clone(), 0);
        self.fresh = 0..self.fresh.len();
        if self.arrived.len() - self.fresh.end < ROOM / 2 {
            self.arrived.resize(self.arrived.len() * 2, 0);
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        while self.taken < self.out.len() {
            let rest = &self.out[self.taken..];
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err("the connection takes no more".to_owned()),
                Poll::Ready(Ok(count)) => {
                    self.taken += count;
                    self.sent += count as u64;
                    self.unflushed = true;
                }
                Poll::Ready(Err(error)) => {
                    // With TLS, some of it may be on its way.
                    self.sent += rest.len() as u64;
                    return Err(error.to_string());
                }
            }
        }
        self.taken = 0;
        self.out.clear();
        if self.out.capacity() > KEEP {
            self.out = Vec::new();
        }
        if self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(flushed) => flushed.map_err(|error| error.to_string())?,
            }
            self.unflushed = false;
        }
        Ok(())
    }
}
