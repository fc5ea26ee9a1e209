//! The connection to the kernel, shared by receiving, replies and notifications of a session.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::SessionOptions;
use super::device::Device;
use super::in_flight::InFlight;
use super::interrupt::Interrupts;
use super::unanswered::Unanswered;
use crate::fuse::protocol::message_head::MessageHead;
use crate::ledger::Ledger;

pub struct Connection {
    pub device: Device,
    pub interrupts: Interrupts,
    pub in_flight: Arc<InFlight>,
    pub runtime: Handle,
    /// Requests without a reply, and tasks that continue without their caller.
    pub work: TaskTracker,
    /// Where requests that change something are recorded.
    pub ledger: Option<Arc<Ledger>>,
    /// Requests without a reply, if the kernel cannot send them again to another process.
    pub unanswered: Option<Unanswered>,
    /// Nothing is sent any more: another process serves the mount.
    muted: AtomicBool,
}

impl Connection {
    /// Tasks run on `runtime`.
    pub fn new(device: OwnedFd, options: &SessionOptions, runtime: Handle) -> Self {
        Self {
            device: Device::new(device),
            interrupts: Interrupts::default(),
            in_flight: InFlight::of(&options.memory),
            runtime,
            work: TaskTracker::new(),
            ledger: options.ledger.clone(),
            unanswered: None,
            muted: AtomicBool::new(false),
        }
    }

    /// Sends nothing from now on, and leaves what has no reply to the next process.
    pub fn mute(&self) {
        self.muted.store(true, Ordering::SeqCst);
        if let Some(unanswered) = &self.unanswered {
            unanswered.leave();
        }
    }

    /// Notes that a request has its reply.
    pub fn answered(&self, unique: u64) {
        if let Some(unanswered) = &self.unanswered {
            unanswered.end(unique);
        }
    }

    pub fn is_muted(&self) -> bool {
        self.muted.load(Ordering::SeqCst)
    }

    /// Sends an error outside of any [`Reply`](super::Reply).
    pub fn refuse(&self, unique: u64, errno: Errno) {
        if self.is_muted() {
            return;
        }
        let mut head = MessageHead::new();
        // Nothing can be done if this fails: the request is gone.
        let _ = self.device.send(&[IoSlice::new(head.seal(0, -(errno as i32), unique))]);
        self.answered(unique);
    }
}
