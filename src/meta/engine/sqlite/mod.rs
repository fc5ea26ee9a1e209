//! The SQLite engine: JuiceFS's own tables in one database file, which the Go client may have open
//! at the same time.
//!
//! Reads run on a few threads with a connection each, on a snapshot. Commits go to one thread,
//! which performs them in groups.

mod address;
mod apply;
mod columns;
mod connections;
mod db;
mod errors;
mod read;
mod schema;
mod tables;
#[cfg(test)]
mod tests;
mod txn;

use std::sync::Arc;
use std::thread::JoinHandle;

use async_trait::async_trait;

use self::address::Address;
use self::connections::Connections;
use self::db::Db;
use self::txn::SqliteTxn;
use super::{Engine, EngineProperties, Txn};
use crate::error::{Error, Result};
use crate::policy::Policy;
use crate::sync::Mutex;

/// Entries removed or cloned by one commit. It bounds how long the database is locked.
const BATCH: usize = 1000;

pub struct SqliteEngine {
    connections: Arc<Connections>,
    threads: Mutex<Vec<JoinHandle<Db>>>,
}

/// Opens the database that a `sqlite3://` address names. Creates the file if it does not exist.
pub async fn connect(url: &str, policy: &Arc<Policy>) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(SqliteEngine::open(url, Arc::clone(policy)).await?))
}

impl SqliteEngine {
    async fn open(url: &str, policy: Arc<Policy>) -> Result<Self> {
        let url = url.to_owned();
        blocking(move || {
            let address = Address::parse(&url)?;
            policy.check_local("metaurl", &address.path)?;
            let (connections, threads) = Connections::open(&address)?;
            Ok(Self { connections: Arc::new(connections), threads: Mutex::new(threads) })
        })
        .await?
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| errors::engine_error("sqlite3", format!("a thread panicked: {error}")))
}

#[async_trait]
impl Engine for SqliteEngine {
    fn name(&self) -> &'static str {
        "sqlite3"
    }

    fn address(&self) -> &str {
        self.connections.place()
    }

    fn properties(&self) -> EngineProperties {
        EngineProperties {
            usage_in_commit: true,
            entry_needs_node: true,
            batch: BATCH,
            sorted: true,
            refuses_empty_xattr: false,
        }
    }

    fn begin(&self) -> Box<dyn Txn> {
        Box::new(SqliteTxn::new(Arc::clone(&self.connections)))
    }

    async fn close(&self) -> Result<()> {
        self.connections.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        let place = self.address().to_owned();
        blocking(move || {
            for thread in threads {
                // One connection after the other: only one that is alone when it closes removes the
                // journal files.
                let db = thread.join().map_err(|_| Error::Engine {
                    place: place.clone(),
                    cause: "a thread of the engine panicked".to_owned(),
                })?;
                drop(db);
            }
            Ok(())
        })
        .await?
    }
}
