//! Locks: BSD flocks and POSIX record locks, per inode, keyed by session and owner.

mod ranges;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Error, Result};
use crate::meta::{LockOwner, Sid};
pub use ranges::{lock, unlock};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    Read,
    Write,
}

/// One holder of a flock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flock {
    pub sid: Sid,
    pub owner: LockOwner,
    pub kind: LockKind,
}

/// All ranges that one owner holds, sorted by start and not overlapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plock {
    pub sid: Sid,
    pub owner: LockOwner,
    pub ranges: Vec<PlockRange>,
}

/// A locked range; `end` is inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlockRange {
    pub kind: LockKind,
    pub pid: u32,
    pub start: u64,
    pub end: u64,
}

impl LockKind {
    /// Returns whether two owners cannot hold these at the same time.
    pub fn excludes(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}

/// Returns whether another owner holds a flock that conflicts with this one.
pub fn flock_conflicts(held: &[Flock], sid: Sid, owner: LockOwner, kind: LockKind) -> bool {
    held.iter().any(|lock| (lock.sid, lock.owner) != (sid, owner) && lock.kind.excludes(kind))
}

/// Returns a range of another owner that conflicts with `wanted`, and the lock it belongs to.
pub fn plock_conflict<'a>(
    held: &'a [Plock],
    sid: Sid,
    owner: LockOwner,
    wanted: &PlockRange,
) -> Option<(&'a Plock, &'a PlockRange)> {
    held.iter().filter(|lock| (lock.sid, lock.owner) != (sid, owner)).find_map(|lock| {
        let conflicts =
            |range: &&PlockRange| range.overlaps(wanted) && range.kind.excludes(wanted.kind);
        lock.ranges.iter().find(conflicts).map(|range| (lock, range))
    })
}

impl PlockRange {
    /// The end of a range that extends to the end of the file.
    pub const OPEN_END: u64 = i64::MAX.unsigned_abs();

    pub fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// Encoded length of one range.
const RANGE_LEN: usize = 24;

impl LockKind {
    /// Returns the letter that flocks are stored with.
    pub fn letter(self) -> u8 {
        match self {
            Self::Read => b'R',
            Self::Write => b'W',
        }
    }

    pub fn from_letter(letter: u8) -> Result<Self> {
        match letter {
            b'R' => Ok(Self::Read),
            b'W' => Ok(Self::Write),
            other => Err(Error::damaged("flock", format!("unknown kind {other:#04x}"))),
        }
    }
}

/// Encodes the ranges of one owner.
pub fn encode_ranges(ranges: &[PlockRange]) -> Bytes {
    let mut out = BytesMut::with_capacity(ranges.len() * RANGE_LEN);
    for range in ranges {
        // Linux numbers: F_RDLCK 0, F_WRLCK 1.
        out.put_u32(u32::from(range.kind == LockKind::Write));
        out.put_u32(range.pid);
        out.put_u64(range.start);
        out.put_u64(range.end);
    }
    out.freeze()
}

pub fn decode_ranges(mut raw: &[u8]) -> Result<Vec<PlockRange>> {
    if !raw.len().is_multiple_of(RANGE_LEN) {
        return Err(Error::damaged("plock", format!("{} bytes, not a multiple of 24", raw.len())));
    }
    let mut ranges = Vec::with_capacity(raw.len() / RANGE_LEN);
    while !raw.is_empty() {
        let kind = match raw.get_u32() {
            0 => LockKind::Read,
            1 => LockKind::Write,
            other => return Err(Error::damaged("plock", format!("unknown kind {other}"))),
        };
        ranges.push(PlockRange {
            kind,
            pid: raw.get_u32(),
            start: raw.get_u64(),
            end: raw.get_u64(),
        });
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A read lock of process 28433 on bytes 3 to 9, as the Go client stores it.
    const RAW: [u8; 24] =
        [0, 0, 0, 0, 0, 0, 0x6f, 0x11, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9];

    fn range(kind: LockKind, start: u64, end: u64) -> PlockRange {
        PlockRange { kind, pid: 28433, start, end }
    }

    fn plock(sid: u64, owner: u64, ranges: Vec<PlockRange>) -> Plock {
        Plock { sid: Sid(sid), owner: LockOwner(owner), ranges }
    }

    #[test]
    fn stored_ranges_decode_and_encode() {
        let mut raw = RAW.to_vec();
        let mut ranges = vec![range(LockKind::Read, 3, 9)];
        assert_eq!(decode_ranges(&raw).unwrap(), ranges);
        assert_eq!(encode_ranges(&ranges), raw);
        raw.extend([0, 0, 0, 1, 0, 0, 0x6f, 0x11]);
        raw.extend([0, 0, 0, 0, 0, 0, 0, 0x0a, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        ranges.push(range(LockKind::Write, 10, PlockRange::OPEN_END));
        assert_eq!(decode_ranges(&raw).unwrap(), ranges);
        assert_eq!(encode_ranges(&ranges), raw);
    }

    #[test]
    fn damaged_ranges_are_errors() {
        assert!(decode_ranges(&RAW[..23]).is_err());
        let mut unlocked = RAW;
        unlocked[3] = 2;
        assert!(decode_ranges(&unlocked).is_err());
    }

    #[test]
    fn flocks_are_stored_as_letters() {
        for (kind, letter) in [(LockKind::Read, b'R'), (LockKind::Write, b'W')] {
            assert_eq!(kind.letter(), letter);
            assert_eq!(LockKind::from_letter(letter).unwrap(), kind);
        }
        assert!(LockKind::from_letter(b'U').is_err());
    }

    #[test]
    fn a_flock_conflicts_only_with_other_owners() {
        use LockKind::{Read, Write};
        let held = |kind| [Flock { sid: Sid(1), owner: LockOwner(7), kind }];
        let conflicts = |kind, sid, owner, wanted| {
            flock_conflicts(&held(kind), Sid(sid), LockOwner(owner), wanted)
        };
        for wanted in [Read, Write] {
            assert!(!flock_conflicts(&[], Sid(1), LockOwner(7), wanted));
            assert!(!conflicts(Write, 1, 7, wanted));
            assert!(conflicts(Write, 1, 8, wanted));
            assert!(conflicts(Write, 2, 7, wanted));
            assert_eq!(conflicts(Read, 2, 7, wanted), wanted == Write);
        }
    }

    #[test]
    fn a_range_conflicts_with_overlapping_ranges_of_other_owners() {
        use LockKind::{Read, Write};
        let held = [
            plock(1, 7, vec![range(Read, 0, 9), range(Write, 20, 29)]),
            plock(2, 7, vec![range(Read, 5, 14)]),
        ];
        let conflict = |sid, owner, wanted| {
            plock_conflict(&held, Sid(sid), LockOwner(owner), &wanted)
                .map(|(lock, range)| (lock.sid.0, range.start))
        };
        assert_eq!(conflict(3, 1, range(Read, 0, 19)), None);
        assert_eq!(conflict(3, 1, range(Read, 29, 29)), Some((1, 20)));
        assert_eq!(conflict(3, 1, range(Write, 10, 10)), Some((2, 5)));
        assert_eq!(conflict(1, 7, range(Write, 0, 4)), None);
        assert_eq!(conflict(1, 7, range(Write, 0, 5)), Some((2, 5)));
        assert_eq!(conflict(1, 8, range(Write, 15, 19)), None);
    }

    proptest! {
        #[test]
        fn encoded_ranges_decode_to_the_same(
            parts in prop::collection::vec(any::<(bool, u32, u64, u64)>(), 0..5)
        ) {
            let ranges: Vec<_> = parts.into_iter().map(|(write, pid, start, end)| PlockRange {
                kind: if write { LockKind::Write } else { LockKind::Read }, pid, start, end,
            }).collect();
            prop_assert_eq!(decode_ranges(&encode_ranges(&ranges)).unwrap(), ranges);
        }

        #[test]
        fn any_bytes_decode_or_fail(raw: Vec<u8>) {
            let _ = decode_ranges(&raw);
        }
    }
}
