//! A target where a dead mount lies: the new one covers it, then the dead one is taken away underneath.
//!
//! A container with `HostToContainer` has a copy of the mount that it was started with, and follows what is
//! mounted *on* it. So whoever takes the dead one away and mounts in its place is not followed.
//!
//! The kernel takes no mount away and keeps what covers it, but for those that go because another was taken
//! away that they follow: there, what covers them moves down to their place. So a thread makes itself a
//! mount namespace for a moment, with copies of all mounts. Its copy of the dead one is cut loose before the
//! new one comes, hence not covered, and as it is taken away, the dead ones go everywhere else.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::errno::Errno;
use nix::libc;
use tracing::warn;

use super::bind::{TargetRoot, fault, set_private};
use crate::error::{Error, Result};
use crate::fuse::stacked_at;

/// Dead mounts beneath a new one at most, where they cannot be taken away.
const DEEPEST: usize = 8;

impl TargetRoot {
    /// Shows the mount at `point` at the target in place of the dead ones that are there.
    pub fn replace(&self, point: &Path, target: &Path, read_only: bool) -> Result<()> {
        let dead = stacked_at(target);
        let is_followed = dead.last().is_some_and(|top| top.is_shared);
        if !is_followed || dead.len() >= DEEPEST {
            self.detach(target)?;
            return self.bind(point, target, read_only);
        }
        thread::scope(|scope| {
            let (prepared, is_prepared) = channel();
            let (covered, is_covered) = channel();
            let beneath =
                thread::Builder::new().name("beneath".to_owned()).spawn_scoped(scope, move || {
                    self.take_away(target, dead.len(), (prepared, is_covered))
                });
            // It ends without a word if it fails; then the dead ones stay beneath, and go with the target.
            let _ = is_prepared.recv();
            self.bind(point, target, read_only)?;
            let _ = covered.send(());
            let gone = match beneath {
                Ok(thread) => thread
                    .join()
                    .unwrap_or_else(|_| Err(Error::internal("unmounting", "the thread panicked"))),
                Err(error) => Err(fault(target, error)),
            };
            if let Err(error) = gone {
                warn!(path = %target.display(), %error, "a dead mount stays beneath the new one");
            }
            Ok(())
        })
    }

    /// Takes `dead` mounts away that another thread covers meanwhile. If it fails to, they stay.
    fn take_away(
        &self,
        target: &Path,
        dead: usize,
        (prepared, is_covered): (Sender<()>, Receiver<()>),
    ) -> Result<()> {
        own_namespace().map_err(|errno| fault(target, errno))?;
        let top = self.open(target)?.open().map_err(|error| fault(target, error))?;
        set_private(top.as_fd(), 0).map_err(|errno| fault(target, errno))?;
        // It would keep the mount in use.
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

/// Gives the calling thread a mount namespace of its own, for the rest of its life.
#[allow(unsafe_code, reason = "unshare(2) is not offered by what is built in of nix")]
fn own_namespace() -> Result<(), Errno> {
    // SAFETY: it changes nothing but what paths mean to this thread, which ends with this module's work.
    Errno::result(unsafe { libc::unshare(libc::CLONE_NEWNS) }).map(drop)
}
