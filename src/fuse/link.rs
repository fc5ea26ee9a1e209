//! What receiving, replies and notifications of a session share.

use std::io::IoSlice;
use std::sync::Arc;

use nix::errno::Errno;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::device::Device;
use super::head::Head;
use super::interrupt::Interrupts;
use super::load::Load;

pub struct Link {
    pub device: Device,
    pub interrupts: Interrupts,
    pub load: Arc<Load>,
    pub runtime: Handle,
    /// Requests that are not answered, and tasks that go on without their caller.
    pub work: TaskTracker,
}

impl Link {
    /// Answers an error outside any [`Reply`](super::Reply).
    pub fn refuse(&self, unique: u64, errno: Errno) {
        let mut head = Head::new();
        // Nobody is there to be told if this fails: the request is gone.
        let _ = self.device.send(&[IoSlice::new(head.seal(0, -(errno as i32), unique))]);
    }
}
