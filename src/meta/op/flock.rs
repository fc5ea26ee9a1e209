//! Flock: a whole-file lock, shared or exclusive, of one open file description.

use super::claim::{self, Claim, Family, LockRequest, Tried};
use super::log;
use crate::error::Result;
use crate::meta::engine::Change;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Flock, LockKind};
use crate::meta::{Ino, Lane, LockOwner, MetaTxn, Operation, Plan, Sid};

/// Sets an owner's flock, or releases it. A lock that is held already changes its kind in place: it
/// is never given up on the way, and kept if the new kind is not to be had.
#[derive(Debug, Clone)]
pub struct SetFlock {
    pub ino: Ino,
    pub owner: LockOwner,
    /// `None` releases; releasing what is not held is fine.
    pub kind: Option<LockKind>,
}

impl Operation for SetFlock {
    type Output = Tried;
    const NAME: &'static str = "flock";

    fn lane(&self) -> Lane {
        Lane::Locks(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Tried>> {
        let (ino, owner, sid) = (self.ino, self.owner, tx.facts().sid());
        let mut locks = tx.flocks(ino).await?;
        let held = claim::of_flocks(&locks);
        let before: Vec<Claim> =
            held.iter().filter(|claim| claim.is_of(sid, owner)).copied().collect();
        let tried = |granted, held| Tried { granted, held, before: before.clone() };

        let wanted = self.claim(sid);
        if wanted.is_some_and(|wanted| held.iter().any(|claim| claim.clashes(&wanted))) {
            return Ok(Plan::answer(tried(false, held)));
        }
        if wanted.as_slice() == before {
            return Ok(Plan::answer(tried(true, held)));
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
        log::log(tx, &mut plan, LogOp::Flock { ino, owner, kind: self.kind });
        Ok(plan.with(tried(true, claim::of_flocks(&locks))))
    }
}

impl LockRequest for SetFlock {
    const FAMILY: Family = Family::Flock;

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
