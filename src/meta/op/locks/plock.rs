//! Plock: POSIX record locks, which a process holds on ranges of a file for reading or writing.

use crate::error::Result;
use crate::meta::engine::Change;
use crate::meta::op::locks::claim;
use crate::meta::op::locks::claim::{Claim, LockAttempt, LockFamily, LockRequest};
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{LockKind, Plock, PlockRange, lock};
use crate::meta::{Ino, LockOwner, MetaTxn, Operation, Plan, Sid, TxnLock};

/// Sets or releases one range of an owner; it replaces what the owner held there.
#[derive(Debug, Clone)]
pub struct SetPlock {
    pub ino: Ino,
    pub owner: LockOwner,
    /// `None` releases; releasing a lock that is not held succeeds.
    pub kind: Option<LockKind>,
    pub start: u64,
    /// Inclusive.
    pub end: u64,
    pub pid: u32,
}

impl Operation for SetPlock {
    type Output = LockAttempt;
    const NAME: &'static str = "setlk";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::FileLocks(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<LockAttempt>> {
        let (ino, owner, sid) = (self.ino, self.owner, tx.context().sid());
        let mut locks = tx.plocks(ino).await?;
        let held = claim::of_plocks(&locks);
        let before: Vec<Claim> =
            held.iter().filter(|claim| claim.is_of(sid, owner)).copied().collect();
        let tried = |granted, held| LockAttempt { granted, held, before: before.clone() };

        let wanted = self.claim(sid);
        if wanted.is_some_and(|wanted| held.iter().any(|claim| claim.conflicts_with(&wanted))) {
            return Ok(Plan::unchanged(tried(false, held)));
        }
        let old: Vec<PlockRange> = before.iter().map(|claim| claim.range).collect();
        let ranges = match wanted {
            Some(wanted) => lock::lock(&old, wanted.range),
            None => lock::unlock(&old, self.start, self.end),
        };
        if ranges == old {
            return Ok(Plan::unchanged(tried(true, held)));
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
        plan.log(tx, LogOp::SetLk { ino, owner, kind, start, end, pid });
        Ok(plan.with_output(tried(true, claim::of_plocks(&locks))))
    }
}

impl LockRequest for SetPlock {
    const FAMILY: LockFamily = LockFamily::Plock;

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

    /// Ranges that were held are set again; the gaps between them are released.
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

/// Finds the first range that conflicts with a lock. Its process id is only known if it belongs to
/// this session.
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
        let sid = tx.context().sid();
        let range = PlockRange { kind: self.kind, pid: 0, start: self.start, end: self.end };
        let wanted = Claim { sid, owner: self.owner, range };
        let first = claim::of_plocks(&tx.plocks(self.ino).await?)
            .into_iter()
            .filter(|claim| claim.conflicts_with(&wanted))
            .min_by_key(|claim| claim.range.start);
        Ok(Plan::unchanged(first.map(|claim| {
            let pid = if claim.sid == sid { claim.range.pid } else { 0 };
            PlockRange { pid, ..claim.range }
        })))
    }
}
