//! Plock: POSIX record locks, ranges of a file that a process holds for reading or writing.

use super::claim::{self, Claim, Family, LockRequest, Tried};
use super::log;
use crate::error::Result;
use crate::meta::engine::Change;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{LockKind, Plock, PlockRange, lock};
use crate::meta::{Ino, Lane, LockOwner, MetaTxn, Operation, Plan, Sid};

/// Sets or releases one range of an owner; what it held there before is replaced.
#[derive(Debug, Clone)]
pub struct SetPlock {
    pub ino: Ino,
    pub owner: LockOwner,
    /// `None` releases; releasing what is not held is fine.
    pub kind: Option<LockKind>,
    pub start: u64,
    /// Inclusive.
    pub end: u64,
    pub pid: u32,
}

impl Operation for SetPlock {
    type Output = Tried;
    const NAME: &'static str = "setlk";

    fn lane(&self) -> Lane {
        Lane::Locks(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Tried>> {
        let (ino, owner, sid) = (self.ino, self.owner, tx.facts().sid());
        let mut locks = tx.plocks(ino).await?;
        let held = claim::of_plocks(&locks);
        let before: Vec<Claim> =
            held.iter().filter(|claim| claim.is_of(sid, owner)).copied().collect();
        let tried = |granted, held| Tried { granted, held, before: before.clone() };

        let wanted = self.claim(sid);
        if wanted.is_some_and(|wanted| held.iter().any(|claim| claim.clashes(&wanted))) {
            return Ok(Plan::answer(tried(false, held)));
        }
        let old: Vec<PlockRange> = before.iter().map(|claim| claim.range).collect();
        let ranges = match wanted {
            Some(wanted) => lock::lock(&old, wanted.range),
            None => lock::unlock(&old, self.start, self.end),
        };
        if ranges == old {
            return Ok(Plan::answer(tried(true, held)));
        }

        let mut plan = Plan::new();
        locks.retain(|lock| !(lock.sid == sid && lock.owner == owner));
        if ranges.is_empty() {
            plan.push(Change::RemovePlock { ino, sid, owner });
        } else {
            plan.push(Change::PutPlock { ino, sid, owner, ranges: ranges.clone() });
            locks.push(Plock { sid, owner, ranges });
        }
        let Self { kind, start, end, pid, .. } = *self;
        log::log(tx, &mut plan, LogOp::SetLk { ino, owner, kind, start, end, pid });
        Ok(plan.with(tried(true, claim::of_plocks(&locks))))
    }
}

impl LockRequest for SetPlock {
    const FAMILY: Family = Family::Plock;

    fn ino(&self) -> Ino {
        self.ino
    }

    fn claim(&self, sid: Sid) -> Option<Claim> {
        let (pid, start, end) = (self.pid, self.start, self.end);
        self.kind.map(|kind| Claim {
            sid,
            owner: self.owner,
            range: PlockRange { kind, pid, start, end },
        })
    }

    /// What was held inside the range is set again, the gaps between are released.
    fn undo(&self, before: &[Claim]) -> Vec<Self> {
        let mut requests = Vec::new();
        let mut next = Some(self.start);
        for PlockRange { kind, pid, start, end } in before.iter().map(|claim| claim.range) {
            let (start, end) = (start.max(self.start), end.min(self.end));
            let Some(at) = next.filter(|_| start <= end) else { continue };
            if at < start {
                requests.push(Self { kind: None, start: at, end: start - 1, ..self.clone() });
            }
            requests.push(Self { kind: Some(kind), pid, start, end, ..self.clone() });
            next = end.checked_add(1);
        }
        if let Some(start) = next.filter(|at| *at <= self.end) {
            requests.push(Self { kind: None, start, ..self.clone() });
        }
        requests
    }
}

/// The first range in the way of such a lock. The process behind it is only known if it is ours.
#[derive(Debug)]
pub struct FindPlock {
    pub ino: Ino,
    pub owner: LockOwner,
    pub kind: LockKind,
    pub start: u64,
    pub end: u64,
}

impl Operation for FindPlock {
    type Output = Option<PlockRange>;
    const NAME: &'static str = "getlk";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Option<PlockRange>>> {
        let sid = tx.facts().sid();
        let range = PlockRange { kind: self.kind, pid: 0, start: self.start, end: self.end };
        let wanted = Claim { sid, owner: self.owner, range };
        let first = claim::of_plocks(&tx.plocks(self.ino).await?)
            .into_iter()
            .filter(|claim| claim.clashes(&wanted))
            .min_by_key(|claim| claim.range.start);
        Ok(Plan::answer(first.map(|claim| {
            let pid = if claim.sid == sid { claim.range.pid } else { 0 };
            PlockRange { pid, ..claim.range }
        })))
    }
}
