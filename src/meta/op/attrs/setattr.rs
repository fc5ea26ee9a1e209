//! Setattr: owner, mode, times, flags, tier. The length is changed by truncate.

use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::op::attrs::{access, acl};
use crate::meta::record::Attr;
use crate::meta::record::changelog::LogOp;
use crate::meta::{AttrSet, Caller, Ino, MetaTxn, Operation, Plan, TimeSet, Timestamp, TxnLock};

const SETUID_SETGID: u16 = 0o6000;
const SETGID: u16 = 0o2000;

pub struct SetAttr<'a> {
    pub caller: &'a Caller,
    pub ino: Ino,
    pub set: AttrSet,
}

impl Operation for SetAttr<'_> {
    type Output = Attr;
    const NAME: &'static str = "setattr";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Attr>> {
        tx.prefetch_speculative(&[Key::Attr(self.ino)]).await?;
        let before = tx.node(self.ino).await?;
        if before.parent.is_sub_trash() {
            return Err(Error::NotPermitted);
        }
        let mut node = before.clone();
        let mode = self.set_owner(&before, &mut node)?;
        if let Some(mode) = mode {
            self.set_mode(tx, &before, &mut node, mode).await?;
        }
        self.set_times(tx, &before, &mut node).await?;
        node.flags = self.set.flags.unwrap_or(node.flags);
        node.tier = self.set.tier.unwrap_or(node.tier);
        if node == before && !self.always_writes(&before) {
            return Ok(Plan::unchanged(before));
        }
        node.ctime = tx.now();

        let mut plan = Plan::new();
        plan.put_attr(self.ino, &node);
        if (node.uid, node.gid) != (before.uid, before.gid) {
            plan.add_owner_usage(before.uid, before.gid, -node.space(), -1);
            plan.add_owner_usage(node.uid, node.gid, node.space(), 1);
        }
        let line =
            LogOp::SetAttr { ino: self.ino, set: log_mask(&self.set), clear_mode: 0, attr: &node };
        plan.log(tx, line);
        Ok(plan.with_output(node))
    }
}

impl SetAttr<'_> {
    /// Whether the change is written even if it sets the values that are stored already.
    fn always_writes(&self, before: &Attr) -> bool {
        let owner = self.set.uid.is_some() || self.set.gid.is_some();
        self.set.flags.is_some()
            || self.set.tier.is_some()
            || (owner && before.mode & SETUID_SETGID != 0)
            || (self.set.mode.is_some() && before.access_acl != 0)
    }

    /// Sets uid and gid; returns the mode still to be set.
    fn set_owner(&self, before: &Attr, node: &mut Attr) -> Result<Option<u16>> {
        let mut mode = self.set.mode.map(|mode| mode & 0o7777);
        let (caller, set) = (self.caller, &self.set);
        if set.uid.is_none() && set.gid.is_none() {
            return Ok(mode);
        }
        mode = mode.map(|mode| mode | (before.mode & SETUID_SETGID));
        if before.mode & SETUID_SETGID != 0 && !before.is_dir() {
            // As ext4: a file that changes its owner loses setuid, and also setgid if the group may
            // execute it or the caller is not in the group. The caller's groups are known only if
            // this client checks permissions.
            let stranger = caller.check && !caller.is_root() && !caller.in_group(before.gid);
            let keep = if stranger || before.mode & 0o010 != 0 { 0o1777 } else { 0o3777 };
            node.mode &= keep;
            mode = mode.map(|mode| mode & keep);
        }
        if let Some(gid) = set.gid {
            if !caller.is_root() && caller.uid != before.uid {
                return Err(Error::NotPermitted);
            }
            let foreign = caller.check && !caller.is_root() && !caller.in_group(gid);
            if before.gid != gid && foreign {
                return Err(Error::NotPermitted);
            }
            node.gid = gid;
        }
        if let Some(uid) = set.uid.filter(|uid| *uid != before.uid) {
            if caller.check && !caller.is_root() {
                return Err(Error::NotPermitted);
            }
            node.uid = uid;
        }
        Ok(mode)
    }

    async fn set_mode(
        &self,
        tx: &mut MetaTxn<'_>,
        before: &Attr,
        node: &mut Attr,
        mut mode: u16,
    ) -> Result<()> {
        let caller = self.caller;
        if caller.check && !caller.is_root() && mode & SETGID != 0 && !caller.in_group(before.gid) {
            mode &= !SETGID;
        }
        let stranger = !caller.is_root() && caller.uid != before.uid;
        // Other users only get here when the kernel clears setuid and setgid after a write.
        let only_clears = before.mode & 0o1777 == mode & 0o1777 && mode & !before.mode == 0;
        if stranger && mode != before.mode && !only_clears {
            return Err(Error::NotPermitted);
        }
        if before.access_acl != 0 {
            return acl::chmod(tx, node, mode).await;
        }
        node.mode = mode;
        Ok(())
    }

    async fn set_times(&self, tx: &mut MetaTxn<'_>, before: &Attr, node: &mut Attr) -> Result<()> {
        if let Some(time) = self.set.atime {
            node.atime = self.time(tx, before, time, before.atime).await?;
        }
        if let Some(time) = self.set.mtime {
            node.mtime = self.time(tx, before, time, before.mtime).await?;
        }
        Ok(())
    }

    async fn time(
        &self,
        tx: &mut MetaTxn<'_>,
        before: &Attr,
        time: TimeSet,
        current: Timestamp,
    ) -> Result<Timestamp> {
        let wanted = match time {
            // Clients on SQL engines convert a fraction of a second before 1970 wrongly.
            TimeSet::At(at) if at.sec < 0 => Timestamp::from_secs(at.sec),
            TimeSet::At(at) => at,
            TimeSet::Now => tx.now(),
        };
        if wanted == current {
            return Ok(current);
        }
        let explicit = matches!(time, TimeSet::At(_));
        if explicit && before.uid == 0 && !self.caller.is_root() {
            return Err(Error::NotPermitted);
        }
        if self.caller.uid != before.uid {
            access::check(tx, self.caller, before, access::WRITE).await?;
        }
        Ok(wanted)
    }
}

/// The bit mask of the changed attributes in JuiceFS's change log.
fn log_mask(set: &AttrSet) -> u16 {
    let time = |time: Option<TimeSet>, at: u16, now: u16| match time {
        None => 0,
        Some(TimeSet::At(_)) => at,
        Some(TimeSet::Now) => now,
    };
    let bit = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
    bit(set.mode.is_some(), 1)
        | bit(set.uid.is_some(), 2)
        | bit(set.gid.is_some(), 4)
        | time(set.atime, 0x10, 0x80)
        | time(set.mtime, 0x20, 0x100)
        | bit(set.tier.is_some(), 0x400)
        | bit(set.flags.is_some(), 0x8000)
}
