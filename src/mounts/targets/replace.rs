//! Replaces a dead mount at a target: the new mount is stacked on it, then the dead one is removed
//! beneath.
//!
//! A container with `HostToContainer` propagation has a copy of the mount that it was started with,
//! and sees what is mounted *on* it. It does not see a new mount that takes the place of a removed
//! one.
//!
//! The kernel does not remove a mount that another one covers, with one exception: when an unmount
//! propagates to it, the mount on top moves down to its place. So a thread creates a temporary
//! mount namespace with copies of all mounts. It makes its copy of the dead mount private before
//! the new mount arrives, so that this copy is not covered. Unmounting the copy then propagates to
//! the dead mounts everywhere else.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::errno::Errno;
use nix::libc;
use tracing::warn;

use super::{TargetRoot, fault, set_private};
use crate::error::{Error, Result};
use crate::fuse::stacked_at;

/// How many dead mounts may stay beneath a new one, if they cannot be removed.
const MAX_DEAD: usize = 8;

impl TargetRoot {
    /// Bind-mounts `point` at the target in place of the dead mounts there.
    pub fn replace(&self, point: &Path, target: &Path, read_only: bool) -> Result<()> {
        let dead = stacked_at(target);
        let is_followed = dead.last().is_some_and(|top| top.is_shared);
        if !is_followed || dead.len() >= MAX_DEAD {
            self.detach(target)?;
            return self.bind(point, target, read_only);
        }
        thread::scope(|scope| {
            let (prepared, is_prepared) = channel();
            let (covered, is_covered) = channel();
            let unmounter = thread::Builder::new()
                .name("unmount-dead".to_owned())
                .spawn_scoped(scope, move || {
                    self.unmount_dead(target, dead.len(), &prepared, &is_covered)
                });
            // The thread ends without sending if it fails; then the dead mounts stay until the
            // target is removed.
            let _ = is_prepared.recv();
            self.bind(point, target, read_only)?;
            let _ = covered.send(());
            let unmounted = match unmounter {
                Ok(thread) => thread
                    .join()
                    .unwrap_or_else(|_| Err(Error::internal("unmounting", "the thread panicked"))),
                Err(error) => Err(fault(target, error)),
            };
            if let Err(error) = unmounted {
                let path = target.display();
                warn!(%path, %error, "cannot remove a dead mount beneath the new one");
            }
            Ok(())
        })
    }

    /// Removes `dead` mounts once the other thread has covered them; leaves them if that fails.
    fn unmount_dead(
        &self,
        target: &Path,
        dead: usize,
        prepared: &Sender<()>,
        is_covered: &Receiver<()>,
    ) -> Result<()> {
        unshare_mount_namespace().map_err(|errno| fault(target, errno))?;
        let top = self.open(target)?.open().map_err(|error| fault(target, error))?;
        set_private(top.as_fd(), 0).map_err(|errno| fault(target, errno))?;
        // An open descriptor would keep the mount busy.
        drop(top);
        let _ = prepared.send(());
        if is_covered.recv().is_err() {
            return Ok(());
        }
        for _ in 0..dead {
            self.open(target)?.unmount().map_err(|errno| fault(target, errno))?;
        }
        Ok(())
    }
}

/// Moves the calling thread into a mount namespace of its own, for the rest of its life.
#[allow(unsafe_code, reason = "unshare(2) is not among the enabled features of nix")]
fn unshare_mount_namespace() -> Result<(), Errno> {
    // SAFETY: it only changes how this thread resolves paths, and the thread runs nothing but this
    // module.
    Errno::result(unsafe { libc::unshare(libc::CLONE_NEWNS) }).map(drop)
}
