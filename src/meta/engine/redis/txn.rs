//! Transactions: pipelined reads, one script to commit.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Value;

use super::super::{Change, CommitError, Key, Record, Txn};
use super::batch::{Batch, Outcome};
use super::fault::{engine, unreachable};
use super::guard::{self, Guard};
use super::names::Names;
use super::read::{Question, guess};
use super::recent::Recent;
use super::wire::{Failure, Repeat, Wire};
use super::write::{self, Receipt};
use crate::error::Result;
use crate::meta::record::Entry;
use crate::meta::{Ino, Name};

/// Keys that are worth to be remembered as seen lately.
const FEW: usize = 64;

pub(super) struct RedisTxn {
    wire: Arc<Wire>,
    names: Arc<Names>,
    recent: Arc<Recent>,
    guards: Vec<Guard>,
}

impl RedisTxn {
    pub fn new(wire: Arc<Wire>, names: Arc<Names>, recent: Arc<Recent>) -> Self {
        Self { wire, names, recent, guards: Vec::new() }
    }
}

#[async_trait]
impl Txn for RedisTxn {
    async fn read(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let question = Question::new(&self.names, keys);
        let replies = self.wire.ask(&question.commands()).await?;
        let before = self.guards.len();
        let records = question.answers(replies, Some(&mut self.guards))?;
        // What is read by the hundred is on its way out, and would displace what is in use.
        if keys.len() <= FEW {
            self.recent.saw(&self.guards[before..]);
        }
        Ok(records)
    }

    async fn peek(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let question = Question::new(&self.names, keys);
        let replies = self.wire.ask(&question.commands()).await?;
        question.answers(replies, None)
    }

    fn suppose(&mut self, keys: &[Key]) -> Option<Vec<Record>> {
        let mut guards = Vec::with_capacity(keys.len());
        let records = keys
            .iter()
            .map(|key| guess(&self.names, &self.recent, key, &mut guards))
            .collect::<Option<Vec<Record>>>()?;
        self.guards.append(&mut guards);
        Some(records)
    }

    fn suppose_listed(&mut self, dir: Ino, listed: &[(Name, Entry)]) -> bool {
        let key = self.names.entries(dir);
        self.guards.extend(listed.iter().map(|(name, entry)| Guard::Entry {
            key: key.clone(),
            field: name.clone().into_bytes(),
            raw: Some(Bytes::copy_from_slice(&entry.encode())),
        }));
        true
    }

    async fn commit(&mut self, changes: &[Change]) -> Result<Vec<i64>, CommitError> {
        let mut batch = Batch::default();
        guard::add(&mut batch, &self.guards, changes, &self.names, self.wire.place())?;
        let receipts = write::add(&mut batch, changes, &self.names);
        let results = match apply(&self.wire, batch, Repeat::Never).await {
            Ok(results) => results,
            Err(error) => {
                self.recent.forget(&self.guards);
                return Err(error);
            }
        };
        self.recent.committed(changes, &self.names);
        let number = |receipt: &Receipt| match receipt {
            Receipt::Nothing => 0,
            Receipt::Report { index, plus } => results.get(*index).map_or(0, |n| n + plus),
        };
        Ok(receipts.iter().map(number).collect())
    }
}

/// Has the server check and apply a batch; answers the results of its reporting commands.
pub(super) async fn apply(
    wire: &Wire,
    batch: Batch,
    repeat: Repeat,
) -> Result<Vec<i64>, CommitError> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let place = wire.place();
    let mut replies = match wire.tell(batch.into_cmd(), repeat, Outcome::judge).await {
        Ok(replies) => replies,
        Err(Failure::Refused(error)) => return Err(CommitError::Failed(error)),
        Err(Failure::Lost(error)) => return Err(CommitError::Unknown(error)),
    };
    let value: Value = replies.value("").map_err(CommitError::Failed)?;
    let outcome = Outcome::read(&value);
    if let Some(Outcome::Failed { fault, .. }) = &outcome
        && fault.is_want_of_memory()
    {
        wire.ran_full(fault);
    }
    match outcome {
        Some(Outcome::Applied(results)) => {
            wire.wrote();
            Ok(results)
        }
        Some(Outcome::Conflict(_)) => Err(CommitError::Conflict),
        Some(Outcome::Failed { fault, key, done: 0 }) => {
            Err(CommitError::Failed(fault.into_error(place, &key)))
        }
        // The server has no way back: some of it is there.
        Some(Outcome::Failed { fault, key, done }) => Err(CommitError::Unknown(engine(
            place,
            format!("stopped after {done} changes at {key}: {}", fault.text()),
        ))),
        None => Err(CommitError::Unknown(unreachable(place, "an unreadable answer"))),
    }
}
