//! Extended attributes.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::op::attrs::xattr::{ListXattrs, RemoveXattr, ReplaceXattr, SetXattr, Xattr};
use crate::meta::{Ino, Name, XattrMode};

/// The longest name, in bytes.
const MAX_NAME: usize = 255;
/// The longest value, in bytes.
const MAX_VALUE: usize = 65536;

impl Meta {
    pub async fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let name = checked_name(name)?;
        if ino.is_trash() {
            return Err(Error::NotPermitted);
        }
        if value.len() > MAX_VALUE {
            return Err(Error::OutOfRange);
        }
        if value.is_empty() && self.engine.properties().refuses_empty_xattr {
            return Err(Error::Invalid);
        }
        let value = Bytes::copy_from_slice(value);
        self.run(&SetXattr { ino, name: &name, value: &value, mode }).await
    }

    /// Sets a value if the current one is `expected`, where `None` is no value. Returns whether it
    /// was: of several clients that expect the same, one succeeds.
    pub async fn replace_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        expected: Option<&Bytes>,
        value: &Bytes,
    ) -> Result<bool> {
        let name = checked_name(name)?;
        self.run(&ReplaceXattr { ino, name: &name, expected, value }).await
    }

    /// Reads a value; fails with `NoAttribute` if there is none.
    pub async fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Bytes> {
        self.run(&Xattr { ino, name: &checked_name(name)? }).await
    }

    /// All names, including those of ACL rules.
    pub async fn xattrs(&self, ino: Ino) -> Result<Vec<Name>> {
        self.run(&ListXattrs { ino }).await
    }

    pub async fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let name = checked_name(name)?;
        if ino.is_trash() {
            return Err(Error::NotPermitted);
        }
        self.run(&RemoveXattr { ino, name: &name }).await
    }
}

/// Checks a name. Unlike the name of an entry, it may contain a slash.
fn checked_name(name: &[u8]) -> Result<Name> {
    if name.is_empty() || name.contains(&0) {
        return Err(Error::Invalid);
    }
    if name.len() > MAX_NAME {
        return Err(Error::OutOfRange);
    }
    Ok(Name::unchecked(Bytes::copy_from_slice(name)))
}
