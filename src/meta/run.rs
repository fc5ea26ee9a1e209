//! The run loop: plan, commit, and what to do when the commit does not go through.

mod lanes;
mod look;

use std::future::Future;
use std::time::{Duration, Instant};

use rand::RngExt;

pub use lanes::Lane;
pub(super) use lanes::Lanes;
use look::{Look, look};

use super::client::Meta;
use super::engine::CommitError;
use super::{MetaTxn, Plan};
use crate::error::{Error, Result};

/// Conflicts in a row before an operation gives up.
const MAX_ATTEMPTS: u64 = 50;

/// One file-system operation: a small struct that plans itself.
pub trait Operation: Send + Sync {
    type Output: Send;

    /// The name in errors and metrics.
    const NAME: &'static str;

    /// What must not be worked on at once by two tasks of this process.
    fn lane(&self) -> Lane {
        Lane::Free
    }

    /// Reads what it depends on, refuses or computes, and answers the changes.
    fn plan(&self, tx: &mut MetaTxn<'_>)
    -> impl Future<Output = Result<Plan<Self::Output>>> + Send;
}

/// An operation's answer, and the commit's number for each change (empty if nothing was committed
/// or the commit's answer was lost).
pub(super) struct Done<T> {
    pub output: T,
    pub receipts: Vec<i64>,
}

impl Meta {
    /// Runs an operation to its end: planned, committed, its effects booked.
    pub(super) async fn run<O: Operation>(&self, op: &O) -> Result<O::Output> {
        Ok(self.run_counted(op).await?.output)
    }

    pub(super) async fn run_counted<O: Operation>(&self, op: &O) -> Result<Done<O::Output>> {
        let begun = Instant::now();
        let done = self.run_to_end(op).await;
        self.times.ran(O::NAME, begun.elapsed());
        done
    }

    async fn run_to_end<O: Operation>(&self, op: &O) -> Result<Done<O::Output>> {
        let _lane = self.lanes.enter(op.lane()).await;
        // A plan whose commit was sent and never answered. It may take effect at any moment, so it
        // is looked for before anything else is concluded.
        let mut lost: Option<(Plan<O::Output>, Error)> = None;
        for attempt in 0..MAX_ATTEMPTS {
            self.check_ours()?;
            let begun = Instant::now();
            let mut tx = MetaTxn::new(self.engine.begin(), &self.facts);
            if attempt == 0 {
                tx.allow_supposing();
            }
            self.counts.plan();
            let planned = op.plan(&mut tx).await;
            let commits = planned.as_ref().is_ok_and(|plan| !plan.changes.is_empty());
            if tx.has_supposed() && !commits {
                // Refusing, or finding nothing to do, takes what is really there.
                continue;
            }
            if let Some(rule) = tx.take_wanted_rule() {
                self.refuse_writes()?;
                drop(tx);
                self.acl_id(&rule).await?;
                continue;
            }
            if let Some((plan, cause)) = lost.take() {
                match look(self.engine.as_ref(), &plan.changes).await? {
                    Look::Applied => return Ok(self.finish(plan, Vec::new())),
                    Look::Absent => lost = Some((plan, cause)),
                    Look::Mixed => return Err(self.unknown(O::NAME, &cause)),
                }
            }
            let plan = planned?;
            if plan.changes.is_empty() {
                return Ok(self.finish(plan, Vec::new()));
            }
            self.refuse_writes()?;
            let counted = self.facts.changes.begin();
            let committed = tx.commit(&plan.changes).await;
            drop(counted);
            self.times.committed(begun.elapsed());
            match committed {
                Ok(receipts) => return Ok(self.finish(plan, receipts)),
                // It was only supposed: the next plan reads.
                Err(CommitError::Conflict) if tx.has_supposed() => {}
                Err(CommitError::Conflict) => {
                    self.counts.conflict();
                    self.times.restarted(O::NAME);
                    pause(attempt).await;
                }
                Err(CommitError::Failed(error)) => return Err(error),
                Err(CommitError::Unknown(cause)) => {
                    match look(self.engine.as_ref(), &plan.changes).await {
                        Ok(Look::Applied) => return Ok(self.finish(plan, Vec::new())),
                        Ok(Look::Absent) => lost = Some((plan, cause)),
                        Ok(Look::Mixed) | Err(_) => return Err(self.unknown(O::NAME, &cause)),
                    }
                    pause(attempt).await;
                }
            }
        }
        Err(match lost {
            Some((_, cause)) => self.unknown(O::NAME, &cause),
            None => Error::Contended(O::NAME),
        })
    }

    fn finish<T>(&self, plan: Plan<T>, receipts: Vec<i64>) -> Done<T> {
        self.book(&plan.changes, plan.effects);
        Done { output: plan.output, receipts }
    }

    fn unknown(&self, what: &'static str, cause: &Error) -> Error {
        Error::Unknown { place: self.engine.address().to_owned(), what, cause: cause.to_string() }
    }
}

/// Conflicts are rare and short; the wait only has to part two clients that collide in step.
async fn pause(attempt: u64) {
    let ceiling = (attempt + 1) * (attempt + 1);
    let micros = rand::rng().random_range(0..ceiling * 1000);
    if micros > 500 {
        tokio::time::sleep(Duration::from_micros(micros)).await;
    } else {
        tokio::task::yield_now().await;
    }
}
