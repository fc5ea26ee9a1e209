//! Transactions: one pipelined request for each read, and one script that commits.

pub(super) mod batch;
mod bulk_write;
mod guard;
pub(super) mod guess_cache;
pub(super) mod read;
pub(super) mod write;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Value;

use self::batch::{Batch, Outcome};
use self::guard::Guard;
use self::guess_cache::GuessCache;
use self::read::{ReadRequest, guess};
use self::write::ResultSource;
use super::client::server_error::{engine_error, unreachable_error};
use super::client::{Client, Repeat, RequestError};
use super::records::keyspace::KeySpace;
use crate::error::Result;
use crate::meta::engine::{Change, CommitError, Key, Record, Txn};
use crate::meta::record::Entry;
use crate::meta::{Ino, Name};

/// Reads of more keys than this do not enter the guess cache: records that are read by the hundred
/// are about to be removed, and would evict those in use.
const MAX_CACHED_KEYS: usize = 64;

pub(super) struct RedisTxn {
    client: Arc<Client>,
    keyspace: Arc<KeySpace>,
    guesses: Arc<GuessCache>,
    guards: Vec<Guard>,
}

impl RedisTxn {
    pub fn new(client: Arc<Client>, keyspace: Arc<KeySpace>, guesses: Arc<GuessCache>) -> Self {
        Self { client, keyspace, guesses, guards: Vec::new() }
    }
}

#[async_trait]
impl Txn for RedisTxn {
    async fn read(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let request = ReadRequest::new(&self.keyspace, keys);
        let replies = self.client.query(&request.commands()).await?;
        let before = self.guards.len();
        let records = request.records(replies, Some(&mut self.guards))?;
        if keys.len() <= MAX_CACHED_KEYS {
            self.guesses.insert_read(&self.guards[before..]);
        }
        Ok(records)
    }

    async fn peek(&mut self, keys: &[Key]) -> Result<Vec<Record>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let request = ReadRequest::new(&self.keyspace, keys);
        let replies = self.client.query(&request.commands()).await?;
        request.records(replies, None)
    }

    fn speculate(&mut self, keys: &[Key]) -> Option<Vec<Record>> {
        let mut guards = Vec::with_capacity(keys.len());
        let records = keys
            .iter()
            .map(|key| guess(&self.keyspace, &self.guesses, key, &mut guards))
            .collect::<Option<Vec<Record>>>()?;
        self.guards.append(&mut guards);
        Some(records)
    }

    fn speculate_entries(&mut self, dir: Ino, listed: &[(Name, Entry)]) -> bool {
        let key = self.keyspace.entries(dir);
        self.guards.extend(listed.iter().map(|(name, entry)| Guard::Entry {
            key: key.clone(),
            field: name.clone().into_bytes(),
            raw: Some(Bytes::copy_from_slice(&entry.encode())),
        }));
        true
    }

    async fn commit(&mut self, changes: &[Change]) -> Result<Vec<i64>, CommitError> {
        let mut batch = Batch::default();
        guard::add(&mut batch, &self.guards, changes, &self.keyspace, self.client.place())?;
        let sources = write::add(&mut batch, changes, &self.keyspace);
        let results = match apply(&self.client, batch, Repeat::Forbidden).await {
            Ok(results) => results,
            Err(error) => {
                self.guesses.forget(&self.guards);
                return Err(error);
            }
        };
        self.guesses.insert_committed(changes, &self.keyspace);
        let number = |source: &ResultSource| match source {
            ResultSource::Zero => 0,
            ResultSource::Report { index, plus } => results.get(*index).map_or(0, |n| n + plus),
        };
        Ok(sources.iter().map(number).collect())
    }
}

/// Has the server check and apply a batch. Returns the results of its reporting commands.
pub(super) async fn apply(
    client: &Client,
    batch: Batch,
    repeat: Repeat,
) -> Result<Vec<i64>, CommitError> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let place = client.place();
    let mut replies = match client.execute(batch.into_cmd(), repeat, Outcome::find_error).await {
        Ok(replies) => replies,
        Err(RequestError::NotExecuted(error)) => return Err(CommitError::Failed(error)),
        Err(RequestError::OutcomeUnknown(error)) => return Err(CommitError::Unknown(error)),
    };
    let value: Value = replies.value("").map_err(CommitError::Failed)?;
    let outcome = Outcome::parse(&value);
    if let Some(Outcome::Failed { error, .. }) = &outcome
        && error.is_out_of_memory()
    {
        client.report_out_of_memory(error);
    }
    match outcome {
        Some(Outcome::Applied(results)) => {
            client.report_write_accepted();
            Ok(results)
        }
        Some(Outcome::Conflict(_)) => Err(CommitError::Conflict),
        Some(Outcome::Failed { error, key, done: 0 }) => {
            Err(CommitError::Failed(error.into_error(place, &key)))
        }
        // The server does not roll back: part of the batch is applied.
        Some(Outcome::Failed { error, key, done }) => Err(CommitError::Unknown(engine_error(
            place,
            format!("the commit stopped after {done} changes at {key}: {}", error.text()),
        ))),
        None => {
            let error = unreachable_error(place, "the reply to a commit is unreadable");
            Err(CommitError::Unknown(error))
        }
    }
}
