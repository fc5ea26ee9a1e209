//! The mapping of records to an ordered key-value store, for every store that has one.
//!
//! [`StoreKey`] and the value codecs say which bytes stand where; [`KvStore`] is what a store must
//! offer. Nothing here knows what an operation means, or how a store talks to its servers.

mod apply;
mod changelog;
mod counters;
mod engine;
mod garbage;
mod keys;
pub mod memory;
mod needs;
mod overlay;
mod read;
mod seats;
mod sessions;
mod store;
mod turns;
mod txn;
mod update;
mod usage;
mod values;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

pub use engine::KvEngine;
pub use keys::StoreKey;
pub use memory::MemoryStore;
pub use store::{KvStore, KvTxn, Pair, Scan, StoreProperties};

/// Opens the in-memory store of that name; every engine of this process that names it shares it.
pub fn memory(name: &str) -> KvEngine {
    KvEngine::new(MemoryStore::named(name))
}
