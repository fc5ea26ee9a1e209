//! Extended attributes: which names are ACLs, and which this mount does not support.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::{Error, Result};
use crate::meta::record::{AclKind, AclRule};
use crate::meta::{Caller, Ino, XattrMode};
use crate::vfs::Vfs;

const CAPABILITY: &[u8] = b"security.capability";
const SELINUX: &[u8] = b"security.selinux";

/// For privileged processes; hidden from others.
const TRUSTED: &[u8] = b"trusted.";
/// The supported namespaces. Names in `system.` are ACLs, which are not stored as attributes.
const NAMESPACES: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];

/// What a name stands for.
enum Meaning {
    Plain,
    Acl(AclKind),
    /// Not supported by this mount.
    Off,
}

impl Vfs {
    /// Whether attributes are supported at all.
    pub fn has_xattrs(&self) -> bool {
        self.options.xattr || self.has_acls()
    }

    /// Whether an attribute certainly does not exist, without reading metadata. The kernel asks for
    /// some before every write.
    pub fn lacks_xattr(&self, ino: Ino, name: &[u8]) -> bool {
        self.virtual_files.attr(ino).is_some() || matches!(self.meaning(name), Meaning::Off)
    }

    pub async fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Bytes> {
        if self.lacks_xattr(ino, name) {
            return Err(Error::NoAttribute);
        }
        match self.meaning(name) {
            Meaning::Acl(kind) => Ok(self.meta.facl(ino, kind).await?.to_xattr()),
            _ => or_foreign(name, self.meta.xattr(ino, name).await),
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
        let Some(kind) = self.changeable(ino, name)? else {
            check_namespace(name)?;
            let set = self.meta.set_xattr(ino, name, value, mode).await;
            let is_repeated = caller.request.as_ref().is_some_and(|it| it.is_repeated());
            if matches!(set, Err(Error::Exists)) && is_repeated {
                // An earlier process may have set it, for the same request.
                return if self.meta.xattr(ino, name).await? == value { Ok(()) } else { set };
            }
            return set;
        };
        let rule = AclRule::from_xattr(value)?;
        self.meta.set_facl(caller, ino, kind, &rule).await?;
        // An access ACL changes the mode, which the kernel caches.
        self.invalidator.invalidate_attr(ino);
        Ok(())
    }

    pub async fn remove_xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        if let Some(kind) = self.changeable(ino, name)? {
            self.meta.set_facl(caller, ino, kind, &AclRule::empty()).await?;
            self.invalidator.invalidate_attr(ino);
            return Ok(());
        }
        let removed = or_foreign(name, self.meta.remove_xattr(ino, name).await);
        let is_repeated = caller.request.as_ref().is_some_and(|it| it.is_repeated());
        match removed {
            // An earlier process may have removed it, for the same request.
            Err(Error::NoAttribute) if is_repeated => Ok(()),
            removed => removed,
        }
    }

    /// Returns every name that the caller may see, each terminated by NUL.
    pub async fn xattr_names(&self, caller: &Caller, ino: Ino) -> Result<Bytes> {
        if self.virtual_files.attr(ino).is_some() {
            return Ok(Bytes::new());
        }
        let mut names = BytesMut::new();
        for name in self.meta.xattrs(ino).await? {
            let is_hidden = !caller.is_root() && name.as_bytes().starts_with(TRUSTED);
            if !is_hidden && !matches!(self.meaning(name.as_bytes()), Meaning::Off) {
                names.put_slice(name.as_bytes());
                names.put_u8(0);
            }
        }
        Ok(names.freeze())
    }

    /// Returns the ACL that a name stands for, if any. Fails if the attribute cannot be changed.
    fn changeable(&self, ino: Ino, name: &[u8]) -> Result<Option<AclKind>> {
        if self.virtual_files.attr(ino).is_some() {
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

/// Checks whether a new attribute may have this name.
fn check_namespace(name: &[u8]) -> Result<()> {
    match NAMESPACES.iter().find(|namespace| name.starts_with(namespace)) {
        Some(namespace) if namespace.len() < name.len() => Ok(()),
        Some(_) => Err(Error::Invalid),
        None => Err(Error::NotSupported),
    }
}

/// Another client may have created an attribute outside the namespaces, which can be read and
/// removed like any other. If there is none, the error is that of an unsupported name.
fn or_foreign<T>(name: &[u8], result: Result<T>) -> Result<T> {
    match result {
        Err(Error::NoAttribute) => check_namespace(name).and(Err(Error::NoAttribute)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_a_namespace() {
        for name in ["user.a", "trusted.a", "security.a", "user.."] {
            assert!(check_namespace(name.as_bytes()).is_ok(), "{name}");
        }
        for name in ["a", "user", "users.a", "system.a", "com.apple.a", ".user.a"] {
            let refused = check_namespace(name.as_bytes());
            assert!(matches!(refused, Err(Error::NotSupported)), "{name}");
        }
        assert!(matches!(check_namespace(b"user."), Err(Error::Invalid)));
    }
}
