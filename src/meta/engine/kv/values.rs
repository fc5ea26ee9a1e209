//! Values that only key-value stores encode this way; [`crate::meta::record`] encodes the others.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Error, Result};
use crate::meta::record::lock::{decode_ranges, encode_ranges};
use crate::meta::record::{Counter, Flock, LockKind, Plock};
use crate::meta::{LockOwner, Sid};

/// The value of a sustained record.
pub const MARK: Bytes = Bytes::from_static(&[1]);

/// Returns a record of fixed length as a value.
pub fn fixed<const N: usize>(raw: [u8; N]) -> Bytes {
    Bytes::copy_from_slice(&raw)
}

/// Numbers that are added to: counters, parent counts, references.
pub fn encode_number(value: i64) -> Bytes {
    fixed(value.to_le_bytes())
}

pub fn decode_number(raw: Option<&Bytes>) -> Result<i64> {
    eight_bytes("number", raw).map(i64::from_le_bytes)
}

/// Numbers that are set: unix seconds.
pub fn encode_time(value: i64) -> Bytes {
    fixed(value.to_be_bytes())
}

pub fn decode_time(raw: Option<&Bytes>) -> Result<i64> {
    eight_bytes("time", raw).map(i64::from_be_bytes)
}

pub fn encode_counter(counter: Counter, value: i64) -> Bytes {
    if is_election(counter) { encode_time(value) } else { encode_number(value) }
}

pub fn decode_counter(counter: Counter, raw: Option<&Bytes>) -> Result<i64> {
    if !is_election(counter) {
        return decode_number(raw);
    }
    // A volume loaded from a binary dump may hold these little-endian. Read as big-endian they
    // would lie far in the future, and no client would win the election again.
    let time = decode_time(raw)?;
    Ok(if time >> 48 == 0 { time } else { time.swap_bytes() })
}

/// Returns whether a counter holds the time of a job's last run.
fn is_election(counter: Counter) -> bool {
    match counter {
        Counter::LastCleanupSessions
        | Counter::LastCleanupFiles
        | Counter::NextCleanupSlices
        | Counter::LastCleanupTrash
        | Counter::LastCleanupChangelog
        | Counter::UnfinishedLoad => true,
        Counter::UsedSpace
        | Counter::TotalInodes
        | Counter::NextInode
        | Counter::NextChunk
        | Counter::NextSession
        | Counter::NextTrash
        | Counter::AclMaxId => false,
    }
}

const FLOCK_LEN: usize = 17;

pub fn encode_flocks(locks: &[Flock]) -> Bytes {
    let mut out = BytesMut::with_capacity(locks.len() * FLOCK_LEN);
    for lock in locks {
        out.put_u64(lock.sid.0);
        out.put_u64(lock.owner.0);
        out.put_u8(lock.kind.letter());
    }
    out.freeze()
}

pub fn decode_flocks(mut raw: &[u8]) -> Result<Vec<Flock>> {
    if !raw.len().is_multiple_of(FLOCK_LEN) {
        return Err(Error::damaged("flocks", format!("{} bytes, not a multiple of 17", raw.len())));
    }
    let mut locks = Vec::with_capacity(raw.len() / FLOCK_LEN);
    while !raw.is_empty() {
        locks.push(Flock {
            sid: Sid(raw.get_u64()),
            owner: LockOwner(raw.get_u64()),
            kind: LockKind::from_letter(raw.get_u8())?,
        });
    }
    Ok(locks)
}

pub fn encode_plocks(locks: &[Plock]) -> Bytes {
    let mut out = BytesMut::new();
    for lock in locks {
        let ranges = encode_ranges(&lock.ranges);
        out.put_u64(lock.sid.0);
        out.put_u64(lock.owner.0);
        out.put_u32(u32::try_from(ranges.len()).unwrap_or(u32::MAX));
        out.put_slice(&ranges);
    }
    out.freeze()
}

pub fn decode_plocks(raw: &[u8]) -> Result<Vec<Plock>> {
    let cut = |_| Error::damaged("plocks", format!("{} bytes end within a lock", raw.len()));
    let mut rest = raw;
    let mut locks = Vec::new();
    while !rest.is_empty() {
        let sid = Sid(rest.try_get_u64().map_err(cut)?);
        let owner = LockOwner(rest.try_get_u64().map_err(cut)?);
        let len = rest.try_get_u32().map_err(cut)? as usize;
        let ranges = rest.get(..len).ok_or_else(|| {
            Error::damaged("plocks", format!("{} bytes of ranges instead of {len}", rest.len()))
        })?;
        locks.push(Plock { sid, owner, ranges: decode_ranges(ranges)? });
        rest.advance(len);
    }
    Ok(locks)
}

/// Returns the eight bytes of a value; a missing or empty value is zero.
fn eight_bytes(what: &str, raw: Option<&Bytes>) -> Result<[u8; 8]> {
    match raw.map(AsRef::as_ref) {
        None | Some([]) => Ok([0; 8]),
        Some(raw) => raw
            .try_into()
            .map_err(|_| Error::damaged(what, format!("{} bytes instead of 8", raw.len()))),
    }
}
