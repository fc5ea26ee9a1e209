//! A session: receives and handles the requests of one mount, from INIT or from where another
//! session stopped, until the mount is gone or the session is stopped.

mod connection;
mod device;
mod dispatch;
mod in_flight;
mod interrupt;
mod notify;
mod receive;
mod receive_buffer;
mod reply;
mod signals;
mod unanswered;

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::error::{Error, Result};
use crate::fuse::file_system::FileSystem;
use crate::fuse::protocol::abi::{self, Opcode};
use crate::fuse::protocol::decode::{Header, InitOffer, Operation};
use crate::fuse::protocol::message_head::MessageHead;
use crate::fuse::protocol::negotiate::{InitOptions, Negotiated, encode_version};
use crate::ledger::Ledger;
use connection::Connection;
use device::Closed;
use receive::Receiver;
use receive_buffer::BufferPool;
use unanswered::Unanswered;

pub use in_flight::RequestMemory;
pub use notify::{Notification, Notifier};
pub use receive_buffer::Payload;
pub use reply::Reply;

/// The options of a session that are not negotiated with the kernel.
#[derive(Clone)]
pub struct SessionOptions {
    /// For requests in flight, of all sessions that share it.
    pub memory: Arc<RequestMemory>,
    /// Where requests that change something are recorded, if another process may have to continue
    /// with them.
    pub ledger: Option<Arc<Ledger>>,
}

impl Default for SessionOptions {
    /// For the only session of a process.
    fn default() -> Self {
        let memory = RequestMemory::new(SINGLE_SESSION_MEMORY, SINGLE_SESSION_MEMORY);
        Self { memory, ledger: None }
    }
}

/// Memory for requests if there is only one session.
const SINGLE_SESSION_MEMORY: usize = 64 << 20;

/// The descriptor of a mount that another process served, with what belongs to it.
#[derive(Debug)]
pub struct ServedDevice {
    pub device: OwnedFd,
    /// The requests that the process received, if the kernel cannot send them again: see
    /// [`Session::received`].
    pub received: Option<OwnedFd>,
}

impl From<OwnedFd> for ServedDevice {
    fn from(device: OwnedFd) -> Self {
        Self { device, received: None }
    }
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// It was stopped; the mount still exists, and so does its descriptor.
    Stopped,
    /// By anyone, by force or not.
    Unmounted,
    /// The connection was aborted through `/sys/fs/fuse/connections`.
    Aborted,
    /// The device failed; the mount, if it still exists, hangs.
    Failed(Errno),
}

/// What was unfinished when a session stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leftover {
    /// Whether receiving had not stopped before the timeout.
    pub receiving: bool,
    /// Requests without a reply, and unfinished tasks.
    pub unfinished: usize,
}

/// A running session. Dropping it stops it without waiting. The mount is a separate
/// [`Mount`](super::Mount), and should be unmounted first.
pub struct Session {
    connection: Arc<Connection>,
    agreed: Negotiated,
    stopping: CancellationToken,
    notifier: Notifier,
    end: watch::Receiver<Option<SessionEnd>>,
}

impl Session {
    /// Starts with the INIT that the kernel has sent to a new mount. Tasks run on `runtime`.
    pub fn start<F: FileSystem>(
        device: OwnedFd,
        file_system: Arc<F>,
        init: &InitOptions,
        options: &SessionOptions,
        runtime: Handle,
    ) -> Result<Self> {
        let mut connection = Connection::new(device, options, runtime);
        let agreed = negotiate(&connection, init)?;
        debug!(?agreed, "FUSE session begins");
        if options.ledger.is_some() && !agreed.can_resend() && agreed.tells_unanswered() {
            connection.unanswered = Some(Unanswered::create(agreed.request_max())?);
        }
        Self::serve(connection, agreed, file_system)
    }

    /// Continues with a descriptor whose INIT is done. The kernel resends every request that was
    /// received without a reply, if it can; otherwise they are among the received ones, if those
    /// are given. Never both: a request would be handled twice.
    pub fn resume<F: FileSystem>(
        device: impl Into<ServedDevice>,
        agreed: Negotiated,
        file_system: Arc<F>,
        options: &SessionOptions,
        runtime: Handle,
    ) -> Result<Self> {
        let ServedDevice { device, received } = device.into();
        let mut connection = Connection::new(device, options, runtime);
        if agreed.can_resend() {
            // Before anything is received: it would be sent a second time.
            resend(&connection)?;
        } else if let Some(received) = received {
            let (device, in_flight) = (&connection.device, &connection.in_flight);
            let unanswered = Unanswered::adopt(received, agreed.request_max(), device, in_flight)?;
            connection.unanswered = Some(unanswered);
        }
        Self::serve(connection, agreed, file_system)
    }

    fn serve<F: FileSystem>(
        connection: Connection,
        agreed: Negotiated,
        file_system: Arc<F>,
    ) -> Result<Self> {
        let connection = Arc::new(connection);
        connection.device.stop_blocking().map_err(device_fault)?;
        let notifier =
            Notifier::start(Arc::clone(&connection)).map_err(|error| thread_fault(&error))?;
        let (ended, end) = watch::channel(None);
        let stopping = CancellationToken::new();
        let receiver = Arc::new(Receiver {
            file_system,
            agreed: agreed.flags(),
            pool: BufferPool::new(agreed.request_max(), connection.in_flight.memory()),
            connection: Arc::clone(&connection),
            stopping: stopping.clone(),
            ended,
        });
        connection.runtime.spawn(receiver.run());
        Ok(Self { connection, agreed, stopping, notifier, end })
    }

    /// The result of INIT, to be kept for [`Session::resume`].
    pub fn agreed(&self) -> &Negotiated {
        &self.agreed
    }

    /// The descriptor, to be duplicated for a process that outlives this one.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.connection.device.as_fd()
    }

    /// The requests that have no reply, for the next process, if the kernel cannot send them again.
    pub fn received(&self) -> Option<BorrowedFd<'_>> {
        self.connection.unanswered.as_ref().map(|unanswered| unanswered.requests().as_fd())
    }

    /// Whether another process that has the descriptors can continue, even if this one dies.
    pub fn can_be_resumed(&self) -> bool {
        self.agreed.can_resend() || self.received().is_some()
    }

    /// Invalidates what the kernel caches.
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Waits until the session has ended, and returns why.
    pub async fn ended(&self) -> SessionEnd {
        let mut end = self.end.clone();
        let reached = end.wait_for(Option::is_some).await;
        reached.ok().and_then(|end| *end).unwrap_or(SessionEnd::Failed(Errno::EIO))
    }

    /// Whether the session has ended.
    pub fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Stops receiving and waits for work in flight, each for up to `patience`. The mount stays:
    /// new requests wait in the kernel for the next session.
    pub async fn stop(&self, patience: Duration) -> Leftover {
        // First, while requests that a notification may wait for are still handled.
        if timeout(patience, self.notifier.close()).await.is_err() {
            warn!("notifications to the kernel are blocked");
        }
        self.stopping.cancel();
        let receiving = timeout(patience, self.ended()).await.is_err();
        let unfinished = self.finish_work(patience).await;
        Leftover { receiving, unfinished }
    }

    /// Stops receiving, waits for work in flight for up to `patience`, and sends no replies from
    /// then on: what is left is for the next process, if this session [can be
    /// resumed](Session::can_be_resumed).
    pub async fn hand_over(&self, patience: Duration) -> Leftover {
        self.notifier.shut();
        self.stopping.cancel();
        let receiving = timeout(patience, self.ended()).await.is_err();
        let unfinished = self.finish_work(patience).await;
        self.connection.mute();
        Leftover { receiving, unfinished }
    }

    async fn finish_work(&self, patience: Duration) -> usize {
        self.connection.work.close();
        match timeout(patience, self.connection.work.wait()).await {
            Ok(()) => 0,
            Err(_) => self.connection.work.len(),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.notifier.shut();
    }
}

/// Has the kernel resend every request that was received without a reply.
fn resend(connection: &Connection) -> Result<()> {
    let mut head = MessageHead::new();
    let message = head.seal(0, abi::notify::RESEND, 0);
    connection.device.send(&[IoSlice::new(message)]).map_err(device_fault)
}

/// Receives INIT and replies to it.
fn negotiate(connection: &Connection, init: &InitOptions) -> Result<Negotiated> {
    loop {
        let (unique, offer) = receive_init(connection)?;
        let mut head = MessageHead::new();
        let agreed = if offer.major > abi::MAJOR {
            encode_version(&mut head);
            None
        } else {
            let agreed = Negotiated::new(&offer, init);
            if agreed.is_err() {
                connection.refuse(unique, Errno::EPROTO);
            }
            let agreed = agreed?;
            agreed.encode(&mut head);
            Some(agreed)
        };
        let message = [IoSlice::new(head.seal(0, 0, unique))];
        connection.device.send(&message).map_err(device_fault)?;
        if let Some(agreed) = agreed {
            return Ok(agreed);
        }
    }
}

fn receive_init(connection: &Connection) -> Result<(u64, InitOffer)> {
    // The kernel demands space for a large request, whatever it sends.
    let mut buffer = vec![0; 256 << 10];
    let length = connection.device.receive(&mut buffer).map_err(|closed| match closed {
        Closed::Unmounted | Closed::Aborted => {
            Error::Refused("unmounted before the session started".into())
        }
        Closed::Failed(errno) => device_fault(errno),
    })?;
    let message = &buffer[..length.min(buffer.len())];
    let offer = Header::decode(message).and_then(|header| {
        let body = header.body(message)?;
        match Opcode::from_u32(header.opcode) {
            Some(Opcode::Init) => {
                let operation = Operation::decode(Opcode::Init, body, fuser::InitFlags::empty())?;
                let Operation::Init(offer) = operation else { return Ok(None) };
                Ok(Some((header.request.unique, offer)))
            }
            _ => Ok(None),
        }
    });
    let offer = offer.ok().flatten();
    offer.ok_or_else(|| Error::Refused("the kernel did not start with INIT".into()))
}

fn device_fault(errno: Errno) -> Error {
    Error::Unreachable { place: "/dev/fuse".into(), cause: errno.to_string() }
}

fn thread_fault(error: &std::io::Error) -> Error {
    Error::Unreachable {
        place: "/dev/fuse".into(),
        cause: format!("cannot start a thread: {error}"),
    }
}
