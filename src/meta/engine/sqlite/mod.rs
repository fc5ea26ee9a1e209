//! The SQLite engine: JuiceFS's own tables in one database file, which the Go client may have open
//! at the same time.
//!
//! Reads run on a few threads with a connection each, on a snapshot; commits go to one thread that
//! does them in groups. Each file below owns the statements of some tables.

mod acl;
mod address;
mod apply;
mod chunk;
mod counter;
mod db;
mod entry;
mod fault;
mod garbage;
mod link;
mod lock;
mod log;
mod node;
mod queue;
mod read;
mod row;
mod schema;
mod session;
mod setting;
mod slice;
mod tables;
#[cfg(test)]
mod tests;
mod txn;
mod usage;
mod writer;
mod xattr;

use std::sync::Arc;
use std::thread::JoinHandle;

use async_trait::async_trait;

use self::address::Address;
use self::link::Link;
use self::txn::SqliteTxn;
use super::{Engine, EngineProperties, Txn};
use crate::error::{Error, Result};
use crate::policy::Policy;
use crate::sync::Mutex;

/// Entries removed or cloned by one commit: it bounds how long the database is locked.
const BATCH: usize = 1000;

pub struct Sqlite {
    link: Arc<Link>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Opens the database that a `sqlite3://` address names; a file that is not there is made.
pub async fn connect(url: &str, policy: &Arc<Policy>) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(Sqlite::open(url, Arc::clone(policy)).await?))
}

impl Sqlite {
    async fn open(url: &str, policy: Arc<Policy>) -> Result<Self> {
        let url = url.to_owned();
        blocking(move || {
            let address = Address::parse(&url)?;
            policy.check_local("metaurl", &address.path)?;
            let (link, threads) = Link::open(&address)?;
            Ok(Self { link: Arc::new(link), threads: Mutex::new(threads) })
        })
        .await?
    }
}

/// A limit as SQL has it.
fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| fault::engine("sqlite3", format!("a thread failed: {error}")))
}

#[async_trait]
impl Engine for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite3"
    }

    fn address(&self) -> &str {
        self.link.place()
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
        Box::new(SqliteTxn::new(Arc::clone(&self.link)))
    }

    async fn close(&self) -> Result<()> {
        self.link.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        let place = self.address().to_owned();
        blocking(move || {
            for thread in threads {
                thread.join().map_err(|_| Error::Engine {
                    place: place.clone(),
                    cause: "a thread of the engine failed".to_owned(),
                })?;
            }
            Ok(())
        })
        .await?
    }
}
