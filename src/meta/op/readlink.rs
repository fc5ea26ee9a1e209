//! Readlink: where a symlink points.

use bytes::Bytes;

use super::log;
use crate::error::{Error, Result};
use crate::meta::client::AtimeMode;
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
        let options = &tx.facts().options;
        if options.read_only || !options.atime.is_due(&node, tx.now()) {
            return Ok(Plan::answer(target));
        }
        node.atime = tx.now();
        let mut plan = Plan::new();
        plan.put_attr(self.ino, &node);
        log::log(tx, &mut plan, LogOp::Access { ino: self.ino });
        Ok(plan.with(target))
    }
}

impl AtimeMode {
    /// Whether an access now should be recorded.
    pub fn is_due(self, node: &crate::meta::record::Attr, now: crate::meta::Timestamp) -> bool {
        const DAY: i128 = 24 * 3600 * 1_000_000_000;
        const SECOND: i128 = 1_000_000_000;
        let age = now.nanos_since(node.atime);
        let is_old = node.mtime > node.atime || node.ctime > node.atime || age > DAY;
        match self {
            Self::Never => false,
            Self::Relative => is_old,
            Self::Strict => is_old || age > SECOND,
        }
    }
}
