//! A keeper in a thread or as a process, clients of it, and files to hold.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use jfs::keeper::server::{Server, Timing};
use jfs::keeper::{KeeperClient, KeeperEvent};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;

/// Longer than anything here takes; only a failure waits for it.
pub const PATIENCE: Duration = Duration::from_mins(1);

pub type Events = UnboundedReceiver<KeeperEvent>;

/// Waits until something is so.
#[track_caller]
pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
pub fn event(events: &mut Events) -> KeeperEvent {
    until("an event arrives", || events.try_recv().ok())
}

/// A keeper in a thread of this process.
pub struct Keeper {
    pub path: PathBuf,
    _folder: TempDir,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub fn new() -> Self {
        Self::with(Timing::default())
    }

    pub fn with(timing: Timing) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("private/keeper.sock");
        let (wake, stop) = nix::unistd::pipe().unwrap();
        let (sender, ready) = mpsc::channel();
        let socket = path.clone();
        let thread = thread::spawn(move || {
            let mut server = Server::new(&socket, timing).unwrap();
            sender.send(()).unwrap();
            while !server.turn(wake.as_fd(), None).unwrap() {
                server.notices();
            }
            server.close();
        });
        ready.recv_timeout(PATIENCE).unwrap();
        Self { path, _folder: folder, stop: Some(stop), thread: Some(thread) }
    }

    pub fn client(&self, instance: &str) -> (KeeperClient, Events) {
        KeeperClient::connect(&self.path, instance).unwrap()
    }

    /// A client that owns.
    pub fn owner(&self) -> (KeeperClient, Events) {
        let (client, mut events) = self.client("owner");
        client.ask(false).unwrap();
        assert_eq!(event(&mut events), KeeperEvent::Yours);
        (client, events)
    }

    /// Fails if the keeper does not serve.
    #[track_caller]
    pub fn check(&self) {
        self.client("check").0.names().unwrap();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop = None;
        let ended = self.thread.take().unwrap().join();
        if !thread::panicking() {
            ended.unwrap();
        }
    }
}

/// A keeper as a process.
pub struct Process {
    pub child: Child,
    pub log: PathBuf,
}

impl Process {
    pub fn start(mut command: Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).unwrap();
        let child = command.stdin(Stdio::null()).stderr(file).spawn().unwrap();
        Self { child, log: log.to_owned() }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        until("the keeper ends", || self.child.try_wait().unwrap())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    #[track_caller]
    pub fn logged(&self, text: &str) {
        let log = self.log.clone();
        until(text, || std::fs::read_to_string(&log).unwrap().contains(text).then_some(()));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the keeper's log:\n{}", self.log());
        }
        if self.child.try_wait().unwrap().is_some() {
            return;
        }
        // A supervising keeper ends its server first.
        self.signal(Signal::SIGTERM);
        let end = Instant::now() + Duration::from_secs(5);
        while self.child.try_wait().unwrap().is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn connected(path: &Path) -> (KeeperClient, Events) {
    until("the keeper listens", || KeeperClient::connect(path, "test").ok())
}

/// A file in memory with content.
pub fn memory(text: &str) -> File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::memfd_create("held", flags).unwrap());
    file.write_all(text.as_bytes()).unwrap();
    file
}

pub fn content(fd: &OwnedFd) -> String {
    let mut file = File::from(fd.try_clone().unwrap());
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// Puts one text under a name.
#[track_caller]
pub fn put(client: &KeeperClient, name: &str, text: &str) {
    client.put(name, &[memory(text).as_fd()]).unwrap();
}

#[track_caller]
pub fn held(client: &KeeperClient, name: &str) -> Vec<String> {
    client.get(name).unwrap().unwrap().iter().map(content).collect()
}

/// A connection without a client's manners.
pub struct Raw(pub OwnedFd);

impl Raw {
    pub fn new(path: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let family = AddressFamily::UNIX;
        let socket = rustix::net::socket_with(family, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
        Self(socket)
    }

    /// Has said hello.
    pub fn greeted(path: &Path) -> Self {
        let raw = Self::new(path);
        raw.send(b"\x01\0\0\0\x01\0\0\0JFSK\x01\0\x03\0raw", &[]).unwrap();
        assert_eq!(raw.receive().unwrap()[0], 64);
        raw
    }

    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags)
    }

    /// The next packet; `None` if the keeper has closed the connection.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 8192];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let got = rustix::net::recvmsg(&self.0, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC);
        match got {
            Ok(message) if message.bytes > 0 => {
                bytes.truncate(message.bytes);
                Some(bytes)
            }
            Ok(_) | Err(rustix::io::Errno::CONNRESET) => None,
            Err(error) => panic!("no answer: {error}"),
        }
    }

    #[track_caller]
    pub fn is_closed(&self) {
        while self.receive().is_some() {}
    }
}
