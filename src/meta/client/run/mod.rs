//! The run loop: plans an operation, commits it, and retries or verifies a commit that fails.

mod lost_commit;
mod txn_locks;

use std::time::{Duration, Instant};

use rand::RngExt;

use lost_commit::{CommitState, check_commit};
pub use txn_locks::TxnLocks;

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::engine::CommitError;
use crate::meta::{MetaTxn, Operation, Plan};

/// Attempts before an operation fails with [`Error::Contended`].
const MAX_ATTEMPTS: u64 = 50;

/// An operation's output, and the engine's receipt for each change. There are no receipts if nothing
/// was committed, or if the reply to the commit was lost.
pub(in crate::meta::client) struct Completed<T> {
    pub output: T,
    pub receipts: Vec<i64>,
}

impl Meta {
    /// Runs an operation: plans it, commits it, and applies its effects.
    pub(in crate::meta::client) async fn run<O: Operation>(&self, op: &O) -> Result<O::Output> {
        Ok(self.run_with_receipts(op).await?.output)
    }

    pub(in crate::meta::client) async fn run_with_receipts<O: Operation>(
        &self,
        op: &O,
    ) -> Result<Completed<O::Output>> {
        let begun = Instant::now();
        let done = self.run_to_end(op).await;
        self.times.ran(O::NAME, begun.elapsed());
        done
    }

    async fn run_to_end<O: Operation>(&self, op: &O) -> Result<Completed<O::Output>> {
        let _lock = self.txn_locks.acquire(op.txn_lock()).await;
        // A plan whose commit was sent and whose reply was lost. It may still take effect, so each
        // attempt checks for it before it draws any conclusion.
        let mut lost: Option<(Plan<O::Output>, Error)> = None;
        for attempt in 0..MAX_ATTEMPTS {
            self.check_not_lost()?;
            let begun = Instant::now();
            let mut tx = MetaTxn::new(self.engine.begin(), &self.context);
            if attempt == 0 {
                tx.allow_speculation();
            }
            self.counts.plan();
            let planned = op.plan(&mut tx).await;
            let commits = planned.as_ref().is_ok_and(|plan| !plan.changes.is_empty());
            if tx.has_speculated() && !commits {
                // Only records that were really read may justify an error or a plan without changes.
                continue;
            }
            if let Some(rule) = tx.take_requested_rule() {
                self.check_writable()?;
                drop(tx);
                self.acl_id(&rule).await?;
                continue;
            }
            if let Some((plan, cause)) = lost.take() {
                match check_commit(self.engine.as_ref(), &plan.changes).await? {
                    CommitState::Applied => return Ok(self.finish(plan, Vec::new())),
                    CommitState::Absent => lost = Some((plan, cause)),
                    CommitState::Mixed => return Err(self.unknown_outcome(O::NAME, &cause)),
                }
            }
            let plan = planned?;
            if plan.changes.is_empty() {
                return Ok(self.finish(plan, Vec::new()));
            }
            self.check_writable()?;
            let in_progress = self.context.commits.begin();
            let committed = tx.commit(&plan.changes).await;
            drop(in_progress);
            self.times.committed(begun.elapsed());
            match committed {
                Ok(receipts) => return Ok(self.finish(plan, receipts)),
                // The speculative records were out of date: the next plan reads them.
                Err(CommitError::Conflict) if tx.has_speculated() => {}
                Err(CommitError::Conflict) => {
                    self.counts.conflict();
                    self.times.restarted(O::NAME);
                    pause(attempt).await;
                }
                Err(CommitError::Failed(error)) => return Err(error),
                Err(CommitError::Unknown(cause)) => {
                    match check_commit(self.engine.as_ref(), &plan.changes).await {
                        Ok(CommitState::Applied) => return Ok(self.finish(plan, Vec::new())),
                        Ok(CommitState::Absent) => lost = Some((plan, cause)),
                        Ok(CommitState::Mixed) | Err(_) => {
                            return Err(self.unknown_outcome(O::NAME, &cause));
                        }
                    }
                    pause(attempt).await;
                }
            }
        }
        Err(match lost {
            Some((_, cause)) => self.unknown_outcome(O::NAME, &cause),
            None => Error::Contended(O::NAME),
        })
    }

    fn finish<T>(&self, plan: Plan<T>, receipts: Vec<i64>) -> Completed<T> {
        self.account_commit(&plan.changes, plan.effects);
        Completed { output: plan.output, receipts }
    }

    fn unknown_outcome(&self, what: &'static str, cause: &Error) -> Error {
        Error::Unknown { place: self.engine.address().to_owned(), what, cause: cause.to_string() }
    }
}

/// Waits before the next attempt. Conflicts are rare and short; the wait only has to separate two
/// clients that collide repeatedly.
async fn pause(attempt: u64) {
    let ceiling = (attempt + 1) * (attempt + 1);
    let micros = rand::rng().random_range(0..ceiling * 1000);
    if micros > 500 {
        tokio::time::sleep(Duration::from_micros(micros)).await;
    } else {
        tokio::task::yield_now().await;
    }
}
