//! Stats of directories.

use super::super::CommitError;
use super::batch::{Batch, Kind};
use super::wire::Repeat;
use super::{RedisEngine, reply, script, txn, write};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::record::DirStat;

/// Directories per script: it holds up everyone else.
const STEP: usize = 1000;

impl RedisEngine {
    pub(super) async fn add_stats(&self, deltas: &[(Ino, DirStat)]) -> Result<Vec<Ino>> {
        let stats = self.names.stats();
        let keys = [stats.length, stats.space, stats.inodes];
        let mut bad = Vec::new();
        for some in deltas.chunks(STEP) {
            let mut cmd = script::ADD_STATS.call(&keys);
            for (ino, delta) in some {
                cmd.arg(ino.0).arg(delta.length).arg(delta.space).arg(delta.inodes);
            }
            let mut replies = self.wire.tell_or_unknown(cmd, "adding to dir stats").await?;
            for raw in replies.list(&keys[1])? {
                bad.push(Ino(reply::id(&raw, &keys[1])?));
            }
        }
        Ok(bad)
    }

    /// A directory that is gone gets none.
    pub(super) async fn save_stat(&self, ino: Ino, stat: &DirStat) -> Result<()> {
        let mut batch = Batch::default();
        batch.guard_existence(&self.names.attr(ino));
        write::put_dir_stat(&mut batch, &self.names, ino, stat);
        match txn::apply(&self.wire, batch, Repeat::Harmless).await {
            Ok(_) | Err(CommitError::Conflict) => Ok(()),
            Err(CommitError::Failed(error) | CommitError::Unknown(error)) => Err(error),
        }
    }

    pub(super) async fn drop_stats(&self) -> Result<()> {
        self.apply(|batch| {
            let stats = self.names.stats();
            for key in [&stats.length, &stats.space, &stats.inodes] {
                batch.call(Kind::Any, "DEL", key, []);
            }
        })
        .await?;
        Ok(())
    }
}
