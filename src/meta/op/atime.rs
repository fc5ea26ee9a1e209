//! Atime: a file was read.

use super::log;
use crate::error::Result;
use crate::meta::engine::{Change, Key};
use crate::meta::record::Attr;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Ino, Lane, MetaTxn, Operation, Plan};

pub struct Touch {
    pub ino: Ino,
}

impl Operation for Touch {
    /// The node with its new access time; none if that was recent enough.
    type Output = Option<Attr>;
    const NAME: &'static str = "access";

    fn lane(&self) -> Lane {
        Lane::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Option<Attr>>> {
        tx.prefetch(&[Key::Attr(self.ino)]).await?;
        let mut node = tx.node(self.ino).await?;
        if !tx.facts().options.atime.is_due(&node, tx.now()) {
            return Ok(Plan::answer(None));
        }
        node.atime = tx.now();
        let mut plan = Plan::new();
        // Not `put_attr`: the content is what it was.
        plan.push(Change::PutAttr(self.ino, node.clone()));
        log::log(tx, &mut plan, LogOp::Access { ino: self.ino });
        Ok(plan.with(Some(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Timestamp;
    use crate::meta::client::AtimeMode;
    use crate::meta::record::FileKind;

    #[test]
    fn each_mode_writes_as_often_as_it_says() {
        let at = Timestamp::from_secs;
        let times = |atime, mtime, ctime| {
            let node = Attr::new(FileKind::File, 0, 0, 0, Ino::ROOT, at(0));
            Attr { atime: at(atime), mtime: at(mtime), ctime: at(ctime), ..node }
        };
        let day = 24 * 3600;
        // atime, mtime, ctime, now: relative, strict
        for (atime, mtime, ctime, now, relative, strict) in [
            (100, 100, 100, 100, false, false),
            (100, 100, 100, 101, false, false),
            (100, 100, 100, 102, false, true),
            (100, 101, 100, 100, true, true),
            (100, 100, 101, 100, true, true),
            (100, 100, 100, 100 + day, false, true),
            (100, 100, 100, 101 + day, true, true),
            (100, 90, 90, 50, false, false),
        ] {
            let node = times(atime, mtime, ctime);
            let due = |mode: AtimeMode| mode.is_due(&node, at(now));
            assert_eq!(
                (due(AtimeMode::Never), due(AtimeMode::Relative), due(AtimeMode::Strict)),
                (false, relative, strict),
                "{atime} {mtime} {ctime} at {now}"
            );
        }
    }
}
