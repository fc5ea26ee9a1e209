//! The socket of one connection: buffers, non-blocking reads and writes.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::unconstrained;

use super::request_queue::Reply;
use super::resp::{self, MAX_REPLY_BYTES, Scan};

/// Size of the receive buffer: a page of a listing, or the replies to many requests.
const BUFFER_BYTES: usize = 64 * 1024;

/// Larger buffers are freed once they are empty.
const MAX_KEPT_BYTES: usize = 1024 * 1024;

/// Bytes read in one call. After these, other tasks on the thread run.
const READ_LIMIT: usize = 1024 * 1024;

/// A TCP, TLS or Unix stream.
pub(super) type Stream = Box<dyn Io>;

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Why [`Socket::do_io`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IoOutcome {
    /// The stream would block. It wakes the waker when it is ready.
    WouldBlock,
    /// The read limit was reached, and there may be more to read.
    MoreToRead,
}

/// A stream with its send and receive buffers.
pub(super) struct Socket {
    stream: Stream,
    out: Vec<u8>,
    /// How much of `out` the stream has accepted.
    written: usize,
    /// Bytes that the stream has accepted, or may have, since the start.
    sent: u64,
    /// Whether the stream may still buffer accepted bytes.
    unflushed: bool,
    received: Vec<u8>,
    /// The part of `received` that is not parsed yet.
    unparsed: Range<usize>,
    scan: Scan,
}

impl Socket {
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            out: Vec::new(),
            written: 0,
            sent: 0,
            unflushed: false,
            received: vec![0; BUFFER_BYTES],
            unparsed: 0..0,
            scan: Scan::new(),
        }
    }

    /// Returns how many bytes may have reached the server.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns whether bytes that count as sent may still be in the stream's buffer.
    pub fn is_unflushed(&self) -> bool {
        self.unflushed
    }

    /// Moves the bytes of `out` to the send buffer.
    pub fn load(&mut self, out: &mut Vec<u8>) {
        if self.out.is_empty() {
            std::mem::swap(&mut self.out, out);
        } else {
            self.out.append(out);
        }
    }

    /// Reads and writes as much as possible without blocking, up to the read limit. The stream wakes
    /// `waker` when there is more to do. After an error the connection is unusable, but `replies`
    /// has those that arrived before it.
    pub fn do_io(&mut self, waker: &Waker, replies: &mut Vec<Reply>) -> Result<IoOutcome, String> {
        let work = poll_fn(|cx| {
            // Reading comes first: a closed connection is noticed before anything more is written,
            // so that the rest is certainly unsent.
            let received = self.receive(cx, replies);
            Poll::Ready(received.and_then(|outcome| self.send(cx).map(|()| outcome)))
        });
        // This task does the I/O for all waiting tasks. If tokio's cooperative budget made it yield
        // half way, all of them would wait.
        let work = pin!(unconstrained(work));
        match work.poll(&mut Context::from_waker(waker)) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Ok(IoOutcome::WouldBlock),
        }
    }

    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        replies: &mut Vec<Reply>,
    ) -> Result<IoOutcome, String> {
        let mut total = 0;
        while total < READ_LIMIT {
            self.make_room()?;
            let end = self.received.len().min(self.unparsed.end + READ_LIMIT - total);
            let mut room = ReadBuf::new(&mut self.received[self.unparsed.end..end]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut room) {
                Poll::Pending => return Ok(IoOutcome::WouldBlock),
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Ready(Ok(())) => {}
            }
            let count = room.filled().len();
            if count == 0 {
                return Err("the server closed the connection".to_owned());
            }
            self.unparsed.end += count;
            total += count;
            self.parse(replies)
                .map_err(|error| format!("it does not answer as Redis does: {error}"))?;
        }
        Ok(IoOutcome::MoreToRead)
    }

    fn parse(&mut self, replies: &mut Vec<Reply>) -> Result<(), String> {
        loop {
            let raw = &self.received[self.unparsed.clone()];
            let Some(end) = self.scan.end(raw)? else { return Ok(()) };
            replies.push(Reply { value: resp::parse(&raw[..end])?, bytes: end });
            self.unparsed.start += end;
            self.scan.restart();
            if self.unparsed.is_empty() {
                self.unparsed = 0..0;
                return Ok(());
            }
        }
    }

    /// Makes room in the receive buffer. It grows with the bytes that have arrived, never with a length
    /// that the server announces; the scan has already refused a reply above the limit.
    fn make_room(&mut self) -> Result<(), String> {
        if self.unparsed.is_empty() && self.received.len() > MAX_KEPT_BYTES {
            self.received = vec![0; BUFFER_BYTES];
        }
        if self.received.len() - self.unparsed.end >= BUFFER_BYTES / 2 {
            return Ok(());
        }
        self.received.copy_within(self.unparsed.clone(), 0);
        self.unparsed = 0..self.unparsed.len();
        if self.received.len() - self.unparsed.end < BUFFER_BYTES / 2 {
            let larger = (self.received.len() * 2).min(MAX_REPLY_BYTES + 2 * BUFFER_BYTES);
            let more = larger.saturating_sub(self.received.len());
            self.received.try_reserve_exact(more).map_err(|_| "out of memory for a reply")?;
            self.received.resize(self.received.len() + more, 0);
        }
        Ok(())
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err("the connection accepts no more data".to_owned()),
                Poll::Ready(Ok(count)) => {
                    self.written += count;
                    self.sent += count as u64;
                    self.unflushed = true;
                }
                Poll::Ready(Err(error)) => {
                    // With TLS, part of it may have been sent.
                    self.sent += rest.len() as u64;
                    return Err(error.to_string());
                }
            }
        }
        self.written = 0;
        self.out.clear();
        if self.out.capacity() > MAX_KEPT_BYTES {
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
