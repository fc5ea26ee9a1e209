//! Transactions: guarded reads, then one commit.

use async_trait::async_trait;

use super::{Change, Key, Record};
use crate::error::{Error, Result};
use crate::meta::record::Entry;
use crate::meta::{Ino, Name};

/// Why a commit did not take effect, or may not have.
#[derive(Debug)]
pub enum CommitError {
    /// A guarded record changed. Nothing was applied; plan again.
    Conflict,
    /// Nothing was applied.
    Failed(Error),
    /// The request was sent and its response was lost: it may have been applied.
    Unknown(Error),
}

/// A set of changes in preparation: guarded reads, then one commit.
///
/// Each read sees a state at least as new as the start of the transaction. Different reads may see
/// different states; the commit checks that all guarded records still hold together.
#[async_trait]
pub trait Txn: Send {
    /// Reads all keys in as few round trips as the store allows (on Redis: one), in order. Each
    /// becomes a guard. [`Key::Lookup`] guards the entry and the attr that it found.
    async fn read(&mut self, keys: &[Key]) -> Result<Vec<Record>>;

    /// Like [`Txn::read`], without guards.
    async fn peek(&mut self, keys: &[Key]) -> Result<Vec<Record>>;

    /// Returns what the keys most likely hold, without asking the store: attrs as this client last
    /// saw them, and names as free. They are guarded as if they had been read, and only a
    /// successful commit proves them right. Returns `None`, and adds no guards, if the engine
    /// cannot guess.
    fn speculate(&mut self, keys: &[Key]) -> Option<Vec<Record>> {
        let _ = keys;
        None
    }

    /// Assumes that entries of a directory are as a listing returned them, without asking the
    /// store, guarded as in [`Txn::speculate`]. Returns false, and adds no guards, if they must be
    /// read instead.
    fn speculate_entries(&mut self, dir: Ino, listed: &[(Name, Entry)]) -> bool {
        let _ = (dir, listed);
        false
    }

    /// Applies all changes atomically, in order, if every guarded record is as it was read.
    ///
    /// Returns one number per change: for [`Change::AppendSlices`] the number of records in the
    /// chunk afterwards (0 if skipped), for [`Change::AddSliceRef`] the references left (the real
    /// count; 0 or less means that the objects must be deleted), 0 for all others.
    async fn commit(&mut self, changes: &[Change]) -> Result<Vec<i64>, CommitError>;
}
