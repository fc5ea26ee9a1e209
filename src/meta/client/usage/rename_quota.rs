//! The usage that a rename moves from one set of quotas to another.

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::engine::{Found, Key, Record};
use crate::meta::op::names::rename::Subtree;
use crate::meta::record::FileKind;
use crate::meta::{EntryRef, RenameMode};

impl Meta {
    /// Usage of the directories that a rename moves to another set of quotas; empty if both parents
    /// have the same quotas above them.
    pub(in crate::meta::client) async fn subtrees_changing_quota(
        &self,
        from: EntryRef<'_>,
        to: EntryRef<'_>,
        mode: RenameMode,
    ) -> Result<Vec<Subtree>> {
        if from.dir == to.dir
            || !self.context.setting().dir_stats
            || !self.context.quotas.has_dirs()
        {
            return Ok(Vec::new());
        }
        if self.quotas_above(from.dir).await? == self.quotas_above(to.dir).await? {
            return Ok(Vec::new());
        }
        let mut keys = vec![Key::Lookup(from.dir, from.name.clone())];
        if mode == RenameMode::Exchange {
            keys.push(Key::Lookup(to.dir, to.name.clone()));
        }
        let mut trees = Vec::new();
        for record in self.engine.read(&keys).await? {
            match record {
                Record::Lookup(Some(Found { entry, .. })) if entry.kind == FileKind::Dir => {
                    let sum = self.summary(entry.ino, false).await?;
                    trees.push(Subtree {
                        ino: entry.ino,
                        space: sum.size.cast_signed(),
                        inodes: (sum.files + sum.dirs).cast_signed(),
                    });
                }
                Record::Lookup(_) => {}
                other => {
                    return Err(Error::damaged("lookup", format!("the engine returned {other:?}")));
                }
            }
        }
        Ok(trees)
    }
}
