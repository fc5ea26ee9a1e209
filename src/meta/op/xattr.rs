//! Extended attributes of a node. What names mean, and who may use them, is decided above.

use bytes::Bytes;

use super::log;
use crate::error::{Error, Result};
use crate::meta::engine::{Change, Key};
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{AclKind, Attr};
use crate::meta::{Ino, Lane, MetaTxn, Name, Operation, Plan};

/// Whether an attribute must be there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    Put = 0,
    /// It must not be.
    Create = 1,
    /// It must be.
    Replace = 2,
}

impl XattrMode {
    /// From the flags of setxattr(2).
    pub fn from_flags(flags: u32) -> Result<Self> {
        match flags {
            0 => Ok(Self::Put),
            1 => Ok(Self::Create),
            2 => Ok(Self::Replace),
            _ => Err(Error::Invalid),
        }
    }
}

pub struct SetXattr<'a> {
    pub ino: Ino,
    pub name: &'a Name,
    pub value: &'a Bytes,
    pub mode: XattrMode,
}

impl Operation for SetXattr<'_> {
    type Output = ();
    const NAME: &'static str = "setxattr";

    fn lane(&self) -> Lane {
        Lane::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<()>> {
        tx.prefetch(&[Key::Attr(self.ino), Key::Xattr(self.ino, self.name.clone())]).await?;
        // The guard keeps a node that is just being removed from leaving an attribute behind.
        let node = tx.node(self.ino).await?;
        check_frozen(&node)?;
        let old = tx.xattr(self.ino, self.name).await?;
        match self.mode {
            XattrMode::Create if old.is_some() => return Err(Error::Exists),
            XattrMode::Replace if old.is_none() => return Err(Error::NoAttribute),
            _ => {}
        }

        let mut plan = Plan::new();
        if old.as_ref() != Some(self.value) {
            plan.push(Change::PutXattr(self.ino, self.name.clone(), self.value.clone()));
            plan.put_attr(self.ino, &Attr { ctime: tx.now(), ..node });
            let flags = self.mode as u32;
            let line = LogOp::SetXattr { ino: self.ino, name: self.name, value: self.value, flags };
            log::log(tx, &mut plan, line);
        }
        Ok(plan)
    }
}

pub struct RemoveXattr<'a> {
    pub ino: Ino,
    pub name: &'a Name,
}

impl Operation for RemoveXattr<'_> {
    type Output = ();
    const NAME: &'static str = "removexattr";

    fn lane(&self) -> Lane {
        Lane::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<()>> {
        tx.prefetch(&[Key::Attr(self.ino), Key::Xattr(self.ino, self.name.clone())]).await?;
        let node = tx.attr(self.ino).await?;
        node.as_ref().map_or(Ok(()), check_frozen)?;
        if tx.xattr(self.ino, self.name).await?.is_none() {
            return Err(Error::NoAttribute);
        }
        let mut plan = Plan::new();
        plan.push(Change::RemoveXattr(self.ino, self.name.clone()));
        if let Some(node) = node {
            plan.put_attr(self.ino, &Attr { ctime: tx.now(), ..node });
        }
        log::log(tx, &mut plan, LogOp::RemoveXattr { ino: self.ino, name: self.name });
        Ok(plan)
    }
}

/// Attributes of an immutable or append-only node stay as they are.
fn check_frozen(node: &Attr) -> Result<()> {
    let frozen = node.has_flag(flag::IMMUTABLE | flag::APPEND);
    if frozen { Err(Error::NotPermitted) } else { Ok(()) }
}

pub struct Xattr<'a> {
    pub ino: Ino,
    pub name: &'a Name,
}

impl Operation for Xattr<'_> {
    type Output = Bytes;
    const NAME: &'static str = "getxattr";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Bytes>> {
        let value = tx.xattr(self.ino, self.name).await?;
        Ok(Plan::answer(value.ok_or(Error::NoAttribute)?))
    }
}

/// The names of a node's attributes, and of the ACL rules it has: those are not stored as
/// attributes, but shown as such.
pub struct ListXattrs {
    pub ino: Ino,
}

impl Operation for ListXattrs {
    type Output = Vec<Name>;
    const NAME: &'static str = "listxattr";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Vec<Name>>> {
        tx.prefetch(&[Key::Attr(self.ino), Key::Xattrs(self.ino)]).await?;
        let node = tx.node(self.ino).await?;
        let stored = tx.xattrs(self.ino).await?;
        let mut names: Vec<Name> = stored.into_iter().map(|(name, _)| name).collect();
        for (id, kind) in [(node.access_acl, AclKind::Access), (node.default_acl, AclKind::Default)]
        {
            if id != 0 {
                names.push(Name::unchecked(kind.xattr_name()));
            }
        }
        Ok(Plan::answer(names))
    }
}
