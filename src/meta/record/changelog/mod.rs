//! The change log: one line of text per committed change, for clients that follow a volume.
//!
//! `{seconds}.{nanoseconds}|OP(arguments)[:result]|({session},{count})`

use std::fmt;

use super::{AclKind, AclRule, Attr, Counter, DirStat, FileKind, LockKind, QuotaKey, SliceSize};
use crate::meta::{Ino, LockOwner, Name, Sid, SliceId, Timestamp};

/// A line of the log without its session and number.
#[derive(Debug, Clone)]
pub struct LogLine<'a> {
    pub at: Timestamp,
    pub op: LogOp<'a>,
}

impl LogLine<'_> {
    /// Formats the line; `count` numbers the lines of a session.
    pub fn render(&self, sid: Sid, count: u64) -> String {
        format!("{}.{:09}|{}|({sid},{count})", self.at.sec, self.at.nsec, self.op)
    }
}

/// An operation, as the log describes it.
///
/// `trash` is the hour directory that a node was moved to, or [`Ino::NONE`]; `touches_parent` is
/// whether the parent's attr was written.
#[derive(Debug, Clone)]
#[rustfmt::skip]
pub enum LogOp<'a> {
    // Nodes and entries.
    Create {
        parent: Ino, name: &'a Name, uid: u32, gid: u32, kind: FileKind, mode: u16, umask: u16,
        target: &'a [u8], touches_parent: bool, ino: Ino,
    },
    Unlink {
        parent: Ino, name: &'a Name, trash: Ino, opened: bool, touches_parent: bool, ino: Ino,
    },
    UnlinkBatch { parent: Ino, removed: &'a [(Name, Ino)], trash: Ino, touches_parent: bool },
    Rmdir { parent: Ino, name: &'a Name, trash: Ino, ino: Ino },
    Move {
        from: (Ino, &'a Name), to: (Ino, &'a Name), flags: u32, replaced: Ino, trash: Ino, ino: Ino,
    },
    Link { ino: Ino, parent: Ino, name: &'a Name, touches_parent: bool, nlink: u32 },
    Clone {
        source: Ino, parent: Ino, name: &'a Name, ino: Ino, mode: u8, umask: u16, is_top: bool,
    },
    Attach { ino: Ino, parent: Ino, name: &'a Name },
    /// A detached node was removed.
    Cleanup { ino: Ino },
    RepairDir { ino: Ino },

    // Attributes.
    /// `attr` is the result of the change.
    SetAttr { ino: Ino, set: u16, clear_mode: u8, attr: &'a Attr },
    Access { ino: Ino },
    SetXattr { ino: Ino, name: &'a Name, value: &'a [u8], flags: u32 },
    RemoveXattr { ino: Ino, name: &'a Name },
    SetFacl { ino: Ino, kind: AclKind, rule: &'a AclRule },

    // Content.
    Truncate { ino: Ino, old: u64, new: u64, flags: u8 },
    Fallocate { ino: Ino, off: u64, size: u64, mode: u8 },
    /// `records` is the number of records in the chunk afterwards; 0 on Redis, where it is not
    /// known before the commit.
    Write {
        ino: Ino, index: u32, off: u32, id: SliceId, len: u32, mtime: Timestamp, records: usize,
    },
    CopyFileRange { from: (Ino, u64), to: (Ino, u64), size: u64, length: u64 },
    CompactChunk {
        ino: Ino, index: u32, skipped: usize, replaced: usize, pos: u32, slice: SliceSize,
    },
    DeleteChunk { ino: Ino, index: u32 },
    DeleteSlice(SliceSize),
    CleanupDelayedSlices { id: SliceId, at: i64 },
    CleanupTrashSlices { id: SliceId, at: i64 },

    // Locks; without a kind, unlocks.
    Flock { ino: Ino, owner: LockOwner, kind: Option<LockKind> },
    SetLk { ino: Ino, owner: LockOwner, kind: Option<LockKind>, start: u64, end: u64, pid: u32 },

    // Sessions.
    NewSession { sid: Sid, expire: i64, info: &'a [u8] },
    CleanSession { sid: Sid },
    DeleteSustained { sid: Sid, ino: Ino },

    // Usage and counters.
    DirStat { ino: Ino, stat: DirStat },
    SetQuota { key: QuotaKey, max_space: i64, max_inodes: i64 },
    DeleteQuota { key: QuotaKey },
    AddCounter { counter: Counter, by: i64 },
    SetCounter { counter: Counter, value: i64 },
    EnableDirStats,
    EnableUserGroupQuota,
}

/// The operating system whose rules new nodes follow where systems differ.
const BEHAVIOR: &str = "linux";

#[rustfmt::skip]
impl fmt::Display for LogOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create {
                parent, name, uid, gid, kind, mode, umask, target, touches_parent, ino,
            } => {
                let (name, kind, target) = (text(name), *kind as u8, Escaped(target));
                write!(f, "CREATE({parent},{name},{uid},{gid},{kind},{mode},{umask},{target},\
                           {BEHAVIOR},{touches_parent}):{ino}")
            }
            Self::Unlink { parent, name, trash, opened, touches_parent, ino } =>
                write!(f, "UNLINK({parent},{},{trash},{opened},{touches_parent}):{ino}",
                    text(name)),
            Self::UnlinkBatch { parent, removed, trash, touches_parent } => {
                let names = joined(removed.iter().map(|(name, _)| text(name)));
                let inodes = joined(removed.iter().map(|(_, ino)| ino));
                write!(f, "UNLINKBATCH({parent},{names},{trash},{touches_parent}):{inodes}")
            }
            Self::Rmdir { parent, name, trash, ino } =>
                write!(f, "RMDIR({parent},{},{trash}):{ino}", text(name)),
            Self::Move { from, to, flags, replaced, trash, ino } =>
                write!(f, "MOVE({},{},{},{},{flags},{replaced},{trash}):{ino}",
                    from.0, text(from.1), to.0, text(to.1)),
            Self::Link { ino, parent, name, touches_parent, nlink } =>
                write!(f, "LINK({ino},{parent},{},{touches_parent}):{nlink}", text(name)),
            Self::Clone { source, parent, name, ino, mode, umask, is_top } =>
                write!(f, "CLONE({source},{parent},{},{ino},{mode},{umask},{is_top}):{ino}",
                    text(name)),
            Self::Attach { ino, parent, name } =>
                write!(f, "ATTACH({ino},{parent},{})", text(name)),
            Self::Cleanup { ino } => write!(f, "CLEANUP({ino})"),
            Self::RepairDir { ino } => write!(f, "REPAIRDIR({ino})"),

            Self::SetAttr { ino, set, clear_mode, attr } => {
                let Attr { uid, gid, mode, flags, atime, mtime, ctime, access_acl, .. } = attr;
                write!(f, "SETATTR({ino},{set},{clear_mode},{uid},{gid},{mode},{flags},\
                           {},{},{},{},{},{},{access_acl})",
                    atime.sec, mtime.sec, atime.nsec, mtime.nsec, ctime.sec, ctime.nsec)
            }
            Self::Access { ino } => write!(f, "ACCESS({ino})"),
            Self::SetXattr { ino, name, value, flags } =>
                write!(f, "SETXATTR({ino},{},{},{flags})", text(name), Escaped(value)),
            Self::RemoveXattr { ino, name } => write!(f, "REMOVEXATTR({ino},{})", text(name)),
            Self::SetFacl { ino, kind, rule } =>
                write!(f, "SETFACL({ino},{},{})", *kind as u8, Escaped(&rule.encode())),

            Self::Truncate { ino, old, new, flags } =>
                write!(f, "TRUNCATE({ino},{old},{new},{flags})"),
            Self::Fallocate { ino, off, size, mode } =>
                write!(f, "FALLOCATE({ino},{off},{size},{mode})"),
            Self::Write { ino, index, off, id, len, mtime, records } =>
                write!(f, "WRITE({ino},{index},{off},{id},{len},{},{}):{records}",
                    mtime.sec, mtime.nsec),
            Self::CopyFileRange { from, to, size, length } =>
                write!(f, "COPYFILERANGE({},{},{},{},{size}):{length}", from.0, from.1, to.0, to.1),
            Self::CompactChunk {
                ino, index, skipped, replaced, pos, slice: SliceSize { id, size },
            } =>
                write!(f, "COMPACTCHUNK({ino},{index},{skipped},{replaced},{pos},{id},{size})"),
            Self::DeleteChunk { ino, index } => write!(f, "DELCHUNK({ino},{index})"),
            Self::DeleteSlice(SliceSize { id, size }) => write!(f, "DELETESLICE({id},{size})"),
            Self::CleanupDelayedSlices { id, at } => write!(f, "CLEANUP_DELAYED_SLICES({id},{at})"),
            Self::CleanupTrashSlices { id, at } => write!(f, "CLEANUP_TRASH_SLICES({id},{at})"),

            Self::Flock { ino, owner, kind } =>
                write!(f, "FLOCK({ino},{},{})", owner.0, letter(*kind)),
            Self::SetLk { ino, owner, kind, start, end, pid } =>
                write!(f, "SETLK({ino},{},{},{start},{end},{pid})", owner.0, letter(*kind)),

            Self::NewSession { sid, expire, info } =>
                write!(f, "NEWSESSION({sid},{expire},{})", Escaped(info)),
            Self::CleanSession { sid } => write!(f, "CLEANSESSION({sid})"),
            Self::DeleteSustained { sid, ino } => write!(f, "DELSUSTAINED({sid},{ino})"),

            Self::DirStat { ino, stat: DirStat { length, space, inodes } } =>
                write!(f, "DIRSTAT({ino},{length},{space},{inodes})"),
            Self::SetQuota { key, max_space, max_inodes } => {
                let (kind, id) = key.number();
                write!(f, "SETQUOTA({kind},{id},{max_space},{max_inodes})")
            }
            Self::DeleteQuota { key } => {
                let (kind, id) = key.number();
                write!(f, "DELQUOTA({kind},{id})")
            }
            Self::AddCounter { counter, by } => write!(f, "INCR_COUNTER({},{by})", counter.name()),
            Self::SetCounter { counter, value } => write!(f, "SET({},{value})", counter.name()),
            Self::EnableDirStats => f.write_str("INIT_ENABLE_DIRSTATS()"),
            Self::EnableUserGroupQuota => f.write_str("INIT_ENABLE_USERGROUPQUOTA()"),
        }
    }
}

/// Bytes as one argument of printable text; all others are written as `%XX`.
struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            let is_plain = matches!(byte, b' '..=b'~') && !b",%()\"\\".contains(byte);
            if is_plain {
                fmt::Write::write_char(f, char::from(*byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

fn text(name: &Name) -> Escaped<'_> {
    Escaped(name.as_bytes())
}

fn letter(kind: Option<LockKind>) -> char {
    kind.map_or('U', |kind| char::from(kind.letter()))
}

fn joined(items: impl Iterator<Item = impl fmt::Display>) -> String {
    let mut out = String::new();
    for (i, item) in items.enumerate() {
        let comma = if i > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = fmt::Write::write_fmt(&mut out, format_args!("{comma}{item}"));
    }
    out
}

#[cfg(test)]
mod tests;
