//! Requests: the options that a caller of an operation chooses.

use super::Timestamp;
use crate::error::{Error, Result};

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSet {
    Now,
    At(Timestamp),
}

/// The attributes that `setattr` changes; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttrSet {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<TimeSet>,
    pub mtime: Option<TimeSet>,
    pub flags: Option<u8>,
    pub tier: Option<u8>,
}

/// What `rename` does if the new name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    Replace,
    NoReplace,
    Exchange,
    /// As `NoReplace`, and the target directory may itself be in the trash.
    Restore,
}

/// Whether `setxattr` requires the attribute to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces it.
    Put = 0,
    /// Fails if it exists.
    Create = 1,
    /// Fails if it does not exist.
    Replace = 2,
}

impl XattrMode {
    /// Converts the flags of setxattr(2).
    pub fn from_flags(flags: u32) -> Result<Self> {
        match flags {
            0 => Ok(Self::Put),
            1 => Ok(Self::Create),
            2 => Ok(Self::Replace),
            _ => Err(Error::Invalid),
        }
    }
}

/// How clones differ from their sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneMode {
    /// Keeps owner, mode and times.
    pub preserve: bool,
    pub umask: u16,
}
