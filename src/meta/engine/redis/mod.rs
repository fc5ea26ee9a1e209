//! The Redis engine: records as strings, hashes, lists, sets and sorted sets.
//!
//! Reads of one call are one pipelined round trip; a commit is one server-side script that compares
//! every guarded value with what was read and then applies every change. It needs no connection of
//! its own, conflicts only on what was read, and since it writes the keys that the Go client
//! watches, that one notices it as it notices its own kind.

mod acl;
mod address;
mod batch;
mod changelog;
mod counter;
mod engine;
mod fault;
mod garbage;
mod gather;
mod greeting;
mod guard;
mod limits;
mod line;
mod link;
mod listing;
mod locks;
mod names;
mod query;
mod queue;
mod quota;
mod read;
mod recent;
mod reply;
mod resp;
mod route;
mod script;
mod session;
mod socket;
mod stats;
mod txn;
mod volume;
mod wire;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::address::Address;
use self::batch::Batch;
use self::names::Names;
use self::recent::Recent;
use self::wire::{Repeat, Wire};
use super::{CommitError, Env};
use crate::error::{Error, Result};
use crate::policy::Policy;

/// One volume in one Redis database, or in one slot of a cluster.
pub struct RedisEngine {
    wire: Arc<Wire>,
    names: Arc<Names>,
    recent: Arc<Recent>,
}

/// Connects to the server that `url` names: `redis://`, `rediss://` or `unix://`, one server, one
/// behind sentinels, or a cluster. Passwords that it does not give come from `env`.
pub async fn connect(url: &str, env: Env<'_>) -> Result<RedisEngine> {
    connect_under(url, env, &Policy::unrestricted()).await
}

/// As [`connect`], as far as `policy` lets it: files, and the addresses of all servers.
pub async fn connect_under(url: &str, env: Env<'_>, policy: &Arc<Policy>) -> Result<RedisEngine> {
    let wire = Wire::open(Address::parse(url, env)?, policy).await?;
    let names = Names::new(wire.prefix().to_owned());
    let (wire, names, recent) = (Arc::new(wire), Arc::new(names), Arc::new(Recent::new()));
    Ok(RedisEngine { wire, names, recent })
}

impl RedisEngine {
    /// Requests sent so far; a pipeline or a script is one.
    pub fn round_trips(&self) -> u64 {
        self.wire.round_trips()
    }

    /// Applies commands at once that may be applied twice.
    async fn apply(&self, build: impl FnOnce(&mut Batch)) -> Result<Vec<i64>> {
        let mut batch = Batch::default();
        build(&mut batch);
        txn::apply(&self.wire, batch, Repeat::Harmless).await.map_err(|error| match error {
            CommitError::Failed(error) | CommitError::Unknown(error) => error,
            // Without guards there is nothing to conflict with.
            CommitError::Conflict => Error::WouldBlock,
        })
    }
}
