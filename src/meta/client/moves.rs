//! What a rename carries from one quota to another.

use super::Meta;
use crate::error::{Error, Result};
use crate::meta::engine::{Found, Key, Record};
use crate::meta::op::rename::{RenameMode, Subtree};
use crate::meta::record::FileKind;
use crate::meta::{Ino, Name};

impl Meta {
    /// Usage of the directories that a rename takes from under one set of quotas to another; nothing
    /// if both places are under the same.
    pub(super) async fn moving_subtrees(
        &self,
        (src, old): (Ino, &Name),
        (dst, new): (Ino, &Name),
        mode: RenameMode,
    ) -> Result<Vec<Subtree>> {
        if src == dst || !self.facts.setting().dir_stats || !self.facts.quotas.has_dirs() {
            return Ok(Vec::new());
        }
        if self.quotas_above(src).await? == self.quotas_above(dst).await? {
            return Ok(Vec::new());
        }
        let mut keys = vec![Key::Lookup(src, old.clone())];
        if mode == RenameMode::Exchange {
            keys.push(Key::Lookup(dst, new.clone()));
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
                    return Err(Error::damaged("lookup", format!("the engine answered {other:?}")));
                }
            }
        }
        Ok(trees)
    }
}
