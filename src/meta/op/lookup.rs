//! Lookup and getattr: one name, or one node.

use super::access;
use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino, MetaTxn, Name, Operation, Plan, Timestamp};

/// A name in a directory.
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
            access::permits(tx, self.caller, &dir, access::EXEC).await?;
        }
        let found = tx.lookup(self.dir, self.name).await?.ok_or(Error::NotFound)?;
        let attr = found.attr.unwrap_or_else(|| {
            // A node lost to damage: its type still tells what to do with the name.
            Attr::new(found.entry.kind, 0, 0, 0, self.dir, Timestamp::default())
        });
        Ok(Plan::answer((found.entry.ino, attr)))
    }
}

/// A node's attr.
pub struct GetAttr {
    pub ino: Ino,
}

impl Operation for GetAttr {
    type Output = Attr;
    const NAME: &'static str = "getattr";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Attr>> {
        Ok(Plan::answer(tx.node(self.ino).await?))
    }
}
