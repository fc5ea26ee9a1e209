//! Claims: what lock requests ask for and what is held, flocks and record locks in one shape.
//!
//! A flock is a claim on the whole file, so both kinds wait and clash by the same rule.

use crate::meta::record::{Flock, LockKind, Plock, PlockRange};
use crate::meta::{Ino, LockOwner, Operation, Sid};

/// A range that one owner holds or wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub sid: Sid,
    pub owner: LockOwner,
    pub range: PlockRange,
}

impl Claim {
    /// A flock as a claim; nobody asks who the process behind it is.
    pub fn whole(sid: Sid, owner: LockOwner, kind: LockKind) -> Self {
        let range = PlockRange { kind, pid: 0, start: 0, end: PlockRange::OPEN_END };
        Self { sid, owner, range }
    }

    /// Whether both cannot be held at once. An owner never clashes with itself.
    pub fn clashes(&self, other: &Self) -> bool {
        !self.is_of(other.sid, other.owner)
            && self.range.kind.excludes(other.range.kind)
            && self.range.overlaps(&other.range)
    }

    pub fn is_of(&self, sid: Sid, owner: LockOwner) -> bool {
        self.sid == sid && self.owner == owner
    }
}

/// Every flock of an inode as claims.
pub fn of_flocks(locks: &[Flock]) -> Vec<Claim> {
    locks.iter().map(|lock| Claim::whole(lock.sid, lock.owner, lock.kind)).collect()
}

/// Every range of an inode as claims.
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

/// The two kinds of lock. They do not know of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    Flock,
    Plock,
}

/// What one try of a request came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// False if other owners are in the way; then nothing was changed.
    pub granted: bool,
    /// Everything held on the inode now.
    pub held: Vec<Claim>,
    /// What the request's owner held before.
    pub before: Vec<Claim>,
}

/// An operation that sets or releases a lock.
pub trait LockRequest: Operation<Output = Tried> + Clone + 'static {
    const FAMILY: Family;

    fn ino(&self) -> Ino;

    /// What is asked for; nothing for a release.
    fn claim(&self, sid: Sid) -> Option<Claim>;

    /// The requests that put the owner's locks back as they were before this one.
    fn undo(&self, before: &[Claim]) -> Vec<Self>;
}
