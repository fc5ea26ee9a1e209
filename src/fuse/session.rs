//! A session: receiving and answering what the kernel asks of one mount, from INIT or from where
//! another session left off, until the mount is gone or the session is told to stop.

mod receive;

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::abi::{self, Opcode};
use super::buffer::Pool;
use super::decode::{Header, InitOffer, Operation};
use super::device::{Closed, Device};
use super::file_system::FileSystem;
use super::head::Head;
use super::interrupt::Interrupts;
use super::link::Link;
use super::load::{Load, RequestMemory};
use super::negotiate::{Agreed, Wishes, encode_version};
use super::notify::Notifier;
use crate::error::{Error, Result};
use receive::Receiver;

/// How a session works, whatever was agreed with the kernel.
#[derive(Clone)]
pub struct Setup {
    /// For requests in flight, of all sessions that share it.
    pub memory: Arc<RequestMemory>,
}

impl Default for Setup {
    /// As for the only session of a process.
    fn default() -> Self {
        Self { memory: RequestMemory::new(ALONE, ALONE) }
    }
}

/// Bytes that requests of a session may hold if it is the only one.
const ALONE: usize = 64 << 20;

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was told to stop; the mount is still there, and so is its descriptor.
    Stopped,
    /// By whomever, by force or not.
    Unmounted,
    /// The connection was cut through `/sys/fs/fuse/connections`.
    Aborted,
    /// The device failed; the mount, if it is there, does not answer.
    Failed(Errno),
}

/// What stopping left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leftover {
    /// Whether something was still being received when patience ran out.
    pub receiving: bool,
    /// Requests without an answer and tasks without an end.
    pub unfinished: usize,
}

/// A running session. Dropping it stops it without waiting; the mount is a
/// [`Mount`](super::Mount) of its own, and should go first.
pub struct Session {
    link: Arc<Link>,
    agreed: Agreed,
    stopping: CancellationToken,
    notifier: Notifier,
    end: watch::Receiver<Option<End>>,
}

impl Session {
    /// Begins with the INIT that the kernel has sent to a fresh mount. Tasks run on `runtime`.
    pub fn start<F: FileSystem>(
        device: OwnedFd,
        file_system: Arc<F>,
        wishes: &Wishes,
        setup: &Setup,
        runtime: Handle,
    ) -> Result<Self> {
        let link = link(device, setup, runtime);
        let agreed = greet(&link, wishes)?;
        debug!(?agreed, "FUSE session begins");
        Self::serve(link, agreed, file_system)
    }

    /// Goes on with a descriptor on which INIT was answered before. What was in flight then is
    /// sent again after [`Session::resend`].
    pub fn resume<F: FileSystem>(
        device: OwnedFd,
        agreed: Agreed,
        file_system: Arc<F>,
        setup: &Setup,
        runtime: Handle,
    ) -> Result<Self> {
        Self::serve(link(device, setup, runtime), agreed, file_system)
    }

    fn serve<F: FileSystem>(link: Arc<Link>, agreed: Agreed, file_system: Arc<F>) -> Result<Self> {
        link.device.stop_blocking().map_err(device_fault)?;
        let notifier = Notifier::start(Arc::clone(&link)).map_err(|error| thread_fault(&error))?;
        let (ended, end) = watch::channel(None);
        let stopping = CancellationToken::new();
        let receiver = Arc::new(Receiver {
            file_system,
            agreed: agreed.flags(),
            pool: Pool::new(agreed.request_max(), link.load.memory()),
            link: Arc::clone(&link),
            stopping: stopping.clone(),
            ended,
        });
        link.runtime.spawn(receiver.run());
        Ok(Self { link, agreed, stopping, notifier, end })
    }

    /// What holds between the kernel and this mount, to be kept for [`Session::resume`].
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// The descriptor, to be duplicated for whoever shall outlive this process.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.link.device.as_fd()
    }

    /// For telling the kernel what it must not keep.
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Has the kernel send again every request that was received and not answered, by whoever.
    pub fn resend(&self) -> Result<()> {
        if !self.agreed.can_resend() {
            return Err(Error::NotSupported);
        }
        // Takes no lock of a file, so it may be sent from here.
        let mut head = Head::new();
        let message = head.seal(0, abi::notify::RESEND, 0);
        self.link.device.send(&[IoSlice::new(message)]).map_err(device_fault)
    }

    /// Waits until the session is over, and says why.
    pub async fn ended(&self) -> End {
        let mut end = self.end.clone();
        let reached = end.wait_for(Option::is_some).await;
        reached.ok().and_then(|end| *end).unwrap_or(End::Failed(Errno::EIO))
    }

    /// Whether it is over already.
    pub fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Stops receiving and waits for what is in flight, each for as long as patience lasts. The
    /// mount stays: requests that come wait in the kernel for the next to receive them.
    pub async fn stop(&self, patience: Duration) -> Leftover {
        // First, while there is still somebody to answer what a notification may wait for.
        if timeout(patience, self.notifier.close()).await.is_err() {
            warn!("notifications to the kernel are stuck");
        }
        self.stopping.cancel();
        let receiving = timeout(patience, self.ended()).await.is_err();
        self.link.work.close();
        let unfinished = match timeout(patience, self.link.work.wait()).await {
            Ok(()) => 0,
            Err(_) => self.link.work.len(),
        };
        Leftover { receiving, unfinished }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.notifier.shut();
    }
}

fn link(device: OwnedFd, setup: &Setup, runtime: Handle) -> Arc<Link> {
    Arc::new(Link {
        device: Device::new(device),
        interrupts: Interrupts::default(),
        load: Load::of(&setup.memory),
        runtime,
        work: TaskTracker::new(),
    })
}

/// Receives INIT and answers it.
fn greet(link: &Link, wishes: &Wishes) -> Result<Agreed> {
    loop {
        let (unique, offer) = receive_init(link)?;
        let mut head = Head::new();
        let agreed = if offer.major > abi::MAJOR {
            encode_version(&mut head);
            None
        } else {
            let agreed = Agreed::new(&offer, wishes);
            if agreed.is_err() {
                link.refuse(unique, Errno::EPROTO);
            }
            let agreed = agreed?;
            agreed.encode(&mut head);
            Some(agreed)
        };
        let message = [IoSlice::new(head.seal(0, 0, unique))];
        link.device.send(&message).map_err(device_fault)?;
        if let Some(agreed) = agreed {
            return Ok(agreed);
        }
    }
}

fn receive_init(link: &Link) -> Result<(u64, InitOffer)> {
    // The kernel wants room for a large request, whatever it sends.
    let mut buffer = vec![0; 256 << 10];
    let length = link.device.receive(&mut buffer).map_err(|closed| match closed {
        Closed::Unmounted | Closed::Aborted => {
            Error::Refused("the mount was gone before its session began".into())
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
    offer.ok_or_else(|| Error::Refused("the kernel did not begin with INIT".into()))
}

fn device_fault(errno: Errno) -> Error {
    Error::Unreachable { place: "/dev/fuse".into(), cause: errno.to_string() }
}

fn thread_fault(error: &std::io::Error) -> Error {
    Error::Unreachable { place: "/dev/fuse".into(), cause: format!("no thread: {error}") }
}
