//! Atime: updates the access time of a file that was read.

use crate::error::Result;
use crate::meta::engine::{Change, Key};
use crate::meta::record::Attr;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Ino, MetaTxn, Operation, Plan, TxnLock};

pub struct Touch {
    pub ino: Ino,
}

impl Operation for Touch {
    /// The node with its new access time; none if the stored one is recent enough.
    type Output = Option<Attr>;
    const NAME: &'static str = "access";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Option<Attr>>> {
        tx.prefetch(&[Key::Attr(self.ino)]).await?;
        let mut node = tx.node(self.ino).await?;
        if !tx.context().options.atime.is_due(&node, tx.now()) {
            return Ok(Plan::unchanged(None));
        }
        node.atime = tx.now();
        let mut plan = Plan::new();
        // Not `put_attr`: the content is unchanged, so cached views stay valid.
        plan.push(Change::PutAttr(self.ino, node.clone()));
        plan.log(tx, LogOp::Access { ino: self.ino });
        Ok(plan.with_output(Some(node)))
    }
}
