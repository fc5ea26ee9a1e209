//! Transactions: reads on any connection, which are remembered; one commit on the writer's.

use std::sync::Arc;

use async_trait::async_trait;

use super::connections::Connections;
use super::db::Db;
use super::errors::{DbError, DbResult};
use super::{apply, read};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::engine::{Change, CommitError, Key, Record, Txn};

pub struct SqliteTxn {
    connections: Arc<Connections>,
    guards: Vec<(Key, Record)>,
}

impl SqliteTxn {
    pub fn new(connections: Arc<Connections>) -> Self {
        Self { connections, guards: Vec::new() }
    }
}

#[async_trait]
impl Txn for SqliteTxn {
    async fn read(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        let records = self.peek(keys).await?;
        self.guards.extend(keys.iter().cloned().zip(records.iter().cloned()));
        Ok(records)
    }

    async fn peek(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        match keys {
            [] => Ok(Vec::new()),
            // One statement sees one snapshot anyway.
            [key] => {
                let key = key.clone();
                self.connections.read(move |db| read::records(db, &[key])).await
            }
            _ => {
                let keys = keys.to_vec();
                self.connections.read(move |db| db.snapshot(|| read::records(db, &keys))).await
            }
        }
    }

    async fn commit(&mut self, changes: &[Change]) -> Result<Vec<i64>, CommitError> {
        let guards = std::mem::take(&mut self.guards);
        let changes = changes.to_vec();
        self.connections
            .commit(move |db| {
                if !guards_hold(db, guards, &changes)? {
                    return Err(DbError::Conflict);
                }
                apply::changes(db, &changes)
            })
            .await
    }
}

/// Returns whether every guarded record is as it was read.
fn guards_hold(db: &Db, guards: Vec<(Key, Record)>, changes: &[Change]) -> DbResult<bool> {
    let (keys, seen): (Vec<Key>, Vec<Record>) = guards.into_iter().unzip();
    let now = read::records(db, &keys)?;
    Ok(keys.iter().zip(&seen).zip(&now).all(|((key, seen), now)| {
        let replaced = match key {
            Key::Chunk(ino, index) => replaced(changes, *ino, *index),
            _ => None,
        };
        match (replaced, seen, now) {
            (Some(count), Record::Chunk(seen), Record::Chunk(now)) => {
                seen.len() >= count && now.get(..count) == seen.get(..count)
            }
            (None, Record::Attr(Some(seen)), Record::Attr(Some(now)))
                if matches!(key, Key::Place(_)) =>
            {
                seen.same_place(now)
            }
            _ => seen == now,
        }
    }))
}

/// Returns how many records of the chunk the plan replaces. Only these are guarded then: records
/// appended meanwhile stay.
fn replaced(changes: &[Change], wanted: Ino, at: u32) -> Option<usize> {
    changes.iter().find_map(|change| match change {
        Change::ReplaceSlices { ino, index, count, .. } if *ino == wanted && *index == at => {
            Some(*count)
        }
        _ => None,
    })
}
