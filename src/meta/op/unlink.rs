//! Unlink: a name that is no directory goes.

use super::removal::{Removed, remove_link};
use super::{access, dir_times, log};
use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::record::changelog;
use crate::meta::record::attr::flag;
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
        tx.prefetch(&[Key::Attr(self.dir), Key::Lookup(self.dir, self.name.clone())]).await?;
        let dir = tx.dir(self.dir).await?;
        let found = tx.lookup(self.dir, self.name).await?.ok_or(Error::NotFound)?;
        if found.entry.kind == crate::meta::record::FileKind::Dir {
            return Err(Error::NotPermitted);
        }
        access::permits(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        match &found.attr {
            Some(node) => access::may_remove(self.caller, &dir, node)?,
            None if dir.has_flag(flag::APPEND | flag::IMMUTABLE) => return Err(Error::NotPermitted),
            None => {}
        }

        let mut plan = Plan::new();
        plan.remove_entry(self.dir, self.name);
        let updated =
            !self.dir.is_trash() && dir_times::update(tx, &mut plan, self.dir, dir, false);
        let removed =
            remove_link(tx, &mut plan, (self.dir, self.name), &found, self.hour).await?;
        if let Some(node) = &found.attr {
            let length = if node.is_file() { node.length.cast_signed() } else { 0 };
            plan.use_dir(self.dir, -length, -node.space(), -1);
        }
        let ino = found.entry.ino;
        log::log(tx, &mut plan, || self.line(removed, updated, ino), tx.now());
        Ok(plan.with(ino))
    }
}

impl Unlink<'_> {
    fn line(&self, removed: Removed, updated: bool, ino: Ino) -> String {
        format!(
            "UNLINK({},{},{},{},{updated}):{ino}",
            self.dir,
            changelog::escape(self.name.as_bytes()),
            removed.trash.unwrap_or(Ino::NONE),
            removed.open
        )
    }
}
