//! Unlinking many names of one directory in one commit, for removing trees and emptying the trash.

use super::removal::remove_link;
use super::{access, dir_times, log};
use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::record::FileKind;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Caller, Ino, Lane, MetaTxn, Name, Operation, Plan};

pub struct UnlinkMany<'a> {
    pub caller: &'a Caller,
    pub dir: Ino,
    /// Names with the inodes they are known to have, no inode twice. A name that is gone, means
    /// something else by now, or turned into a directory is passed over.
    pub names: &'a [(Name, Ino)],
    pub hour: Option<Ino>,
}

impl Operation for UnlinkMany<'_> {
    type Output = u64;
    const NAME: &'static str = "unlink batch";

    fn lane(&self) -> Lane {
        Lane::Node(self.dir)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<u64>> {
        let mut keys = vec![Key::Place(self.dir)];
        keys.extend(self.names.iter().map(|(name, _)| Key::Lookup(self.dir, name.clone())));
        tx.prefetch(&keys).await?;
        let dir = tx.dir(self.dir).await?;
        access::permits(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        if dir.has_flag(flag::APPEND | flag::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }

        let mut plan = Plan::new();
        let mut removed = Vec::new();
        for (name, ino) in self.names {
            let Some(found) = tx.lookup(self.dir, name).await? else { continue };
            if found.entry.ino != *ino || found.entry.kind == FileKind::Dir {
                continue;
            }
            if let Some(node) = &found.attr {
                access::may_remove(self.caller, &dir, node)?;
                let length = if node.is_file() { node.length.cast_signed() } else { 0 };
                plan.use_dir(self.dir, -length, -node.space(), -1);
            }
            plan.remove_entry(self.dir, name);
            remove_link(tx, &mut plan, (self.dir, name), &found, self.hour).await?;
            removed.push((name.clone(), *ino));
        }
        if removed.is_empty() {
            return Ok(plan.with(0));
        }
        let touches_parent =
            !self.dir.is_trash() && dir_times::update(tx, &mut plan, self.dir, &dir, 0);
        let line = LogOp::UnlinkBatch {
            parent: self.dir,
            removed: &removed,
            trash: self.hour.unwrap_or(Ino::NONE),
            touches_parent,
        };
        log::log(tx, &mut plan, line);
        Ok(plan.with(removed.len() as u64))
    }
}
