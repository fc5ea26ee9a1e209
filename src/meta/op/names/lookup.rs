//! Lookup and getattr: the node of a name, and the attr of a node.

use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::op::attrs::access;
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino, MetaTxn, Name, Operation, Plan, Timestamp};

/// Looks up a name in a directory.
pub struct Lookup<'a> {
    pub caller: &'a Caller,
    pub dir: Ino,
    pub name: &'a Name,
}

impl Operation for Lookup<'_> {
    type Output = (Ino, Attr);
    const NAME: &'static str = "lookup";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<(Ino, Attr)>> {
        let lookup = Key::Lookup(self.dir, self.name.clone());
        if self.caller.check {
            tx.prefetch(&[lookup, Key::Place(self.dir)]).await?;
            let dir = tx.dir(self.dir).await?;
            access::check(tx, self.caller, &dir, access::EXEC).await?;
        }
        let found = tx.lookup(self.dir, self.name).await?.ok_or(Error::NotFound)?;
        let attr = found.attr.unwrap_or_else(|| {
            // The node is missing; its type is still needed to remove the name.
            Attr::new(found.entry.kind, 0, 0, 0, self.dir, Timestamp::default())
        });
        Ok(Plan::unchanged((found.entry.ino, attr)))
    }
}

/// Reads the attr of a node.
pub struct GetAttr {
    pub ino: Ino,
}

impl Operation for GetAttr {
    type Output = Attr;
    const NAME: &'static str = "getattr";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Attr>> {
        Ok(Plan::unchanged(tx.node(self.ino).await?))
    }
}
