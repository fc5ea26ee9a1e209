//! The client of a keeper: what a server of mounts calls.
//!
//! A thread reads the socket. It hands replies to the caller that waits, and events to a channel. Calls
//! wait for a bounded time; one at a time is under way.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::warn;

use super::listener::connect_to;
use super::packet::{self, Packet, Received};
use super::protocol::{Answer, MAX_DESCRIPTORS, Request, VERSION, is_name};
use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex};

/// How long a call waits for the keeper.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// What the keeper tells without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeeperEvent {
    /// This client is the owner. To an owner that was asked to yield: nobody waits for that any more,
    /// serve on.
    Yours,
    /// The owner has not yielded. This client does not wait any more, and may ask again.
    Refused,
    /// Another client is ready: stop serving, then call [`KeeperClient::yielded`].
    Yield,
    /// The connection has ended, and with it what this client owned. Nothing follows.
    Lost,
}

/// A connection to a keeper. It ends when this is dropped.
#[derive(Debug)]
pub struct KeeperClient {
    shared: Arc<Shared>,
    /// The tag of the last request; whoever holds it makes a call.
    calling: Mutex<u32>,
}

#[derive(Debug)]
struct Shared {
    socket: OwnedFd,
    path: PathBuf,
    reply: Mutex<Reply>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Reply {
    /// That of the call that waits. A late reply to one that no longer waits is dropped.
    tag: u32,
    answer: Option<(Answer, Vec<OwnedFd>)>,
    is_lost: bool,
}

impl KeeperClient {
    /// Connects. `instance` identifies this process in the keeper's log.
    pub fn connect(
        socket: &Path,
        instance: &str,
    ) -> Result<(Self, UnboundedReceiver<KeeperEvent>)> {
        let unreachable = |cause: io::Error| Error::Unreachable {
            place: format!("keeper {}", socket.display()),
            cause: cause.to_string(),
        };
        let connection = connect_to(socket).map_err(unreachable)?;
        let peer = getsockopt(&connection, PeerCredentials).map_err(|e| unreachable(e.into()))?;
        if ![0, rustix::process::geteuid().as_raw()].contains(&peer.uid()) {
            let text = format!("it is a process of user {}", peer.uid());
            return Err(unreachable(io::Error::other(text)));
        }
        set_socket_timeout(&connection, Timeout::Send, Some(CALL_TIMEOUT))
            .map_err(|error| unreachable(error.into()))?;
        let shared = Arc::new(Shared {
            socket: connection,
            path: socket.to_owned(),
            reply: Mutex::default(),
            arrived: Condvar::new(),
        });
        let (sender, events) = unbounded_channel();
        let reader = shared.clone();
        thread::Builder::new()
            .name("keeper-client".to_owned())
            .spawn(move || reader.read(&sender))
            .map_err(unreachable)?;
        let client = Self { shared, calling: Mutex::new(0) };
        let hello = Request::Hello { version: VERSION, instance: instance.to_owned() };
        client.call_done(&hello, &[])?;
        Ok((client, events))
    }

    /// Returns the names that are held, in order.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut all: Vec<String> = Vec::new();
        loop {
            let after = all.last().cloned().unwrap_or_default();
            match self.call(&Request::List { after }, &[], CALL_TIMEOUT)? {
                (Answer::Names { names, more }, _) => {
                    // A keeper that sends no more than before would keep this loop going for ever.
                    let goes_on = more && !names.is_empty();
                    all.extend(names);
                    if !goes_on {
                        return Ok(all);
                    }
                }
                (other, _) => return Err(self.unexpected(&other)),
            }
        }
    }

    /// Returns copies of the descriptors under a name.
    pub fn get(&self, name: &str) -> Result<Option<Vec<OwnedFd>>> {
        let name = checked(name)?;
        match self.call(&Request::Get { name }, &[], CALL_TIMEOUT)? {
            (Answer::Held { .. }, descriptors) => Ok(Some(descriptors)),
            (Answer::Absent, _) => Ok(None),
            (other, _) => Err(self.unexpected(&other)),
        }
    }

    /// Lets the keeper hold copies of descriptors under a name, instead of those held before. Only the
    /// owner may.
    pub fn put(&self, name: &str, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let name = checked(name)?;
        if !(1..=MAX_DESCRIPTORS).contains(&fds.len()) {
            let text = format!("{} descriptors under one name: 1 to {MAX_DESCRIPTORS}", fds.len());
            return Err(Error::bad_input(text));
        }
        let count = u16::try_from(fds.len()).unwrap_or(u16::MAX);
        self.call_done(&Request::Put { name, count }, fds)
    }

    /// Releases a name. Only the owner may.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.call_done(&Request::Drop { name: checked(name)? }, &[])
    }

    /// Asks to be the owner: [`KeeperEvent::Yours`] or [`KeeperEvent::Refused`] follows.
    pub fn ask(&self, spare: bool) -> Result<()> {
        self.call_done(&Request::Ask { spare }, &[])
    }

    /// Says, after [`KeeperEvent::Yield`], that this process has stopped serving. An error means that
    /// nobody waits for it any more, and [`KeeperEvent::Yours`] has been sent: serve on.
    pub fn yielded(&self) -> Result<()> {
        self.call_done(&Request::Yielded, &[])
    }

    /// Does not want to own any more. The reason is for whoever started this process.
    pub fn decline(&self, reason: &str) -> Result<()> {
        self.call_done(&Request::Decline { reason: reason.to_owned() }, &[])
    }

    /// Asks a supervising keeper to replace its server by a program, by the same one if it is empty.
    /// Returns when the new one serves.
    pub fn upgrade(&self, program: &str, timeout: Duration) -> Result<()> {
        let request = Request::Upgrade { program: program.to_owned() };
        self.done(self.call(&request, &[], timeout)?)
    }

    fn call_done(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.done(self.call(request, fds, CALL_TIMEOUT)?)
    }

    fn done(&self, (answer, _): (Answer, Vec<OwnedFd>)) -> Result<()> {
        if answer == Answer::Done { Ok(()) } else { Err(self.unexpected(&answer)) }
    }

    fn call(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<(Answer, Vec<OwnedFd>)> {
        let mut last = self.calling.lock();
        // Never 0, the tag of events.
        *last = last.checked_add(1).unwrap_or(1);
        let mut reply = self.shared.reply.lock();
        reply.tag = *last;
        reply.answer = None;
        drop(reply);
        packet::send(&self.shared.socket, &request.encode(*last), fds, true)
            .map_err(|error| self.unreachable(error))?;
        let waits = |reply: &mut Reply| reply.answer.is_none() && !reply.is_lost;
        let reply = self.shared.reply.lock();
        let mut reply = self.shared.arrived.wait_timeout_while(reply, timeout, waits);
        reply.tag = 0;
        match reply.answer.take() {
            Some((Answer::Failed { reason }, _)) => {
                let place = self.shared.path.display();
                Err(Error::Refused(format!("keeper {place}: {reason}")))
            }
            Some(answer) => Ok(answer),
            None if reply.is_lost => Err(self.unreachable("the connection has ended")),
            None => Err(self.unreachable("it does not answer")),
        }
    }

    fn unreachable(&self, cause: impl std::fmt::Display) -> Error {
        let place = format!("keeper {}", self.shared.path.display());
        Error::Unreachable { place, cause: cause.to_string() }
    }

    fn unexpected(&self, answer: &Answer) -> Error {
        self.unreachable(format!("an answer that does not fit the request: {answer:?}"))
    }
}

impl Drop for KeeperClient {
    fn drop(&mut self) {
        // The thread holds the socket as well; this ends it.
        let _ = rustix::net::shutdown(&self.shared.socket, rustix::net::Shutdown::Both);
    }
}

impl Shared {
    fn read(&self, events: &UnboundedSender<KeeperEvent>) {
        loop {
            match packet::receive(self.socket.as_fd(), true) {
                Ok(Received::Packet(packet)) => {
                    if let Err(why) = self.deliver(packet, events) {
                        warn!("keeper {}: {why}", self.path.display());
                        break;
                    }
                }
                Ok(Received::Nothing) => {}
                Ok(Received::End) => break,
                Err(error) => {
                    warn!("keeper {}: {error}", self.path.display());
                    break;
                }
            }
        }
        // Ends it for the keeper too, if it is this side that cannot go on.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.reply.lock().is_lost = true;
        self.arrived.notify_all();
        let _ = events.send(KeeperEvent::Lost);
    }

    fn deliver(
        &self,
        packet: Packet,
        events: &UnboundedSender<KeeperEvent>,
    ) -> Result<(), &'static str> {
        if packet.is_oversized {
            return Err("a packet that is too large");
        }
        let (answer, tag) = if packet.lacks_descriptors {
            let tag = packet.bytes.get(4..8).and_then(|tag| tag.try_into().ok());
            let reason = "this process has too many open files".to_owned();
            (Answer::Failed { reason }, u32::from_le_bytes(tag.unwrap_or_default()))
        } else {
            Answer::decode(&packet.bytes, packet.descriptors.len()).map_err(|error| error.0)?
        };
        let event = match answer {
            Answer::Yours => KeeperEvent::Yours,
            Answer::Refused => KeeperEvent::Refused,
            Answer::Yield => KeeperEvent::Yield,
            answer => {
                let mut reply = self.reply.lock();
                if tag != 0 && reply.tag == tag {
                    reply.answer = Some((answer, packet.descriptors));
                    self.arrived.notify_all();
                }
                return Ok(());
            }
        };
        // Without a receiver, nobody is interested.
        let _ = events.send(event);
        Ok(())
    }
}

fn checked(name: &str) -> Result<String> {
    if is_name(name) {
        Ok(name.to_owned())
    } else {
        Err(Error::bad_input(format!("{name:?} cannot be the name of descriptors")))
    }
}
