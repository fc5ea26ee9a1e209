//! The values of a JSON dump, with the names and the order of fields of the Go client.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::meta::record::attr::DIR_LENGTH;
use crate::meta::record::{AclEntry, AclRule, Attr, FileKind, Slice};
use crate::meta::{Ino, SliceId, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct DumpedCounters {
    pub used_space: i64,
    pub used_inodes: i64,
    /// The name in dumps.
    #[serde(rename = "nextInodes")]
    pub next_inode: i64,
    pub next_chunk: i64,
    pub next_session: i64,
    pub next_trash: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpedDeletedFile {
    pub inode: u64,
    pub length: u64,
    /// Unix seconds of the removal, despite the name.
    pub expire: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpedSustained {
    pub sid: u64,
    pub inodes: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DumpedQuota {
    pub max_space: i64,
    pub max_inodes: i64,
}

/// Quotas by inode, uid or gid. Go sorts the keys of a map as text.
pub type DumpedQuotas = BTreeMap<String, DumpedQuota>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpedAttr {
    pub inode: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flags: u8,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub mode: u16,
    #[serde(default)]
    pub uid: u32,
    #[serde(default)]
    pub gid: u32,
    #[serde(default)]
    pub atime: i64,
    #[serde(default)]
    pub mtime: i64,
    #[serde(default)]
    pub ctime: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub atimensec: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mtimensec: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ctimensec: u32,
    #[serde(default)]
    pub nlink: u32,
    #[serde(default)]
    pub length: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rdev: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tier: u8,
}

impl DumpedAttr {
    pub fn new(ino: Ino, attr: &Attr) -> Self {
        Self {
            inode: ino.0,
            flags: attr.flags,
            kind: kind_name(attr.kind).to_owned(),
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            atime: attr.atime.sec,
            mtime: attr.mtime.sec,
            ctime: attr.ctime.sec,
            atimensec: attr.atime.nsec,
            mtimensec: attr.mtime.nsec,
            ctimensec: attr.ctime.nsec,
            nlink: attr.nlink,
            length: if attr.is_file() { attr.length } else { 0 },
            rdev: attr.rdev,
            tier: attr.tier,
        }
    }

    /// The trash directory of a volume that never had one.
    pub fn no_trash() -> Self {
        let attr = Attr::new(FileKind::Dir, 0, 0, 0, Ino::ROOT, Timestamp::default());
        Self::new(Ino::TRASH, &attr)
    }

    /// Returns the attr of a node with this parent. Its link count and ACLs are not known here, nor
    /// is the length of a symlink.
    pub fn attr(&self, kind: FileKind, parent: Ino) -> Attr {
        let time = |sec, nsec| Timestamp { sec, nsec };
        Attr {
            flags: self.flags,
            kind,
            mode: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
            atime: time(self.atime, self.atimensec),
            mtime: time(self.mtime, self.mtimensec),
            ctime: time(self.ctime, self.ctimensec),
            nlink: 1,
            length: match kind {
                FileKind::File => self.length,
                FileKind::Dir => DIR_LENGTH,
                _ => 0,
            },
            rdev: self.rdev,
            parent,
            access_acl: 0,
            default_acl: 0,
            tier: self.tier,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpedSlice {
    /// The id, in dumps of old clients.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chunkid: u64,
    #[serde(default)]
    pub id: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pos: u32,
    #[serde(default)]
    pub size: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub off: u32,
    #[serde(default)]
    pub len: u32,
}

impl From<&Slice> for DumpedSlice {
    fn from(slice: &Slice) -> Self {
        Self {
            chunkid: 0,
            id: slice.id.0,
            pos: slice.pos,
            size: slice.size,
            off: slice.off,
            len: slice.len,
        }
    }
}

impl From<&DumpedSlice> for Slice {
    fn from(slice: &DumpedSlice) -> Self {
        let id = SliceId(if slice.id == 0 { slice.chunkid } else { slice.id });
        Self { pos: slice.pos, id, size: slice.size, off: slice.off, len: slice.len }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpedChunk {
    pub index: u32,
    pub slices: Vec<DumpedSlice>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpedXattr {
    pub name: String,
    /// Escaped.
    pub value: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpedAclEntry {
    pub id: u32,
    pub perm: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpedAcl {
    pub owner: u16,
    pub group: u16,
    pub other: u16,
    pub mask: u16,
    /// `null` if there are none.
    pub users: Option<Vec<DumpedAclEntry>>,
    pub groups: Option<Vec<DumpedAclEntry>>,
}

impl From<&AclRule> for DumpedAcl {
    fn from(rule: &AclRule) -> Self {
        let named = |entries: &[AclEntry]| {
            let dumped = |entry: &AclEntry| DumpedAclEntry { id: entry.id, perm: entry.perm };
            (!entries.is_empty()).then(|| entries.iter().map(dumped).collect())
        };
        Self {
            owner: rule.owner,
            group: rule.group,
            other: rule.other,
            mask: rule.mask,
            users: named(&rule.users),
            groups: named(&rule.groups),
        }
    }
}

impl From<DumpedAcl> for AclRule {
    fn from(acl: DumpedAcl) -> Self {
        let named = |entries: Option<Vec<DumpedAclEntry>>| {
            let entry = |entry: DumpedAclEntry| AclEntry { id: entry.id, perm: entry.perm };
            entries.unwrap_or_default().into_iter().map(entry).collect()
        };
        Self {
            owner: acl.owner,
            group: acl.group,
            mask: acl.mask,
            other: acl.other,
            users: named(acl.users),
            groups: named(acl.groups),
        }
    }
}

const KINDS: [(FileKind, &str); 7] = [
    (FileKind::File, "regular"),
    (FileKind::Dir, "directory"),
    (FileKind::Symlink, "symlink"),
    (FileKind::Fifo, "fifo"),
    (FileKind::BlockDevice, "blockdev"),
    (FileKind::CharDevice, "chardev"),
    (FileKind::Socket, "socket"),
];

pub fn kind_name(kind: FileKind) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).map_or("unknown", |(_, name)| name)
}

pub fn kind_named(name: &str) -> Option<FileKind> {
    KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
