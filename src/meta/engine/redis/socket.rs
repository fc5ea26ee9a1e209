//! Sockets: the bytes of one connection, in and out, without waiting.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::unconstrained;

use super::queue::Reply;
use super::resp::{self, LARGEST, Scan};

/// Room for what arrives: a page of a listing at once, or the answers of many.
const ROOM: usize = 64 * 1024;

/// Buffers above this are given back once they are empty.
const KEEP: usize = 1024 * 1024;

/// Bytes that are read in one turn: after these, others on the thread have theirs.
const TURN: usize = 1024 * 1024;

/// Any of the three kinds of stream.
pub(super) type Stream = Box<dyn Io>;

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The bell rings when there is something to do.
    Done,
    /// There may be more to read: another turn is due.
    More,
}

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

    /// Reads and writes as much as can be done now, within a limit; `bell` is woken when there is
    /// more to do. An error ends the connection, but what was answered before it counts.
    pub fn turn(&mut self, bell: &Waker, answers: &mut Vec<Reply>) -> Result<Turn, String> {
        let work = poll_fn(|cx| {
            // First of all: a server that has hung up gets nothing more, and what was not sent is
            // surely unsent.
            let received = self.receive(cx, answers);
            Poll::Ready(received.and_then(|turn| self.send(cx).map(|()| turn)))
        });
        // The work is that of all who wait. If the task that happens to do it were made to pause in
        // the midst of it, they would wait with it.
        let work = pin!(unconstrained(work));
        match work.poll(&mut Context::from_waker(bell)) {
            Poll::Ready(done) => done,
            Poll::Pending => Ok(Turn::Done),
        }
    }

    fn receive(&mut self, cx: &mut Context<'_>, answers: &mut Vec<Reply>) -> Result<Turn, String> {
        let mut received = 0;
        while received < TURN {
            self.make_room()?;
            let end = self.arrived.len().min(self.fresh.end + TURN - received);
            let mut room = ReadBuf::new(&mut self.arrived[self.fresh.end..end]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut room) {
                Poll::Pending => return Ok(Turn::Done),
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Ready(Ok(())) => {}
            }
            let count = room.filled().len();
            if count == 0 {
                return Err("the server closed the connection".to_owned());
            }
            self.fresh.end += count;
            received += count;
            self.read(answers).map_err(|odd| format!("it does not answer as Redis does: {odd}"))?;
        }
        Ok(Turn::More)
    }

    fn read(&mut self, answers: &mut Vec<Reply>) -> Result<(), String> {
        loop {
            let raw = &self.arrived[self.fresh.clone()];
            let Some(end) = self.scan.end(raw)? else { return Ok(()) };
            answers.push(Reply { value: resp::value(&raw[..end])?, bytes: end });
            self.fresh.start += end;
            self.scan.restart();
            if self.fresh.is_empty() {
                self.fresh = 0..0;
                return Ok(());
            }
        }
    }

    /// The memory grows with what has arrived, never with what is announced, and an answer that
    /// would need more than the largest has been refused before.
    fn make_room(&mut self) -> Result<(), String> {
        if self.fresh.is_empty() && self.arrived.len() > KEEP {
            self.arrived = vec![0; ROOM];
        }
        if self.arrived.len() - self.fresh.end >= ROOM / 2 {
            return Ok(());
        }
        self.arrived.copy_within(self.fresh.clone(), 0);
        self.fresh = 0..self.fresh.len();
        if self.arrived.len() - self.fresh.end < ROOM / 2 {
            let larger = (self.arrived.len() * 2).min(LARGEST + 2 * ROOM);
            let more = larger.saturating_sub(self.arrived.len());
            self.arrived.try_reserve_exact(more).map_err(|_| "there is no memory for an answer")?;
            self.arrived.resize(self.arrived.len() + more, 0);
        }
        Ok(())
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
