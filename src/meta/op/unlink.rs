//! Unlink: a name that is no directory goes.

use super::removal::remove_link;
use super::{access, dir_times, log};
use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::record::FileKind;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Caller, Ino, Lane, MetaTxn, Name, Operation, Plan};

pub struct Unlink<'a> {
    pub caller: &'a Caller,
    pub dir: Ino,
    pub name: &'a Name,
    /// The hour directory, if removed things are kept.
    pub hour: Option<Ino>,
}

impl Operation for Unlink<'_> {
    type Output = Ino;
    const NAME: &'static str = "unlink";

    fn lane(&self) -> Lane {
        Lane::Name(self.dir, self.name.clone())
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Ino>> {
        tx.expect(&[Key::Place(self.dir), Key::Lookup(self.dir, self.name.clone())]).await?;
        let dir = tx.dir(self.dir).await?;
        let found = tx.lookup(self.dir, self.name).await?.ok_or(Error::NotFound)?;
        if found.entry.kind == FileKind::Dir {
            return Err(Error::NotPermitted);
        }
        access::permits(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        match &found.attr {
            Some(node) => access::may_remove(self.caller, &dir, node)?,
            None if dir.has_flag(flag::APPEND | flag::IMMUTABLE) => {
                return Err(Error::NotPermitted);
            }
            None => {}
        }

        let mut plan = Plan::new();
        plan.remove_entry(self.dir, self.name);
        let touches_parent =
            !self.dir.is_trash() && dir_times::update(tx, &mut plan, self.dir, &dir, 0);
        let removed = remove_link(tx, &mut plan, (self.dir, self.name), &found, self.hour).await?;
        if let Some(node) = &found.attr {
            let length = if node.is_file() { node.length.cast_signed() } else { 0 };
            plan.use_dir(self.dir, -length, -node.space(), -1);
        }
        let ino = found.entry.ino;
        let line = LogOp::Unlink {
            parent: self.dir,
            name: self.name,
            trash: removed.trash.unwrap_or(Ino::NONE),
            opened: removed.open,
            touches_parent,
            ino,
        };
        log::log(tx, &mut plan, line);
        Ok(plan.with(ino))
    }
}
