//! Extended attributes of a node. The layers above decide what names mean and who may use them.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::meta::engine::{Change, Key};
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{AclKind, Attr};
use crate::meta::{Ino, MetaTxn, Name, Operation, Plan, TxnLock, XattrMode};

pub struct SetXattr<'a> {
    pub ino: Ino,
    pub name: &'a Name,
    pub value: &'a Bytes,
    pub mode: XattrMode,
}

impl Operation for SetXattr<'_> {
    type Output = ();
    const NAME: &'static str = "setxattr";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<()>> {
        tx.prefetch(&[Key::Attr(self.ino), Key::Xattr(self.ino, self.name.clone())]).await?;
        // The guard ensures that a node that is removed concurrently leaves no attribute behind.
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
            plan.log(tx, line);
        }
        Ok(plan)
    }
}

/// Sets an attribute if its value is still the expected one; returns whether it was.
pub struct ReplaceXattr<'a> {
    pub ino: Ino,
    pub name: &'a Name,
    pub expected: Option<&'a Bytes>,
    pub value: &'a Bytes,
}

impl Operation for ReplaceXattr<'_> {
    type Output = bool;
    const NAME: &'static str = "setxattr";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<bool>> {
        tx.prefetch(&[Key::Attr(self.ino), Key::Xattr(self.ino, self.name.clone())]).await?;
        let node = tx.node(self.ino).await?;
        check_frozen(&node)?;
        if tx.xattr(self.ino, self.name).await?.as_ref() != self.expected {
            return Ok(Plan::unchanged(false));
        }
        let mut plan = Plan::new();
        plan.push(Change::PutXattr(self.ino, self.name.clone(), self.value.clone()));
        plan.put_attr(self.ino, &Attr { ctime: tx.now(), ..node });
        let line = LogOp::SetXattr { ino: self.ino, name: self.name, value: self.value, flags: 0 };
        plan.log(tx, line);
        Ok(plan.with_output(true))
    }
}

pub struct RemoveXattr<'a> {
    pub ino: Ino,
    pub name: &'a Name,
}

impl Operation for RemoveXattr<'_> {
    type Output = ();
    const NAME: &'static str = "removexattr";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
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
        plan.log(tx, LogOp::RemoveXattr { ino: self.ino, name: self.name });
        Ok(plan)
    }
}

/// Fails for an immutable or append-only node, whose attributes must not change.
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
        Ok(Plan::unchanged(value.ok_or(Error::NoAttribute)?))
    }
}

/// Lists the names of a node's attributes. ACL rules are not stored as attributes but listed as
/// such.
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
        Ok(Plan::unchanged(names))
    }
}
