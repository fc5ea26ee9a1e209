//! The mapping of records to keys and values, for every ordered key-value store.
//!
//! [`StoreKey`] and the value codecs define the stored bytes; [`KvStore`] is what a store must
//! provide. Nothing here knows what an operation means, or how a store talks to its servers.

mod engine;
mod keys;
pub mod memory;
mod read;
mod records;
mod store;
#[cfg(test)]
mod tests;
mod transaction;
mod values;

pub use engine::KvEngine;
pub use keys::StoreKey;
pub use memory::MemoryStore;
pub use store::{KvStore, Pair, Scan, StoreProperties, StoreTxn};

/// Opens the in-memory store of that name. All engines of this process that name it share it.
pub fn memory(name: &str) -> KvEngine {
    KvEngine::new(MemoryStore::named(name))
}
