//! Locks: BSD flocks and POSIX record locks, per inode, keyed by session and owner.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Error, Result};
use crate::meta::{LockOwner, Sid};

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

/// All ranges that one owner holds; sorted by start, not overlapping.
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

/// Encoded length of one range.
const RANGE_LEN: usize = 24;

impl LockKind {
    /// As flocks are stored.
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

/// The stored form of one owner's ranges.
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
    if raw.len() % RANGE_LEN != 0 {
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
