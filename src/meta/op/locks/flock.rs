//! Flock: whole-file locks of open file descriptions, shared or exclusive.

use crate::error::Result;
use crate::meta::engine::Change;
use crate::meta::op::locks::claim;
use crate::meta::op::locks::claim::{Claim, LockAttempt, LockFamily, LockRequest};
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Flock, LockKind};
use crate::meta::{Ino, LockOwner, MetaTxn, Operation, Plan, Sid, TxnLock};

/// Sets or releases an owner's flock. A held lock changes its kind in place: it is never released
/// in between, and it is kept if the new kind conflicts with another owner.
#[derive(Debug, Clone)]
pub struct SetFlock {
    pub ino: Ino,
    pub owner: LockOwner,
    /// `None` releases; releasing a lock that is not held succeeds.
    pub kind: Option<LockKind>,
}

impl Operation for SetFlock {
    type Output = LockAttempt;
    const NAME: &'static str = "flock";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::FileLocks(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<LockAttempt>> {
        let (ino, owner, sid) = (self.ino, self.owner, tx.context().sid());
        let mut locks = tx.flocks(ino).await?;
        let held = claim::of_flocks(&locks);
        let before: Vec<Claim> =
            held.iter().filter(|claim| claim.is_of(sid, owner)).copied().collect();
        let tried = |granted, held| LockAttempt { granted, held, before: before.clone() };

        let wanted = self.claim(sid);
        if wanted.is_some_and(|wanted| held.iter().any(|claim| claim.conflicts_with(&wanted))) {
            return Ok(Plan::unchanged(tried(false, held)));
        }
        if wanted.as_slice() == before {
            return Ok(Plan::unchanged(tried(true, held)));
        }

        let mut plan = Plan::new();
        locks.retain(|lock| !(lock.sid == sid && lock.owner == owner));
        match self.kind {
            Some(kind) => {
                locks.push(Flock { sid, owner, kind });
                plan.push(Change::PutFlock { ino, sid, owner, kind });
            }
            None => plan.push(Change::RemoveFlock { ino, sid, owner }),
        }
        plan.log(tx, LogOp::Flock { ino, owner, kind: self.kind });
        Ok(plan.with_output(tried(true, claim::of_flocks(&locks))))
    }
}

impl LockRequest for SetFlock {
    const FAMILY: LockFamily = LockFamily::Flock;

    fn ino(&self) -> Ino {
        self.ino
    }

    fn claim(&self, sid: Sid) -> Option<Claim> {
        self.kind.map(|kind| Claim::whole(sid, self.owner, kind))
    }

    fn undo(&self, before: &[Claim]) -> Vec<Self> {
        let kind = before.first().map(|claim| claim.range.kind);
        vec![Self { kind, ..self.clone() }]
    }
}
