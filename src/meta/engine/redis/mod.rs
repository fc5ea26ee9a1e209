//! The Redis engine: records as strings, hashes, lists, sets and sorted sets.
//!
//! The reads of one call are one pipelined round trip. A commit is one server-side script that
//! compares every guarded value with what was read and then applies every change. It needs no
//! connection of its own, and conflicts only on what was read. Since it writes the keys that the Go
//! client watches, that client notices it like a transaction of its own.

mod client;
mod engine;
mod records;
mod scripts;
mod transaction;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tracing::warn;

use self::client::address::Address;
use self::client::{Client, Repeat};
use self::records::keyspace::KeySpace;
use self::transaction::batch::Batch;
use self::transaction::guess_cache::GuessCache;
use super::{CommitError, Env};
use crate::error::{Error, Result};
use crate::policy::Policy;

/// One volume in one Redis database, or in one slot of a cluster.
pub struct RedisEngine {
    client: Arc<Client>,
    keyspace: Arc<KeySpace>,
    guesses: Arc<GuessCache>,
}

/// Connects to the server of `url`, which is a `redis://`, `rediss://` or `unix://` address of one
/// server, of a master behind sentinels, or of a cluster. A password that `url` does not contain comes
/// from `env`.
pub async fn connect(url: &str, env: Env<'_>) -> Result<RedisEngine> {
    connect_under(url, env, &Policy::unrestricted()).await
}

/// As [`connect`], with the files and server addresses that `policy` allows.
pub async fn connect_under(url: &str, env: Env<'_>, policy: &Arc<Policy>) -> Result<RedisEngine> {
    let address = Address::parse(url, env)?;
    if !address.unsupported.is_empty() {
        let parameters = address.unsupported.join(", ");
        warn!(address = address.place, "parameters of the address without effect: {parameters}");
    }
    let client = Client::open(address, policy).await?;
    let keyspace = KeySpace::new(client.prefix().to_owned());
    Ok(RedisEngine {
        client: Arc::new(client),
        keyspace: Arc::new(keyspace),
        guesses: Arc::new(GuessCache::new()),
    })
}

impl RedisEngine {
    /// Returns the number of requests sent so far. A pipeline or a script counts as one.
    pub fn round_trips(&self) -> u64 {
        self.client.round_trips()
    }

    /// Applies commands atomically that may be applied twice.
    async fn apply(&self, build: impl FnOnce(&mut Batch)) -> Result<Vec<i64>> {
        let mut batch = Batch::default();
        build(&mut batch);
        transaction::apply(&self.client, batch, Repeat::Allowed).await.map_err(
            |error| match error {
                CommitError::Failed(error) | CommitError::Unknown(error) => error,
                // Without guards there is nothing to conflict with.
                CommitError::Conflict => Error::WouldBlock,
            },
        )
    }
}
