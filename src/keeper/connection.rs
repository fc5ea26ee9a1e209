//! One client's connection, from the keeper's side.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::packet;
use super::protocol::Answer;

/// Packets that wait for a client which does not read. The kernel holds some hundred more.
const MAX_QUEUE: usize = 16;

/// Descriptors under a name; also referred to by packets that wait.
pub type Descriptors = Rc<[OwnedFd]>;

#[derive(Debug)]
pub struct Connection {
    pub socket: OwnedFd,
    /// As this process sees it; 0 if the client is in another PID namespace.
    pub pid: i32,
    /// Until when it has to say hello; `None` if it has.
    pub hello_until: Option<Instant>,
    pub instance: String,
    queue: VecDeque<(Vec<u8>, Option<Descriptors>)>,
}

impl Connection {
    pub fn new(socket: OwnedFd, hello_until: Instant) -> io::Result<(Self, u32)> {
        let peer = getsockopt(&socket, PeerCredentials)?;
        let connection = Self::restored(socket, peer.pid(), String::new(), Some(hello_until));
        Ok((connection, peer.uid()))
    }

    pub fn restored(
        socket: OwnedFd,
        pid: i32,
        instance: String,
        hello_until: Option<Instant>,
    ) -> Self {
        Self { socket, pid, hello_until, instance, queue: VecDeque::new() }
    }

    /// Sends now, or later if the client does not read. An error means that the connection is of no use.
    pub fn send(&mut self, answer: &Answer, tag: u32, fds: Option<Descriptors>) -> io::Result<()> {
        self.queue.push_back((answer.encode(tag), fds));
        self.flush()?;
        if self.queue.len() > MAX_QUEUE {
            return Err(io::Error::other("it does not read"));
        }
        Ok(())
    }

    /// Sends what waits, as far as the client reads.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some((bytes, fds)) = self.queue.front() {
            let fds: Vec<BorrowedFd<'_>> =
                fds.iter().flat_map(|fds| fds.iter()).map(AsFd::as_fd).collect();
            match packet::send(&self.socket, bytes, &fds, false) {
                Ok(()) => drop(self.queue.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether packets wait. No request is read until they are sent, so that they do not grow.
    pub fn is_blocked(&self) -> bool {
        !self.queue.is_empty()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
