//! Identities: inode, session, lock owner, entry name, caller.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::ledger::{Intent, RequestRecord};

/// An inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// In an attr: see the parent records. In requests: the root of the volume.
    pub const NONE: Ino = Ino(0);
    pub const ROOT: Ino = Ino(1);
    /// The trash directory; it has an attr but no entry. The inode numbers of hour directories are
    /// above it.
    pub const TRASH: Ino = Ino(0x7FFF_FFFF_1000_0000);

    /// Whether this is the trash directory or an hour directory in it.
    pub fn is_trash(self) -> bool {
        self >= Self::TRASH
    }

    /// Whether this is an hour directory of the trash.
    pub fn is_sub_trash(self) -> bool {
        self > Self::TRASH
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A session id; 0 for a client without a session record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid(pub u64);

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The owner of a lock, within one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner(pub u64);

/// The name of an entry: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`.
///
/// Names from outside, such as the kernel, a request, a tool or a store, must be created with
/// [`Name::new`], so that `.` and `..` never become entry names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Bytes);

impl Name {
    pub const MAX: usize = 255;

    /// Checks the bytes and copies them.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self> {
        let bytes = bytes.as_ref();
        Self::check(bytes)?;
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }

    /// As [`Name::new`], without a copy.
    pub fn from_bytes(bytes: Bytes) -> Result<Self> {
        Self::check(&bytes)?;
        Ok(Self(bytes))
    }

    /// Creates a name without checks: for names of extended attributes, names composed of checked
    /// ones, and invalid stored names that are to be removed.
    pub(crate) fn unchecked(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    fn check(bytes: &[u8]) -> Result<()> {
        if bytes.len() > Self::MAX {
            return Err(Error::NameTooLong);
        }
        let is_dots = bytes == b"." || bytes == b"..";
        if bytes.is_empty() || is_dots || bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(Error::Invalid);
        }
        Ok(())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// An entry: a name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRef<'a> {
    pub dir: Ino,
    pub name: &'a Name,
}

impl<'a> EntryRef<'a> {
    pub fn new(dir: Ino, name: &'a Name) -> Self {
        Self { dir, name }
    }
}

/// The identity that a request runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups; only filled when this client checks permissions.
    pub gids: Vec<u32>,
    pub pid: u32,
    /// Whether this client checks permissions; otherwise the kernel has done so.
    pub check: bool,
    /// The record of the request, if it changes something and must survive this process.
    pub request: Option<Arc<RequestRecord>>,
}

impl Caller {
    /// Root; nothing is checked.
    pub fn root() -> Self {
        Self::user(0, 0)
    }

    pub fn user(uid: u32, gid: u32) -> Self {
        let (gids, pid) = (Vec::new(), std::process::id());
        Self { uid, gid, gids, pid, check: false, request: None }
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.gids.contains(&gid)
    }

    /// Records what the request is about to commit.
    pub fn intend(&self, intent: Intent) {
        if let Some(request) = &self.request {
            request.intend(intent);
        }
    }

    /// Returns what an earlier process was about to commit for the same request, and may have.
    pub fn earlier_intent(&self) -> Option<Intent> {
        self.request.as_ref()?.earlier()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_refused() {
        for bytes in [&b""[..], b".", b"..", b"/", b"a/b", b"../x", b"a\0b", b"\0"] {
            assert!(matches!(Name::new(bytes), Err(Error::Invalid)), "{bytes:?}");
            assert!(Name::from_bytes(Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
        assert!(matches!(Name::new([b'x'; 256]), Err(Error::NameTooLong)));
        for bytes in [&b"..."[..], b".a", b"a.", b" ", b"\xff\n", &[b'x'; 255]] {
            assert_eq!(Name::new(bytes).unwrap().as_bytes(), bytes);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_name_is_never_a_path(bytes: Vec<u8>) {
            if let Ok(name) = Name::new(&bytes) {
                assert!((1..=Name::MAX).contains(&name.as_bytes().len()));
                assert!(!name.as_bytes().contains(&b'/') && !name.as_bytes().contains(&0));
                assert!(name.as_bytes() != b"." && name.as_bytes() != b"..");
            }
        }
    }
}
