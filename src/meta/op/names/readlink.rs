//! Readlink: the target of a symlink.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::record::FileKind;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Ino, MetaTxn, Operation, Plan};

pub struct Readlink {
    pub ino: Ino,
}

impl Operation for Readlink {
    type Output = Bytes;
    const NAME: &'static str = "readlink";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Bytes>> {
        tx.prefetch(&[Key::Attr(self.ino), Key::Symlink(self.ino)]).await?;
        let mut node = tx.node(self.ino).await?;
        if node.kind != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        let target = tx
            .symlink(self.ino)
            .await?
            .filter(|target| !target.is_empty())
            .ok_or_else(|| Error::damaged(format!("symlink {}", self.ino), "no target"))?;
        let options = &tx.context().options;
        if options.read_only || !options.atime.is_due(&node, tx.now()) {
            return Ok(Plan::unchanged(target));
        }
        node.atime = tx.now();
        let mut plan = Plan::new();
        plan.put_attr(self.ino, &node);
        plan.log(tx, LogOp::Access { ino: self.ino });
        Ok(plan.with_output(target))
    }
}
