//! Operations: what the run loop of the client plans and commits.

use std::future::Future;

use super::{Ino, MetaTxn, Name, Plan};
use crate::error::Result;

/// One file-system operation: a small struct that plans itself.
pub trait Operation: Send + Sync {
    type Output: Send;

    /// The name in errors and metrics.
    const NAME: &'static str;

    /// The in-process lock to hold while the operation runs.
    fn txn_lock(&self) -> TxnLock {
        TxnLock::None
    }

    /// Reads the records that the operation depends on, checks whether it is allowed, and returns
    /// the changes to commit.
    fn plan(&self, tx: &mut MetaTxn<'_>)
    -> impl Future<Output = Result<Plan<Self::Output>>> + Send;
}

/// What two operations of this process must not work on at the same time. Without these locks the
/// result would be the same, but the engine would see more conflicts.
#[derive(Debug, Clone, Hash)]
pub enum TxnLock {
    /// Nothing: conflicts with other operations are rare.
    None,
    /// A node whose attr the operation writes.
    Node(Ino),
    /// One name: creations in one directory need not wait for each other.
    Name(Ino, Name),
    /// Two names, such as both ends of a rename.
    Names((Ino, Name), (Ino, Name)),
    /// The file locks of a node, which are independent of its attr.
    FileLocks(Ino),
}
