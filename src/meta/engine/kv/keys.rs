//! Encoding and decoding stored keys.
//!
//! Inodes are little-endian, every other integer is big-endian.

use bytes::{Buf, BufMut};

use crate::meta::record::{Counter, QuotaKey};
use crate::meta::{Ino, Name, Sid, SliceId};

/// A stored key of the volume, without the store's own prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreKey {
    Setting,
    Counter(Counter),
    Attr(Ino),
    Entry(Ino, Name),
    Parent {
        ino: Ino,
        parent: Ino,
    },
    Chunk(Ino, u32),
    Symlink(Ino),
    Xattr(Ino, Name),
    DeletedFile {
        ino: Ino,
        length: u64,
    },
    Flocks(Ino),
    Plocks(Ino),
    SliceRef(SliceId, u32),
    Delayed {
        at: i64,
        id: SliceId,
    },
    SessionExpire(Sid),
    SessionInfo(Sid),
    /// Of clients before 1.0, which stored when they were last seen instead of when they expire.
    SessionHeartbeat(Sid),
    Sustained(Sid, Ino),
    DirStat(Ino),
    Detached(Ino),
    Quota(QuotaKey),
    Acl(u32),
    Log {
        shard: Option<u8>,
        version: u64,
    },
}

/// Length of the longest key without a name: tag, inode, kind, inode.
const CAPACITY: usize = 18;

impl StoreKey {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Setting => b"setting".to_vec(),
            Self::Counter(counter) => tagged(b"C", |key| key.put_slice(counter.name().as_bytes())),
            Self::Attr(ino) => of_node(*ino, b'I', |_| ()),
            Self::Entry(ino, name) => of_node(*ino, b'D', |key| key.put_slice(name.as_bytes())),
            Self::Parent { ino, parent } => of_node(*ino, b'P', |key| key.put_u64_le(parent.0)),
            Self::Chunk(ino, index) => of_node(*ino, b'C', |key| key.put_u32(*index)),
            Self::Symlink(ino) => of_node(*ino, b'S', |_| ()),
            Self::Xattr(ino, name) => of_node(*ino, b'X', |key| key.put_slice(name.as_bytes())),
            Self::DeletedFile { ino, length } => tagged(b"D", |key| {
                key.put_u64_le(ino.0);
                key.put_u64(*length);
            }),
            Self::Flocks(ino) => tagged(b"F", |key| key.put_u64_le(ino.0)),
            Self::Plocks(ino) => tagged(b"P", |key| key.put_u64_le(ino.0)),
            Self::SliceRef(id, size) => tagged(b"K", |key| {
                key.put_u64(id.0);
                key.put_u32(*size);
            }),
            Self::Delayed { at, id } => tagged(b"L", |key| {
                key.put_i64(*at);
                key.put_u64(id.0);
            }),
            Self::SessionExpire(sid) => tagged(b"SE", |key| key.put_u64(sid.0)),
            Self::SessionInfo(sid) => tagged(b"SI", |key| key.put_u64(sid.0)),
            Self::SessionHeartbeat(sid) => tagged(b"SH", |key| key.put_u64(sid.0)),
            Self::Sustained(sid, ino) => tagged(b"SS", |key| {
                key.put_u64(sid.0);
                key.put_u64_le(ino.0);
            }),
            Self::DirStat(ino) => tagged(b"U", |key| key.put_u64_le(ino.0)),
            Self::Detached(ino) => tagged(b"N", |key| key.put_u64_le(ino.0)),
            Self::Quota(QuotaKey::Dir(ino)) => tagged(b"QD", |key| key.put_u64_le(ino.0)),
            Self::Quota(QuotaKey::User(uid)) => tagged(b"QU", |key| key.put_u64(u64::from(*uid))),
            Self::Quota(QuotaKey::Group(gid)) => tagged(b"QG", |key| key.put_u64(u64::from(*gid))),
            Self::Acl(id) => tagged(b"R", |key| key.put_u32(*id)),
            Self::Log { shard, version } => tagged(b"XLOG", |key| {
                key.extend(shard.iter());
                key.put_u64(*version);
            }),
        }
    }

    /// Returns the key of the change-log lines of the commit with this version. Versions of the
    /// same time differ in few bits, so stores that shard the log mix high and low bits to spread
    /// them.
    pub(super) fn log(shards: Option<u16>, version: u64) -> Self {
        let shard = shards.map(|count| {
            let spread = (version ^ (version >> 18)) % u64::from(count.max(1));
            u8::try_from(spread).unwrap_or(u8::MAX)
        });
        Self::Log { shard, version }
    }

    /// Returns the node whose entries, xattrs or parents begin with this prefix, and the letter
    /// that says which of them.
    pub(super) fn range_owner(prefix: &[u8]) -> Option<(Ino, u8)> {
        let mut rest = prefix.strip_prefix(b"A").filter(|rest| rest.len() == 9)?;
        Some((ino(&mut rest), *rest.first()?))
    }

    /// Returns what a stored key names. `None` for keys that no engine call uses (tokens, keys of
    /// unexpected length), which scans skip.
    pub fn decode(key: &[u8]) -> Option<Self> {
        let (tag, rest) = key.split_first()?;
        match tag {
            b's' => (key == b"setting").then_some(Self::Setting),
            b'C' => counter_named(rest).map(Self::Counter),
            b'A' => decode_node(rest),
            b'D' => exactly(rest, 16, |r| Self::DeletedFile { ino: ino(r), length: r.get_u64() }),
            b'F' => exactly(rest, 8, |r| Self::Flocks(ino(r))),
            b'P' => exactly(rest, 8, |r| Self::Plocks(ino(r))),
            b'K' => exactly(rest, 12, |r| Self::SliceRef(SliceId(r.get_u64()), r.get_u32())),
            b'L' => {
                exactly(rest, 16, |r| Self::Delayed { at: r.get_i64(), id: SliceId(r.get_u64()) })
            }
            b'S' => decode_session(rest),
            b'U' => exactly(rest, 8, |r| Self::DirStat(ino(r))),
            b'N' => exactly(rest, 8, |r| Self::Detached(ino(r))),
            b'Q' => decode_quota(rest).map(Self::Quota),
            b'R' => exactly(rest, 4, |r| Self::Acl(r.get_u32())),
            b'X' => decode_log(rest),
            _ => None,
        }
    }
}

/// Prefixes shared by many keys, for scans.
pub mod prefix {
    use super::{Ino, Sid, of_node, tagged};
    use bytes::BufMut;

    pub fn entries(dir: Ino) -> Vec<u8> {
        of_node(dir, b'D', |_| ())
    }

    pub fn parents(ino: Ino) -> Vec<u8> {
        of_node(ino, b'P', |_| ())
    }

    pub fn chunks(ino: Ino) -> Vec<u8> {
        of_node(ino, b'C', |_| ())
    }

    pub fn xattrs(ino: Ino) -> Vec<u8> {
        of_node(ino, b'X', |_| ())
    }

    pub fn sustained(sid: Sid) -> Vec<u8> {
        tagged(b"SS", |key| key.put_u64(sid.0))
    }

    pub fn log(shard: Option<u8>) -> Vec<u8> {
        tagged(b"XLOG", |key| key.extend(shard.iter()))
    }

    /// Attrs, entries, chunks and everything else of nodes.
    pub const NODES: &[u8] = b"A";
    pub const DELETED_FILES: &[u8] = b"D";
    pub const FLOCKS: &[u8] = b"F";
    pub const PLOCKS: &[u8] = b"P";
    pub const SLICE_REFS: &[u8] = b"K";
    pub const DELAYED: &[u8] = b"L";
    pub const SESSION_EXPIRES: &[u8] = b"SE";
    pub const SESSION_INFOS: &[u8] = b"SI";
    pub const SESSION_HEARTBEATS: &[u8] = b"SH";
    pub const DIR_STATS: &[u8] = b"U";
    pub const DETACHED: &[u8] = b"N";
    pub const DIR_QUOTAS: &[u8] = b"QD";
    pub const USER_QUOTAS: &[u8] = b"QU";
    pub const GROUP_QUOTAS: &[u8] = b"QG";
    pub const ACLS: &[u8] = b"R";
}

const COUNTERS: [Counter; 13] = [
    Counter::UsedSpace,
    Counter::TotalInodes,
    Counter::NextInode,
    Counter::NextChunk,
    Counter::NextSession,
    Counter::NextTrash,
    Counter::AclMaxId,
    Counter::LastCleanupSessions,
    Counter::LastCleanupFiles,
    Counter::NextCleanupSlices,
    Counter::LastCleanupTrash,
    Counter::LastCleanupChangelog,
    Counter::UnfinishedLoad,
];

fn counter_named(name: &[u8]) -> Option<Counter> {
    COUNTERS.into_iter().find(|counter| counter.name().as_bytes() == name)
}

fn tagged(tag: &[u8], rest: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut key = Vec::with_capacity(CAPACITY);
    key.put_slice(tag);
    rest(&mut key);
    key
}

fn of_node(ino: Ino, kind: u8, rest: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    tagged(b"A", |key| {
        key.put_u64_le(ino.0);
        key.put_u8(kind);
        rest(key);
    })
}

fn exactly(
    mut raw: &[u8],
    len: usize,
    make: impl FnOnce(&mut &[u8]) -> StoreKey,
) -> Option<StoreKey> {
    (raw.len() == len).then(|| make(&mut raw))
}

fn ino(raw: &mut &[u8]) -> Ino {
    Ino(raw.get_u64_le())
}

fn decode_node(mut raw: &[u8]) -> Option<StoreKey> {
    if raw.len() < 9 {
        return None;
    }
    let node = ino(&mut raw);
    let kind = raw.get_u8();
    match kind {
        b'I' => exactly(raw, 0, |_| StoreKey::Attr(node)),
        b'D' => Some(StoreKey::Entry(node, Name::unchecked(raw.to_vec()))),
        b'P' => exactly(raw, 8, |r| StoreKey::Parent { ino: node, parent: ino(r) }),
        b'C' => exactly(raw, 4, |r| StoreKey::Chunk(node, r.get_u32())),
        b'S' => exactly(raw, 0, |_| StoreKey::Symlink(node)),
        b'X' => Some(StoreKey::Xattr(node, Name::unchecked(raw.to_vec()))),
        _ => None,
    }
}

fn decode_session(raw: &[u8]) -> Option<StoreKey> {
    let (kind, rest) = raw.split_first()?;
    let sid = |r: &mut &[u8]| Sid(r.get_u64());
    match kind {
        b'E' => exactly(rest, 8, |r| StoreKey::SessionExpire(sid(r))),
        b'I' => exactly(rest, 8, |r| StoreKey::SessionInfo(sid(r))),
        b'H' => exactly(rest, 8, |r| StoreKey::SessionHeartbeat(sid(r))),
        b'S' => exactly(rest, 16, |r| StoreKey::Sustained(sid(r), ino(r))),
        _ => None,
    }
}

fn decode_quota(raw: &[u8]) -> Option<QuotaKey> {
    let (kind, id) = raw.split_first()?;
    let id: [u8; 8] = id.try_into().ok()?;
    match kind {
        b'D' => Some(QuotaKey::Dir(Ino(u64::from_le_bytes(id)))),
        b'U' => u32::try_from(u64::from_be_bytes(id)).ok().map(QuotaKey::User),
        b'G' => u32::try_from(u64::from_be_bytes(id)).ok().map(QuotaKey::Group),
        _ => None,
    }
}

fn decode_log(raw: &[u8]) -> Option<StoreKey> {
    let mut rest = raw.strip_prefix(b"LOG")?;
    let shard = match rest.len() {
        8 => None,
        9 => Some(rest.get_u8()),
        _ => return None,
    };
    Some(StoreKey::Log { shard, version: rest.get_u64() })
}
