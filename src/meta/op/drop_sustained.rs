//! Drop sustained: a removed file is closed, and its data can go.

use super::log;
use crate::error::Result;
use crate::meta::engine::{Change, Key};
use crate::meta::record::changelog::LogOp;
use crate::meta::{Ino, Lane, MetaTxn, Operation, Plan, Sid};

pub struct DropSustained {
    pub sid: Sid,
    pub ino: Ino,
}

impl Operation for DropSustained {
    type Output = ();
    const NAME: &'static str = "drop a removed file";

    fn lane(&self) -> Lane {
        Lane::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<()>> {
        tx.prefetch(&[Key::Attr(self.ino), Key::Sustained(self.sid, self.ino)]).await?;
        let mut plan = Plan::new();
        if !tx.sustained(self.sid, self.ino).await? {
            return Ok(plan);
        }
        plan.push(Change::RemoveSustained(self.sid, self.ino));
        // A node with a name is nobody's to drop.
        if let Some(node) = tx.attr(self.ino).await?.filter(|node| node.nlink == 0) {
            let (ino, length) = (self.ino, node.length);
            plan.push(Change::PutDeletedFile { ino, length, at: tx.now().sec });
            plan.push(Change::RemoveAttr(ino));
            plan.use_space(-node.space(), -1);
            plan.use_owner(node.uid, node.gid, -node.space(), -1);
            plan.effects.stale.push(ino);
            plan.effects.deleted.push((ino, length));
        }
        log::log(tx, &mut plan, LogOp::DeleteSustained { sid: self.sid, ino: self.ino });
        Ok(plan)
    }
}
