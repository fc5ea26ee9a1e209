//! Claims: what lock requests ask for and what is held, flocks and record locks in one shape.
//!
//! A flock is a claim on the whole file, so both kinds wait and clash by the same rule.

use crate::meta::record::{Flock, LockKind, Plock, PlockRange};
use crate::meta::{Ino, LockOwner, Operation, Sid};

/// The last byte a lock can cover.
pub const LAST_BYTE: u64 = i64::MAX.cast_unsigned();

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
        Self { sid, owner, range: PlockRange { kind, pid: 0, start: 0, end: LAST_BYTE } }
    }

    /// Whether both cannot be held at once. An owner never clashes with itself.
    pub fn clashes(&self, other: &Self) -> bool {
        let both_read = self.range.kind == LockKind::Read && other.range.kind == LockKind::Read;
        let overlap = self.range.start <= other.range.end && other.range.start <= self.range.end;
        !self.is_of(other.sid, other.owner) && !both_read && overlap
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
            let claim = |range: &PlockRange| Claim { sid: lock.sid, owner: lock.owner, range: *range };
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

/// The kind as the change log names it.
pub fn letter(kind: Option<LockKind>) -> char {
    kind.map_or('U', |kind| char::from(kind.letter()))
}
