//! The keyspace: the keys and hash fields under which records are stored.

use crate::meta::record::{Counter, QuotaKey, SliceSize};
use crate::meta::{Ino, LockOwner, Sid, SliceId};

/// Sessions of clients before 1.0. The only key that never has a prefix.
pub(super) const LEGACY_SESSIONS: &str = "sessions";

/// The keys of one volume. The prefix is empty, or `{db}` in a cluster, where the braces put all keys
/// into one slot.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct KeySpace {
    prefix: String,
}

/// The three hashes that hold one kind of quota.
pub(in super::super) struct QuotaHashes {
    pub limits: String,
    pub space: String,
    pub inodes: String,
}

/// The three hashes that hold directory stats.
pub(in super::super) struct DirStatHashes {
    pub length: String,
    pub space: String,
    pub inodes: String,
}

impl KeySpace {
    pub fn new(prefix: String) -> Self {
        Self { prefix }
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn with(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns a key that ends in an inode. Not by `format!`: removing a tree builds these keys by the
    /// million.
    fn numbered(&self, letter: char, ino: Ino) -> String {
        let mut digits = [0; 20];
        let mut first = digits.len();
        let mut left = ino.0;
        loop {
            first -= 1;
            // The remainder is less than ten.
            digits[first] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        let mut name = String::with_capacity(self.prefix.len() + 1 + digits.len() - first);
        name.push_str(&self.prefix);
        name.push(letter);
        name.extend(digits[first..].iter().map(|digit| char::from(*digit)));
        name
    }

    pub fn attr(&self, ino: Ino) -> String {
        self.numbered('i', ino)
    }

    /// Returns the part of [`KeySpace::attr`] before the inode.
    pub fn attr_stem(&self) -> String {
        self.with("i")
    }

    pub fn entries(&self, dir: Ino) -> String {
        self.numbered('d', dir)
    }

    pub fn parents(&self, ino: Ino) -> String {
        self.numbered('p', ino)
    }

    pub fn chunk(&self, ino: Ino, index: u32) -> String {
        format!("{}c{ino}_{index}", self.prefix)
    }

    /// Returns the part of [`KeySpace::chunk`] before the inode.
    pub fn chunks_stem(&self) -> String {
        self.with("c")
    }

    /// Returns the part of [`KeySpace::chunk`] before the index.
    pub fn chunk_stem(&self, ino: Ino) -> String {
        format!("{}c{ino}_", self.prefix)
    }

    pub fn symlink(&self, ino: Ino) -> String {
        self.numbered('s', ino)
    }

    pub fn xattrs(&self, ino: Ino) -> String {
        self.numbered('x', ino)
    }

    pub fn flocks(&self, ino: Ino) -> String {
        format!("{}lockf{ino}", self.prefix)
    }

    pub fn plocks(&self, ino: Ino) -> String {
        format!("{}lockp{ino}", self.prefix)
    }

    /// The set of the locks that a session holds.
    pub fn locked(&self, sid: Sid) -> String {
        format!("{}locked{sid}", self.prefix)
    }

    pub fn sustained(&self, sid: Sid) -> String {
        format!("{}session{sid}", self.prefix)
    }

    pub fn setting(&self) -> String {
        self.with("setting")
    }

    pub fn sessions(&self) -> String {
        self.with("allSessions")
    }

    pub fn session_infos(&self) -> String {
        self.with("sessionInfos")
    }

    pub fn deleted_files(&self) -> String {
        self.with("delfiles")
    }

    pub fn detached(&self) -> String {
        self.with("detachedNodes")
    }

    pub fn delayed(&self) -> String {
        self.with("delSlices")
    }

    pub fn slice_refs(&self) -> String {
        self.with("sliceRef")
    }

    pub fn acl(&self) -> String {
        self.with("acl")
    }

    pub fn change_log(&self) -> String {
        self.with("txnLog")
    }

    pub fn last_log_version(&self) -> String {
        self.with("txnLastLog")
    }

    pub fn dir_stats(&self) -> DirStatHashes {
        DirStatHashes {
            length: self.with("dirDataLength"),
            space: self.with("dirUsedSpace"),
            inodes: self.with("dirUsedInodes"),
        }
    }

    pub fn quotas(&self, key: QuotaKey) -> QuotaHashes {
        let kind = match key {
            QuotaKey::Dir(_) => "dir",
            QuotaKey::User(_) => "user",
            QuotaKey::Group(_) => "group",
        };
        QuotaHashes {
            limits: format!("{}{kind}Quota", self.prefix),
            space: format!("{}{kind}QuotaUsedSpace", self.prefix),
            inodes: format!("{}{kind}QuotaUsedInodes", self.prefix),
        }
    }

    pub fn counter(&self, counter: Counter) -> String {
        self.with(match counter {
            Counter::UsedSpace => "usedSpace",
            Counter::TotalInodes => "totalInodes",
            Counter::NextInode => "nextinode",
            Counter::NextChunk => "nextchunk",
            Counter::NextSession => "nextsession",
            Counter::NextTrash => "nextTrash",
            Counter::AclMaxId => "aclMaxId",
            Counter::LastCleanupSessions => "lastCleanupSessions",
            Counter::LastCleanupFiles => "lastCleanupFiles",
            Counter::NextCleanupSlices => "nextCleanupSlices",
            Counter::LastCleanupTrash => "lastCleanupTrash",
            Counter::LastCleanupChangelog => "lastCleanupChangelog",
            Counter::UnfinishedLoad => "unfinishedLoad",
        })
    }

    /// Returns whether `key` is one of the keys that a JuiceFS volume with this prefix has.
    pub fn owns(&self, key: &[u8]) -> bool {
        const FIXED: &[&str] = &[
            "setting",
            "allSessions",
            "sessionInfos",
            "sessions",
            "delfiles",
            "detachedNodes",
            "delSlices",
            "sliceRef",
            "acl",
            "krbToken",
            "krbTokenMaxId",
            "txnLog",
            "txnLastLog",
            "dirDataLength",
            "dirUsedSpace",
            "dirUsedInodes",
            "dirQuota",
            "dirQuotaUsedSpace",
            "dirQuotaUsedInodes",
            "userQuota",
            "userQuotaUsedSpace",
            "userQuotaUsedInodes",
            "groupQuota",
            "groupQuotaUsedSpace",
            "groupQuotaUsedInodes",
            "usedSpace",
            "totalInodes",
            "nextinode",
            "nextchunk",
            "nextsession",
            "nextTrash",
            "aclMaxId",
            "lastCleanupSessions",
            "lastCleanupFiles",
            "nextCleanupSlices",
            "lastCleanupTrash",
            "lastCleanupChangelog",
            "unfinishedLoad",
        ];
        let Some(name) = key.strip_prefix(self.prefix.as_bytes()) else { return false };
        let Ok(name) = std::str::from_utf8(name) else { return false };
        if FIXED.contains(&name) {
            return true;
        }
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        // Very old clients stored slice references under `k`.
        if let Some(pair) = name.strip_prefix(['c', 'k']) {
            return pair.split_once('_').is_some_and(|(a, b)| digits(a) && digits(b));
        }
        ["i", "d", "p", "s", "x", "lockf", "lockp", "session", "locked"]
            .iter()
            .any(|stem| name.strip_prefix(stem).is_some_and(digits))
    }
}

/// The field of a slice's reference count.
pub(in super::super) fn slice_field(slice: SliceSize) -> String {
    format!("k{}_{}", slice.id, slice.size)
}

pub(in super::super) fn parse_slice_field(field: &[u8]) -> Option<SliceSize> {
    let (id, size) = std::str::from_utf8(field).ok()?.strip_prefix('k')?.split_once('_')?;
    Some(SliceSize { id: SliceId(id.parse().ok()?), size: size.parse().ok()? })
}

/// The field of a delayed slice list.
pub(in super::super) fn delayed_field(id: SliceId, at: i64) -> String {
    format!("{id}_{at}")
}

pub(in super::super) fn parse_delayed_field(field: &[u8]) -> Option<(SliceId, i64)> {
    let (id, at) = std::str::from_utf8(field).ok()?.split_once('_')?;
    Some((SliceId(id.parse().ok()?), at.parse().ok()?))
}

/// The field of one holder of a lock.
pub(in super::super) fn lock_field(sid: Sid, owner: LockOwner) -> String {
    format!("{sid}_{:016X}", owner.0)
}

/// Returns the part of [`lock_field`] before the owner.
pub(in super::super) fn lock_field_stem(sid: Sid) -> String {
    format!("{sid}_")
}

pub(in super::super) fn parse_lock_field(field: &[u8]) -> Option<(Sid, LockOwner)> {
    let (sid, owner) = std::str::from_utf8(field).ok()?.split_once('_')?;
    Some((Sid(sid.parse().ok()?), LockOwner(u64::from_str_radix(owner, 16).ok()?)))
}

/// The field of a quota in its three hashes.
pub(in super::super) fn quota_field(key: QuotaKey) -> String {
    match key {
        QuotaKey::Dir(ino) => ino.to_string(),
        QuotaKey::User(id) | QuotaKey::Group(id) => id.to_string(),
    }
}

/// The member of a deleted file.
pub(in super::super) fn deleted_member(ino: Ino, length: u64) -> String {
    format!("{ino}:{length}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_fields_are_spelled_as_juicefs_spells_them() {
        let plain = KeySpace::default();
        assert_eq!(plain.attr(Ino::TRASH), "i9223372032828243968");
        assert_eq!(plain.attr(Ino(u64::MAX)), format!("i{}", u64::MAX));
        assert_eq!(plain.entries(Ino(0)), "d0");
        assert_eq!(plain.xattrs(Ino(1000)), "x1000");
        assert_eq!(plain.chunk(Ino(3), 0), "c3_0");
        assert_eq!(plain.counter(Counter::NextInode), "nextinode");
        assert_eq!(plain.counter(Counter::NextTrash), "nextTrash");
        let cluster = KeySpace::new("{1}".to_owned());
        assert_eq!(cluster.locked(Sid(7)), "{1}locked7");
        assert_eq!(slice_field(SliceSize { id: SliceId(1), size: 2 }), "k1_2");
        assert_eq!(lock_field(Sid(1), LockOwner(0x2309_0C09_4EC5)), "1_000023090C094EC5");
        assert_eq!(
            parse_lock_field(b"1_23090C094EC5CE57"),
            Some((Sid(1), LockOwner(0x2309_0C09_4EC5_CE57)))
        );
        assert_eq!(parse_delayed_field(b"9_1794789851"), Some((SliceId(9), 1_794_789_851)));
    }

    #[test]
    fn only_keys_of_a_volume_are_owned() {
        let keyspace = KeySpace::default();
        for own in ["setting", "i1", "d1", "c3_0", "lockf3", "locked1", "session1", "x9", "k1_2"] {
            assert!(keyspace.owns(own.as_bytes()), "{own}");
        }
        for foreign in ["image", "i", "d1x", "c3", "cache_1", "session:5", "kitten_1", "{1}i1"] {
            assert!(!keyspace.owns(foreign.as_bytes()), "{foreign}");
        }
        let cluster = KeySpace::new("{1}".to_owned());
        assert!(cluster.owns(b"{1}i1"));
        assert!(!cluster.owns(b"{10}i1"));
        assert!(!cluster.owns(b"i1"));
    }
}
