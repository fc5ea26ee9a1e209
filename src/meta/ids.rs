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
///
/// Whoever brings a name in from outside, be it the kernel, a request, a tool or a store, makes it
/// with [`Name::new`]; what stands for a directory itself or for the one above never becomes a name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Bytes);

impl Name {
    pub const MAX: usize = 255;

    /// A name that may be one of an entry.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self> {
        let bytes = bytes.as_ref();
        Self::check(bytes)?;
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }

    /// As [`Name::new`], for bytes that need not be copied.
    pub fn from_bytes(bytes: Bytes) -> Result<Self> {
        Self::check(&bytes)?;
        Ok(Self(bytes))
    }

    /// Bytes that go by a rule of their own: names of extended attributes, names that are composed
    /// of checked ones, and stored names that are none and are to be removed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_refused() {
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
