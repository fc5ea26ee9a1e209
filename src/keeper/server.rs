//! The keeper's loop: connections, names and their descriptors.
//!
//! A client that sends something malformed, or does not read, loses its connection; the others do not
//! notice. Every number is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::connection::{Connection, Descriptors};
use super::listener::Listener;
use super::ownership::{ClientId, Effects, Ownership};
use super::packet::{self, Packet, Received};
use super::protocol::{Answer, Request, VERSION};

/// Connections at a time.
const MAX_CLIENTS: usize = 64;
/// Names that are held.
const MAX_NAMES: usize = 4096;
/// How long to accept nobody when there is no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How long the keeper waits for what.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// For an owner to yield.
    pub yield_limit: Duration,
    /// For a new owner, before a spare becomes it.
    pub spare_delay: Duration,
    /// For a hello.
    pub hello_limit: Duration,
    /// For a new owner, before everything is released; zero: for ever.
    pub orphan_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            yield_limit: Duration::from_secs(30),
            spare_delay: Duration::from_secs(5),
            hello_limit: Duration::from_secs(10),
            orphan_timeout: Duration::ZERO,
        }
    }
}

/// What a supervisor wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The process has become the owner.
    Owns { pid: i32 },
    /// The process asked, and the owner did not yield.
    Refused { pid: i32 },
    /// The process does not want to own any more, and says why.
    Declined { pid: i32, reason: String },
    /// The connection of the process has ended.
    Left { pid: i32 },
    /// A client asks for another program; it waits for [`Server::reply`].
    Upgrade { client: ClientId, tag: u32, program: String },
}

/// Retired instances that are remembered.
const MAX_RETIRED: usize = 64;

#[derive(Debug)]
pub struct Server {
    pub(super) listener: Listener,
    pub(super) clients: BTreeMap<ClientId, Connection>,
    pub(super) names: BTreeMap<String, Descriptors>,
    pub(super) ownership: Ownership,
    pub(super) next_client: ClientId,
    pub(super) timing: Timing,
    uid: u32,
    accept_after: Option<Instant>,
    notices: Vec<Notice>,
    /// Instances that have yielded. If one of them is started again, it makes nobody yield: two
    /// versions would take turns for ever.
    retired: VecDeque<String>,
}

impl Server {
    /// Listens at a path. Fails if another keeper does.
    pub fn new(path: &Path, timing: Timing) -> io::Result<Self> {
        Ok(Self::on(Listener::new(path)?, timing))
    }

    pub(super) fn on(listener: Listener, timing: Timing) -> Self {
        Self {
            listener,
            clients: BTreeMap::new(),
            names: BTreeMap::new(),
            ownership: Ownership::new(timing.yield_limit, timing.spare_delay, Instant::now()),
            next_client: 1,
            timing,
            uid: rustix::process::geteuid().as_raw(),
            accept_after: None,
            notices: Vec::new(),
            retired: VecDeque::new(),
        }
    }

    /// Waits until something happens, and handles it. Returns whether `wake` is readable; it waits no
    /// longer than `until`.
    pub fn turn(&mut self, wake: BorrowedFd<'_>, until: Option<Instant>) -> io::Result<bool> {
        let now = Instant::now();
        let next = [until, self.next_deadline()].into_iter().flatten().min();
        let timeout =
            next.map_or(PollTimeout::NONE, |at| timeout(at.saturating_duration_since(now)));
        let accepts = self.accept_after.is_none() && self.clients.len() < MAX_CLIENTS;
        // Signals come first: when a child has ended, the end of its connection is seen as well.
        let mut fds = vec![PollFd::new(wake, PollFlags::POLLIN)];
        let accept = if accepts { PollFlags::POLLIN } else { PollFlags::empty() };
        fds.push(PollFd::new(self.listener.as_fd(), accept));
        let ids: Vec<ClientId> = self.clients.keys().copied().collect();
        fds.extend(self.clients.values().map(|client| {
            let blocked = client.is_blocked();
            PollFd::new(
                client.as_fd(),
                if blocked { PollFlags::POLLOUT } else { PollFlags::POLLIN },
            )
        }));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        drop(fds);
        let clients = ready.get(2..).unwrap_or_default();
        for (client, _) in ids.iter().zip(clients).filter(|(_, ready)| **ready) {
            self.serve(*client);
        }
        if accepts && ready.get(1) == Some(&true) {
            self.accept();
        }
        self.tick();
        Ok(ready.first() == Some(&true))
    }

    /// Returns what has happened since the last call.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Answers a request that waits. If its client is gone, nobody is told.
    pub fn reply(&mut self, client: ClientId, tag: u32, result: Result<(), String>) {
        let answer = match result {
            Ok(()) => Answer::Done,
            Err(reason) => Answer::Failed { reason },
        };
        self.send(client, &answer, tag, None);
    }

    /// The number of names that are held.
    pub fn held(&self) -> usize {
        self.names.len()
    }

    pub fn socket_path(&self) -> &Path {
        &self.listener.path
    }

    /// Removes the socket, at the end.
    pub fn close(self) {
        self.listener.remove();
    }

    fn next_deadline(&self) -> Option<Instant> {
        let hello = self.clients.values().filter_map(|client| client.hello_until).min();
        [hello, self.ownership.next_deadline(), self.orphaned_at(), self.accept_after]
            .into_iter()
            .flatten()
            .min()
    }

    /// When everything is released, if nobody owns it until then.
    fn orphaned_at(&self) -> Option<Instant> {
        let since = self.ownership.ownerless_since()?;
        let counts = !self.timing.orphan_timeout.is_zero() && !self.names.is_empty();
        counts.then(|| since + self.timing.orphan_timeout)
    }

    /// Does what is due by the time.
    fn tick(&mut self) {
        let now = Instant::now();
        let is_past = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_past(self.accept_after) {
            self.accept_after = None;
        }
        let silent = self.clients.iter().filter(|(_, client)| is_past(client.hello_until));
        for client in silent.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.disconnect(client, "it has not said hello");
        }
        let effects = self.ownership.settle(now);
        self.carry_out(effects);
        if is_past(self.orphaned_at()) {
            log(&format!(
                "releasing {} names: nobody has owned them for too long",
                self.names.len()
            ));
            self.names.clear();
        }
    }

    fn accept(&mut self) {
        let hello_until = Instant::now() + self.timing.hello_limit;
        match self.listener.accept() {
            Ok(None) => {}
            Ok(Some(socket)) => match Connection::new(socket, hello_until) {
                Ok((connection, uid)) if uid == self.uid => {
                    self.clients.insert(self.next_client, connection);
                    self.next_client += 1;
                }
                Ok((connection, uid)) => {
                    log(&format!("refused process {} of user {uid}", connection.pid));
                }
                Err(error) => log(&format!("a connection failed: {error}")),
            },
            Err(error) => {
                log(&format!("cannot accept a connection: {error}"));
                self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
            }
        }
    }

    /// Handles one request of a client, or sends what it waits for.
    fn serve(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.is_blocked() {
            if let Err(error) = client.flush() {
                self.disconnect(id, &error.to_string());
            }
            return;
        }
        match packet::receive(&*client, false) {
            Ok(Received::Nothing) => {}
            Ok(Received::End) => self.disconnect(id, "it has ended"),
            Ok(Received::Packet(packet)) => self.handle(id, packet),
            Err(error) => self.disconnect(id, &error.to_string()),
        }
    }

    fn handle(&mut self, id: ClientId, packet: Packet) {
        if packet.is_oversized {
            return self.disconnect(id, "it sent a packet that is too large");
        }
        // The request is as it was announced, but this process could not take its descriptors.
        if packet.lacks_descriptors {
            let tag = packet.bytes.get(4..8).and_then(|tag| tag.try_into().ok());
            let tag = u32::from_le_bytes(tag.unwrap_or_default());
            return self.reply(id, tag, Err("the keeper has too many open files".to_owned()));
        }
        let (request, tag) = match Request::decode(&packet.bytes, packet.descriptors.len()) {
            Ok(request) => request,
            Err(error) => return self.disconnect(id, &format!("it sent {error}")),
        };
        let greeted = self.clients.get(&id).is_some_and(|client| client.hello_until.is_none());
        if greeted == matches!(request, Request::Hello { .. }) {
            return self.disconnect(id, "it said hello twice, or not first");
        }
        self.execute(id, tag, request, packet.descriptors);
    }

    fn execute(&mut self, id: ClientId, tag: u32, request: Request, descriptors: Vec<OwnedFd>) {
        match request {
            Request::Hello { version, instance } => self.hello(id, tag, version, instance),
            Request::Put { name, .. } => {
                let result = self.put(id, name, descriptors);
                self.reply(id, tag, result);
            }
            Request::Drop { name } => {
                let result = self.require_owner(id).map(|()| drop(self.names.remove(&name)));
                self.reply(id, tag, result);
            }
            Request::List { after } => {
                let rest = (Bound::Excluded(after), Bound::Unbounded);
                let page = Answer::page(self.names.range(rest).map(|(name, _)| name));
                self.send(id, &page, tag, None);
            }
            Request::Get { name } => match self.names.get(&name).cloned() {
                Some(held) => {
                    let count = u16::try_from(held.len()).unwrap_or(u16::MAX);
                    self.send(id, &Answer::Held { count }, tag, Some(held));
                }
                None => self.send(id, &Answer::Absent, tag, None),
            },
            Request::Ask { spare } => {
                let instance = self.clients.get(&id).map(|client| &client.instance);
                let spare = spare || instance.is_some_and(|known| self.retired.contains(known));
                let result = self.ownership.ask(id, spare, Instant::now());
                self.apply(id, tag, result);
            }
            Request::Yielded => {
                let result = self.ownership.yielded(id, Instant::now());
                if result.is_ok() {
                    self.retire(id);
                }
                self.apply(id, tag, result);
            }
            Request::Decline { reason } => {
                let pid = self.clients.get(&id).map_or(0, |client| client.pid);
                log(&format!("{} declines: {reason}", self.shown(id)));
                self.notices.push(Notice::Declined { pid, reason });
                let effects = self.ownership.leave(id, Instant::now());
                self.apply(id, tag, Ok(effects));
            }
            Request::Upgrade { program } => {
                self.notices.push(Notice::Upgrade { client: id, tag, program });
            }
        }
    }

    fn retire(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(&id) else { return };
        self.retired.push_back(client.instance.clone());
        if self.retired.len() > MAX_RETIRED {
            self.retired.pop_front();
        }
    }

    fn hello(&mut self, id: ClientId, tag: u32, version: u16, instance: String) {
        if version != VERSION {
            let reason = format!("this keeper knows version {VERSION}, not {version}");
            self.reply(id, tag, Err(reason));
            return self.disconnect(id, "it knows another version only");
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.instance = instance;
            client.hello_until = None;
        }
        self.reply(id, tag, Ok(()));
    }

    fn put(&mut self, id: ClientId, name: String, fds: Vec<OwnedFd>) -> Result<(), String> {
        self.require_owner(id)?;
        if self.names.len() >= MAX_NAMES && !self.names.contains_key(&name) {
            return Err(format!("{MAX_NAMES} names are held already"));
        }
        self.names.insert(name, fds.into());
        Ok(())
    }

    fn require_owner(&self, id: ClientId) -> Result<(), String> {
        match self.ownership.owner() {
            Some(owner) if owner == id => Ok(()),
            Some(owner) => Err(format!("the owner is {}", self.shown(owner))),
            None => Err("ask first: there is no owner".to_owned()),
        }
    }

    /// Answers a request about ownership, and tells everybody what follows from it.
    fn apply(&mut self, id: ClientId, tag: u32, result: Result<Effects, &'static str>) {
        match result {
            Ok(effects) => {
                self.reply(id, tag, Ok(()));
                self.carry_out(effects);
            }
            Err(reason) => self.reply(id, tag, Err(reason.to_owned())),
        }
    }

    fn carry_out(&mut self, effects: Effects) {
        for (id, event) in effects {
            let pid = self.clients.get(&id).map_or(0, |client| client.pid);
            match &event {
                Answer::Yours => {
                    let instance = self.clients.get(&id).map(|client| client.instance.clone());
                    self.retired.retain(|retired| Some(retired) != instance.as_ref());
                    log(&format!("{} owns {} names", self.shown(id), self.names.len()));
                    self.notices.push(Notice::Owns { pid });
                }
                Answer::Refused => {
                    log(&format!("{} is refused: the owner has not yielded", self.shown(id)));
                    self.notices.push(Notice::Refused { pid });
                }
                _ => log(&format!("{} is asked to yield", self.shown(id))),
            }
            self.send(id, &event, 0, None);
        }
    }

    fn send(&mut self, id: ClientId, answer: &Answer, tag: u32, fds: Option<Descriptors>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if let Err(error) = client.send(answer, tag, fds) {
            self.disconnect(id, &error.to_string());
        }
    }

    fn disconnect(&mut self, id: ClientId, why: &str) {
        let shown = self.shown(id);
        let was_owner = self.ownership.owner() == Some(id);
        let Some(client) = self.clients.remove(&id) else { return };
        log(&format!(
            "{}{shown} is disconnected: {why}",
            if was_owner { "the owner " } else { "" }
        ));
        self.notices.push(Notice::Left { pid: client.pid });
        let effects = self.ownership.leave(id, Instant::now());
        self.carry_out(effects);
    }

    fn shown(&self, id: ClientId) -> String {
        match self.clients.get(&id) {
            Some(client) if client.instance.is_empty() => format!("process {}", client.pid),
            Some(client) => format!("{} (process {})", client.instance.escape_debug(), client.pid),
            None => "a client that is gone".to_owned(),
        }
    }
}

/// Rounds up, so that nothing is handled before its time.
fn timeout(left: Duration) -> PollTimeout {
    let millis = i32::try_from(left.as_millis().saturating_add(1)).unwrap_or(i32::MAX);
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}

/// Writes a line for people. No runtime and no subscriber: this is all the log a keeper has.
pub(super) fn log(line: &str) {
    use std::io::Write;
    // Without anybody who reads it, it serves all the same.
    let _ = writeln!(io::stderr(), "jfs-keeper: {line}");
}
