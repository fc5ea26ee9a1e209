//! The `/dev/fuse` descriptor of a mount.
//!
//! Owns reading and writing it, and what the errors of these mean. It is never cloned
//! (`FUSE_DEV_IOC_CLONE`): a request read through a clone is lost with the clone, while one read
//! through this descriptor can be sent again to its next holder.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::uio::writev;
use nix::unistd::read;

use crate::fuse::protocol::abi;
use crate::fuse::protocol::message_head::MessageHead;

/// The most slices that one writev takes.
const SLICES_MAX: usize = 1024;

#[derive(Debug)]
pub struct Device(OwnedFd);

/// Why nothing more is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// The file system was unmounted.
    Unmounted,
    /// The connection was aborted through `/sys/fs/fuse/connections`.
    Aborted,
    /// Reading failed with a permanent error.
    Failed(Errno),
}

impl Device {
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Makes receiving non-blocking; only [`Device::wait`] blocks.
    pub fn stop_blocking(&self) -> Result<(), Errno> {
        let flags = OFlag::from_bits_retain(fcntl(&self.0, FcntlArg::F_GETFL)?);
        fcntl(&self.0, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop)
    }

    /// Waits for a request, on this thread. Returns its length.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize, Closed> {
        loop {
            match self.receive_now(buffer)? {
                Some(length) => return Ok(length),
                None => self.wait()?,
            }
        }
    }

    /// Receives a request if there is one. Returns its length.
    pub fn receive_now(&self, buffer: &mut [u8]) -> Result<Option<usize>, Closed> {
        loop {
            match read(&self.0, buffer) {
                Ok(length) => return Ok(Some(length)),
                // ENOENT: the caller was interrupted before the request had been copied.
                Err(Errno::ENOENT | Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::ENODEV) => return Err(Closed::Unmounted),
                Err(Errno::ECONNABORTED) => return Err(Closed::Aborted),
                Err(errno) => return Err(Closed::Failed(errno)),
            }
        }
    }

    /// Whether another request is waiting.
    pub fn has_more(&self) -> bool {
        let mut waiting = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut waiting, PollTimeout::ZERO) == Ok(1)
    }

    /// Sends one message. The kernel accepts it whole or not at all.
    pub fn send(&self, slices: &[IoSlice<'_>]) -> Result<(), Errno> {
        if slices.len() <= SLICES_MAX {
            return retry(|| writev(&self.0, slices));
        }
        // Reads in buffers that small are rare, and so is this copy.
        let (whole, rest) = slices.split_at(SLICES_MAX - 1);
        let joined: Vec<u8> = rest.iter().flat_map(|slice| slice.iter().copied()).collect();
        let mut slices = whole.to_vec();
        slices.push(IoSlice::new(&joined));
        retry(|| writev(&self.0, &slices))
    }

    /// Whether the kernel waits for the reply to a request that was received. If its caller was
    /// interrupted, the INTERRUPT comes once more.
    ///
    /// The reply EAGAIN to an INTERRUPT has the kernel send that one again. It finds no such
    /// request if that has its reply, and is not accepted if the request was not interrupted.
    pub fn expects_reply(&self, unique: u64) -> Result<bool, Errno> {
        let mut head = MessageHead::new();
        let again = head.seal(0, -(Errno::EAGAIN as i32), unique | abi::INTERRUPT_REPLY);
        match self.send(&[IoSlice::new(again)]) {
            Ok(()) | Err(Errno::EINVAL) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn wait(&self) -> Result<(), Closed> {
        let mut waiting = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(Closed::Failed(errno)),
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn retry(mut write: impl FnMut() -> nix::Result<usize>) -> Result<(), Errno> {
    loop {
        match write() {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
