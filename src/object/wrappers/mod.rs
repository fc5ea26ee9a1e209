//! Stores that wrap another store and add one thing: retries, timeouts, encryption, a key prefix,
//! and so on.

pub mod bandwidth;
pub mod encrypt;
pub mod fault_injection;
pub mod metrics;
pub mod prefix;
pub mod replaceable;
pub mod retry;
pub mod shards;
pub mod timeout;
