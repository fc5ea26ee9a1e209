//! Drop sustained: a removed file is closed, so its data can be deleted.

use crate::error::Result;
use crate::meta::engine::{Change, Key};
use crate::meta::record::changelog::LogOp;
use crate::meta::{Ino, MetaTxn, Operation, Plan, Sid, TxnLock};

pub struct DropSustained {
    pub sid: Sid,
    pub ino: Ino,
}

impl Operation for DropSustained {
    type Output = ();
    const NAME: &'static str = "drop a removed file";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<()>> {
        tx.prefetch(&[Key::Attr(self.ino), Key::Sustained(self.sid, self.ino)]).await?;
        let mut plan = Plan::new();
        if !tx.sustained(self.sid, self.ino).await? {
            return Ok(plan);
        }
        plan.push(Change::RemoveSustained(self.sid, self.ino));
        // A file that has a name again must not be deleted.
        if let Some(node) = tx.attr(self.ino).await?.filter(|node| node.nlink == 0) {
            let (ino, length) = (self.ino, node.length);
            plan.push(Change::PutDeletedFile { ino, length, at: tx.now().sec });
            plan.push(Change::RemoveAttr(ino));
            plan.add_usage(-node.space(), -1);
            plan.add_owner_usage(node.uid, node.gid, -node.space(), -1);
            plan.effects.changed_nodes.push(ino);
            plan.effects.deleted_files.push((ino, length));
        }
        plan.log(tx, LogOp::DeleteSustained { sid: self.sid, ino: self.ino });
        Ok(plan)
    }
}
