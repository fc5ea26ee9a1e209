//! Identities: inode, slice, session, lock owner, entry name.

use std::fmt;

use bytes::Bytes;

use crate::error::{Error, Result};

/// An inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// Stands for "see the parent records" in an attr, and for the true root in requests.
    pub const NONE: Ino = Ino(0);
    pub const ROOT: Ino = Ino(1);
    /// The trash directory; it has an attr but no entry. Every hour directory lies above it.
    pub const TRASH: Ino = Ino(0x7FFF_FFFF_1000_0000);

    /// The trash directory itself, or an hour directory in it.
    pub fn is_trash(self) -> bool {
        self >= Self::TRASH
    }

    /// An hour directory of the trash.
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

/// Who holds a lock, within one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner(pub u64);

/// The name of an entry: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Bytes);

impl Name {
    pub const MAX: usize = 255;

    /// A name as a caller gives it.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self> {
        let bytes = bytes.as_ref();
        if bytes.len() > Self::MAX {
            return Err(Error::NameTooLong);
        }
        if bytes.is_empty() || bytes.contains(&b'/') || bytes.contains(&0) {
            return Err(Error::Invalid);
        }
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }

    /// A name as it stands in the store: whatever is there must be listed and removable.
    pub fn stored(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn is_dot(&self) -> bool {
        self.0 == "."
    }

    pub fn is_dot_dot(&self) -> bool {
        self.0 == ".."
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
