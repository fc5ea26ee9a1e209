//! Backing files: local files that the kernel reads and writes by itself for an open file
//! (passthrough).

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use tracing::warn;

use crate::error::{Error, Result};

/// A local file registered with the kernel, for
/// [`OpenReply::backing`](super::OpenReply::backing). Must live until the open file is released.
#[derive(Debug)]
pub struct Backing {
    device: OwnedFd,
    id: u32,
}

impl Backing {
    /// Registers `file`. Needs the passthrough flag in INIT, and `CAP_SYS_ADMIN`.
    pub fn new(device: impl AsFd, file: impl AsFd) -> Result<Self> {
        let fault = |error: std::io::Error| Error::Unreachable {
            place: "/dev/fuse".into(),
            cause: format!("cannot register a backing file: {error}"),
        };
        let device = device.as_fd().try_clone_to_owned().map_err(fault)?;
        let id = fuser::BackingId::create_raw(&device, file).map_err(fault)?;
        Ok(Self { device, id })
    }

    pub fn id(&self) -> u32 {
        self.id
    }
}

#[allow(unsafe_code, reason = "ioctl has no safe form; fuser closes only what it opened itself")]
mod ioctl {
    // FUSE_DEV_IOC_BACKING_CLOSE: takes a pointer to the id.
    nix::ioctl_write_ptr!(backing_close, 229, 2, u32);

    pub fn close(device: std::os::fd::RawFd, id: u32) -> nix::Result<i32> {
        // SAFETY: the descriptor is open and `id` outlives the call, which only reads it.
        unsafe { backing_close(device, &raw const id) }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Err(errno) = ioctl::close(self.device.as_raw_fd(), self.id) {
            warn!(id = self.id, %errno, "cannot close a backing file");
        }
    }
}
