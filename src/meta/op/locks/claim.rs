//! Claims: requested and held locks, with flocks and record locks in one representation.
//!
//! A flock is a claim on the whole file, so both kinds conflict and wait by the same rules.

use crate::meta::record::{Flock, LockKind, Plock, PlockRange};
use crate::meta::{Ino, LockOwner, Operation, Sid};

/// A range that one owner holds or requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub sid: Sid,
    pub owner: LockOwner,
    pub range: PlockRange,
}

impl Claim {
    /// A flock as a claim; the process id is not used.
    pub fn whole(sid: Sid, owner: LockOwner, kind: LockKind) -> Self {
        let range = PlockRange { kind, pid: 0, start: 0, end: PlockRange::OPEN_END };
        Self { sid, owner, range }
    }

    /// Whether the two claims cannot be held at the same time. An owner never conflicts with
    /// itself.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        !self.is_of(other.sid, other.owner)
            && self.range.kind.excludes(other.range.kind)
            && self.range.overlaps(&other.range)
    }

    pub fn is_of(&self, sid: Sid, owner: LockOwner) -> bool {
        self.sid == sid && self.owner == owner
    }
}

/// The flocks of an inode as claims.
pub fn of_flocks(locks: &[Flock]) -> Vec<Claim> {
    locks.iter().map(|lock| Claim::whole(lock.sid, lock.owner, lock.kind)).collect()
}

/// The record locks of an inode as claims.
pub fn of_plocks(locks: &[Plock]) -> Vec<Claim> {
    locks
        .iter()
        .flat_map(|lock| {
            let claim =
                |range: &PlockRange| Claim { sid: lock.sid, owner: lock.owner, range: *range };
            lock.ranges.iter().map(claim)
        })
        .collect()
}

/// The two kinds of file locks. They are independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockFamily {
    Flock,
    Plock,
}

/// The outcome of one attempt to lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockAttempt {
    /// False if another owner holds a conflicting lock; then nothing was changed.
    pub granted: bool,
    /// All claims held on the inode afterwards.
    pub held: Vec<Claim>,
    /// The claims that the requesting owner held before.
    pub before: Vec<Claim>,
}

/// An operation that sets or releases a lock.
pub trait LockRequest: Operation<Output = LockAttempt> + Clone + 'static {
    const FAMILY: LockFamily;

    fn ino(&self) -> Ino;

    /// The requested claim; none for a release.
    fn claim(&self, sid: Sid) -> Option<Claim>;

    /// The requests that restore the owner's locks as they were before this one.
    fn undo(&self, before: &[Claim]) -> Vec<Self>;
}
