//! Extended attributes: which names mean something else, and which this mount does not have.

use bytes::{BufMut, Bytes, BytesMut};

use super::base::Vfs;
use crate::error::{Error, Result};
use crate::meta::op::xattr::XattrMode;
use crate::meta::record::{AclKind, AclRule};
use crate::meta::{Caller, Ino};

const CAPABILITY: &[u8] = b"security.capability";
const SELINUX: &[u8] = b"security.selinux";

/// What a name stands for here.
enum Meaning {
    Plain,
    Acl(AclKind),
    /// This mount does not have it.
    Off,
}

impl Vfs {
    /// Whether attributes can be asked for at all.
    pub fn has_xattrs(&self) -> bool {
        self.options.xattr || self.has_acls()
    }

    /// Whether an attribute is surely not there, without asking. The kernel asks for some before
    /// every write.
    pub fn lacks_xattr(&self, ino: Ino, name: &[u8]) -> bool {
        self.internal.attr(ino).is_some() || matches!(self.meaning(name), Meaning::Off)
    }

    pub async fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Bytes> {
        if self.lacks_xattr(ino, name) {
            return Err(Error::NoAttribute);
        }
        match self.meaning(name) {
            Meaning::Acl(kind) => Ok(self.meta.facl(ino, kind).await?.to_xattr()),
            _ => self.meta.xattr(ino, name).await,
        }
    }

    pub async fn set_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<()> {
        let mode = XattrMode::from_flags(flags)?;
        match self.changeable(ino, name)? {
            Some(kind) => {
                let rule = AclRule::from_xattr(value)?;
                self.meta.set_facl(caller, ino, kind, &rule).await?;
                // The kernel keeps the mode, which an access rule changes.
                self.notices.attr_changed(ino);
                Ok(())
            }
            None => self.meta.set_xattr(ino, name, value, mode).await,
        }
    }

    pub async fn remove_xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        match self.changeable(ino, name)? {
            Some(kind) => {
                self.meta.set_facl(caller, ino, kind, &AclRule::empty()).await?;
                self.notices.attr_changed(ino);
                Ok(())
            }
            None => self.meta.remove_xattr(ino, name).await,
        }
    }

    /// Every name, each ended by NUL.
    pub async fn xattr_names(&self, ino: Ino) -> Result<Bytes> {
        if self.internal.attr(ino).is_some() {
            return Ok(Bytes::new());
        }
        let mut names = BytesMut::new();
        for name in self.meta.xattrs(ino).await? {
            if !matches!(self.meaning(name.as_bytes()), Meaning::Off) {
                names.put_slice(name.as_bytes());
                names.put_u8(0);
            }
        }
        Ok(names.freeze())
    }

    /// The rule that an attribute stands for, if it can be changed at all.
    fn changeable(&self, ino: Ino, name: &[u8]) -> Result<Option<AclKind>> {
        if self.internal.attr(ino).is_some() {
            return Err(Error::NotPermitted);
        }
        match self.meaning(name) {
            Meaning::Plain => Ok(None),
            Meaning::Acl(kind) => Ok(Some(kind)),
            Meaning::Off => Err(Error::NotSupported),
        }
    }

    fn meaning(&self, name: &[u8]) -> Meaning {
        match AclKind::from_xattr_name(name) {
            Some(kind) if self.has_acls() => return Meaning::Acl(kind),
            Some(_) => return Meaning::Off,
            None => {}
        }
        let on = match name {
            CAPABILITY => self.options.capabilities,
            SELINUX => self.options.selinux,
            _ => self.options.xattr || self.has_acls(),
        };
        if on { Meaning::Plain } else { Meaning::Off }
    }
}
