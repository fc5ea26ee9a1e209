//! Usage statistics of directories.

use super::super::client::{Repeat, reply};
use super::super::transaction::batch::{Batch, ValueType};
use super::super::transaction::{self, write};
use super::super::{RedisEngine, scripts};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::engine::CommitError;
use crate::meta::record::DirStat;

/// Directories per script: while a script runs, the server serves no other client.
const STEP: usize = 1000;

impl RedisEngine {
    pub(crate) async fn add_stats(&self, deltas: &[(Ino, DirStat)]) -> Result<Vec<Ino>> {
        let stats = self.keyspace.dir_stats();
        let keys = [stats.length, stats.space, stats.inodes];
        let mut invalid = Vec::new();
        for some in deltas.chunks(STEP) {
            let mut cmd = scripts::ADD_DIR_STATS.call(&keys);
            for (ino, delta) in some {
                cmd.arg(ino.0).arg(delta.length).arg(delta.space).arg(delta.inodes);
            }
            let mut replies = self.client.execute_once(cmd, "adding to dir stats").await?;
            for raw in replies.list(&keys[1])? {
                invalid.push(Ino(reply::id(&raw, &keys[1])?));
            }
        }
        Ok(invalid)
    }

    /// Stores the statistics of a directory, unless the directory has been removed.
    pub(crate) async fn save_stat(&self, ino: Ino, stat: &DirStat) -> Result<()> {
        let mut batch = Batch::default();
        batch.guard_existence(&self.keyspace.attr(ino));
        write::put_dir_stat(&mut batch, &self.keyspace, ino, stat);
        match transaction::apply(&self.client, batch, Repeat::Allowed).await {
            Ok(_) | Err(CommitError::Conflict) => Ok(()),
            Err(CommitError::Failed(error) | CommitError::Unknown(error)) => Err(error),
        }
    }

    pub(crate) async fn drop_stats(&self) -> Result<()> {
        self.apply(|batch| {
            let stats = self.keyspace.dir_stats();
            for key in [&stats.length, &stats.space, &stats.inodes] {
                batch.call(ValueType::Any, "DEL", key, []);
            }
        })
        .await?;
        Ok(())
    }
}
