//! The statements of each table, and the record traits of the engine.

pub mod acl;
mod bulk;
pub mod changelog;
pub mod chunk;
pub mod counter;
pub mod entry;
pub mod garbage;
pub mod lock;
pub mod node;
mod scan;
pub mod session;
pub mod setting;
pub mod slice;
pub mod usage;
pub mod xattr;

/// Returns a limit as SQL takes it.
fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
