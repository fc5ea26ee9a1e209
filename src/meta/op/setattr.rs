//! Setattr: owner, mode, times, flags, tier. The length is truncate's business.

use super::{access, acl, log};
use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::record::Attr;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Caller, Ino, Lane, MetaTxn, Operation, Plan, Timestamp};

const SETUID_SETGID: u16 = 0o6000;
const SETGID: u16 = 0o2000;

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSet {
    Now,
    At(Timestamp),
}

/// What to change; `None` leaves as is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttrSet {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<TimeSet>,
    pub mtime: Option<TimeSet>,
    pub flags: Option<u8>,
    pub tier: Option<u8>,
}

pub struct SetAttr<'a> {
    pub caller: &'a Caller,
    pub ino: Ino,
    pub set: AttrSet,
}

impl Operation for SetAttr<'_> {
    type Output = Attr;
    const NAME: &'static str = "setattr";

    fn lane(&self) -> Lane {
        Lane::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Attr>> {
        tx.expect(&[Key::Attr(self.ino)]).await?;
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
            return Ok(Plan::answer(before));
        }
        node.ctime = tx.now();

        let mut plan = Plan::new();
        plan.put_attr(self.ino, &node);
        if (node.uid, node.gid) != (before.uid, before.gid) {
            plan.use_owner(before.uid, before.gid, -node.space(), -1);
            plan.use_owner(node.uid, node.gid, node.space(), 1);
        }
        let line =
            LogOp::SetAttr { ino: self.ino, set: self.set.bits(), clear_mode: 0, attr: &node };
        log::log(tx, &mut plan, line);
        Ok(plan.with(node))
    }
}

impl SetAttr<'_> {
    /// Changes of these kinds count as changes even if they say what is there already.
    fn always_writes(&self, before: &Attr) -> bool {
        let owner = self.set.uid.is_some() || self.set.gid.is_some();
        self.set.flags.is_some()
            || self.set.tier.is_some()
            || (owner && before.mode & SETUID_SETGID != 0)
            || (self.set.mode.is_some() && before.access_acl != 0)
    }

    /// Sets uid and gid; answers the mode still to be set.
    fn set_owner(&self, before: &Attr, node: &mut Attr) -> Result<Option<u16>> {
        let mut mode = self.set.mode.map(|mode| mode & 0o7777);
        let (caller, set) = (self.caller, &self.set);
        if set.uid.is_none() && set.gid.is_none() {
            return Ok(mode);
        }
        mode = mode.map(|mode| mode | (before.mode & SETUID_SETGID));
        if before.mode & SETUID_SETGID != 0 && !before.is_dir() {
            // As ext4: a file that changes hands loses setuid, and setgid if the group may run it
            // or the caller is not of the group. Which groups those are is known only if this
            // client checks.
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
        // A stranger only gets here when the kernel clears setuid and setgid after a write.
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
            // Clients on SQL divide microseconds in a way that makes a fraction before 1970 wrong.
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
            access::permits(tx, self.caller, before, access::WRITE).await?;
        }
        Ok(wanted)
    }
}

impl AttrSet {
    /// The mask of JuiceFS's change log.
    fn bits(&self) -> u16 {
        let time = |time: Option<TimeSet>, at: u16, now: u16| match time {
            None => 0,
            Some(TimeSet::At(_)) => at,
            Some(TimeSet::Now) => now,
        };
        let bit = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
        bit(self.mode.is_some(), 1)
            | bit(self.uid.is_some(), 2)
            | bit(self.gid.is_some(), 4)
            | time(self.atime, 0x10, 0x80)
            | time(self.mtime, 0x20, 0x100)
            | bit(self.tier.is_some(), 0x400)
            | bit(self.flags.is_some(), 0x8000)
    }
}
