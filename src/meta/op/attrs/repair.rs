//! Repair: writes the attr of a node whose stored one is missing or wrong.

use crate::error::Result;
use crate::meta::record::Attr;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Ino, MetaTxn, Operation, Plan, TxnLock};

pub struct RepairAttr<'a> {
    pub ino: Ino,
    /// The attr that was found wrong; none if it is missing.
    pub wrong: Option<&'a Attr>,
    pub repaired: &'a Attr,
}

impl Operation for RepairAttr<'_> {
    /// False if the attr has changed since it was found wrong: then nothing is written.
    type Output = bool;
    const NAME: &'static str = "repair an attr";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<bool>> {
        if tx.attr(self.ino).await?.as_ref() != self.wrong {
            return Ok(Plan::unchanged(false));
        }
        let mut plan = Plan::new();
        plan.put_attr(self.ino, self.repaired);
        if self.repaired.is_dir() {
            plan.log(tx, LogOp::RepairDir { ino: self.ino });
        }
        Ok(plan.with_output(true))
    }
}
