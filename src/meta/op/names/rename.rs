//! Rename: gives a node another name, possibly in another directory, possibly replacing a node.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::meta::context::cycle::CycleDetector;
use crate::meta::engine::{Change, Found, Key};
use crate::meta::op::attrs::access;
use crate::meta::op::names::remove_link::remove_link;
use crate::meta::op::names::rmdir::drop_dir;
use crate::meta::op::quota_check;
use crate::meta::plan::SubtreeUsage;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Caller, EntryRef, Ino, MetaTxn, Operation, Plan, RenameMode, TxnLock};

/// Usage of a whole subtree, including its top directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subtree {
    pub ino: Ino,
    pub space: i64,
    pub inodes: i64,
}

pub struct Rename<'a> {
    pub caller: &'a Caller,
    pub from: EntryRef<'a>,
    pub to: EntryRef<'a>,
    pub mode: RenameMode,
    /// The hour directory of the trash, if a replaced node is kept.
    pub hour: Option<Ino>,
    /// Usage of the directories that move from one set of quotas to another.
    pub subtrees: &'a [Subtree],
}

/// The outcome of a rename.
pub struct Renamed {
    pub ino: Ino,
    pub attr: Option<Attr>,
    /// The node that had the new name; with an exchange it has the old name now.
    pub other: Option<Ino>,
}

impl Operation for Rename<'_> {
    type Output = Renamed;
    const NAME: &'static str = "rename";

    fn txn_lock(&self) -> TxnLock {
        let (from, to) = (self.from, self.to);
        TxnLock::Names((from.dir, from.name.clone()), (to.dir, to.name.clone()))
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Renamed>> {
        let EntryRef { dir: src, name: old } = self.from;
        let EntryRef { dir: dst, name: new } = self.to;
        tx.prefetch_speculative(&[
            Key::Place(src),
            Key::Place(dst),
            Key::Lookup(src, old.clone()),
            Key::Lookup(dst, new.clone()),
        ])
        .await?;
        let (moving, taken) = (tx.lookup(src, old).await?, tx.lookup(dst, new).await?);
        if let Some(done) = self.done_before(moving.as_ref(), taken.as_ref()) {
            return Ok(Plan::unchanged(done));
        }
        self.caller.intend([0; 4]);
        let moving = moving.ok_or(Error::NotFound)?;
        let same_place = src == dst && old == new;
        let same_node = taken.as_ref().is_some_and(|taken| taken.entry.ino == moving.entry.ino);
        if !same_place && taken.is_some() && self.forbids_replacing() {
            return Err(Error::Exists);
        }
        if same_place || same_node {
            let (ino, attr) = (moving.entry.ino, moving.attr);
            return Ok(Plan::unchanged(Renamed { ino, attr, other: None }));
        }
        let src_dir = tx.dir(src).await?;
        let dst_dir = tx.dir(dst).await?;
        let node = moving.attr.clone().ok_or(Error::NotFound)?;
        let planned = Move { op: self, src_dir, dst_dir, moving, node, taken };
        planned.check(tx).await?;
        let other = planned.taken.as_ref().map_or(0, |taken| taken.entry.ino.0);
        self.caller.intend([planned.moving.entry.ino.0, other, 0, 0]);
        planned.plan(tx).await
    }
}

impl Rename<'_> {
    fn forbids_replacing(&self) -> bool {
        matches!(self.mode, RenameMode::NoReplace | RenameMode::Restore)
    }

    fn is_exchange(&self) -> bool {
        self.mode == RenameMode::Exchange
    }

    /// Returns the outcome if an earlier process has renamed, for the same request.
    fn done_before(&self, old: Option<&Found>, new: Option<&Found>) -> Option<Renamed> {
        let [moved, other, ..] = self.caller.earlier_intent()?;
        let new = new.filter(|new| new.entry.ino.0 == moved)?;
        let ino_of_old = old.map_or(0, |old| old.entry.ino.0);
        let is_done = if self.is_exchange() { ino_of_old == other } else { ino_of_old != moved };
        is_done.then(|| Renamed { ino: Ino(moved), attr: new.attr.clone(), other: None })
    }

    fn line(&self, replaced: Option<Ino>, hour: Option<Ino>, ino: Ino) -> LogOp<'_> {
        let flags = match self.mode {
            RenameMode::Replace => 0,
            RenameMode::NoReplace => 1,
            RenameMode::Exchange => 2,
            RenameMode::Restore => 33,
        };
        let (replaced, trash) = (replaced.unwrap_or(Ino::NONE), hour.unwrap_or(Ino::NONE));
        let (from, to) = ((self.from.dir, self.from.name), (self.to.dir, self.to.name));
        LogOp::Move { from, to, flags, replaced, trash, ino }
    }

    /// Usage that moves with a node, besides its own entry.
    fn usage_below(&self, ino: Ino) -> (i64, i64) {
        let tree = self.subtrees.iter().find(|tree| tree.ino == ino);
        tree.map_or((0, 0), |tree| (tree.space - 4096, tree.inodes - 1))
    }
}

/// Fails if the directory would end up below itself. The kernel prevents that within one mount;
/// this is for concurrent moves by several clients, and for callers without a kernel.
async fn check_no_loop(tx: &mut MetaTxn<'_>, moving: Ino, into: &Attr) -> Result<()> {
    let context = tx.context();
    let mut up = into.parent;
    let mut cycle = CycleDetector::default();
    let mut read = HashMap::new();
    while up != Ino::ROOT && up != Ino::NONE && !up.is_trash() {
        if up == moving {
            return Err(Error::Invalid);
        }
        if cycle.revisits(up) {
            return Err(Error::damaged(format!("directory {up}"), "it is its own ancestor"));
        }
        if !read.contains_key(&up) {
            let asked = context.parents.likely_ancestors(up);
            let attrs = tx.peek_attrs(&asked).await?;
            read = asked.into_iter().zip(attrs).collect();
        }
        match read.get(&up) {
            Some(Some(dir)) => up = dir.parent,
            _ => break,
        }
    }
    Ok(())
}

/// A rename with the records it depends on.
struct Move<'a> {
    op: &'a Rename<'a>,
    src_dir: Attr,
    dst_dir: Attr,
    moving: Found,
    node: Attr,
    taken: Option<Found>,
}

impl Move<'_> {
    async fn check(&self, tx: &mut MetaTxn<'_>) -> Result<()> {
        let Self { op, src_dir, dst_dir, moving, node, taken } = self;
        let taken = taken.as_ref();
        let (src, dst) = (op.from.dir, op.to.dir);
        match taken {
            Some(_) if op.is_exchange() => {}
            Some(taken) => match (node.is_dir(), taken.entry.kind == FileKind::Dir) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                _ => {}
            },
            None if op.is_exchange() => return Err(Error::NotFound),
            None => {}
        }
        access::check(tx, op.caller, src_dir, access::WRITE | access::EXEC).await?;
        if op.mode != RenameMode::Restore && dst_dir.parent.is_sub_trash() {
            return Err(Error::NotFound);
        }
        access::check(tx, op.caller, dst_dir, access::WRITE | access::EXEC).await?;
        if moving.entry.ino == dst || moving.entry.ino == dst_dir.parent {
            return Err(Error::NotPermitted);
        }
        let frozen = flag::APPEND | flag::IMMUTABLE;
        if src_dir.has_flag(frozen) || dst_dir.has_flag(flag::IMMUTABLE) || node.has_flag(frozen) {
            return Err(Error::NotPermitted);
        }
        access::check_sticky(op.caller, src_dir, node)?;
        if src != dst && node.is_dir() {
            access::check_sticky_move(op.caller, src_dir, node)?;
            check_no_loop(tx, moving.entry.ino, dst_dir).await?;
        }
        let Some(taken) = taken else { return Ok(()) };
        if let Some(attr) = &taken.attr {
            if attr.has_flag(frozen) {
                return Err(Error::NotPermitted);
            }
            if !op.is_exchange() && attr.is_dir() && tx.has_entries(taken.entry.ino).await? {
                return Err(Error::NotEmpty);
            }
            access::check_sticky(op.caller, dst_dir, attr)?;
            if op.is_exchange() && src != dst && attr.is_dir() {
                if taken.entry.ino == src || taken.entry.ino == src_dir.parent {
                    return Err(Error::NotPermitted);
                }
                check_no_loop(tx, taken.entry.ino, src_dir).await?;
            }
        }
        Ok(())
    }

    async fn plan(mut self, tx: &mut MetaTxn<'_>) -> Result<Plan<Renamed>> {
        let op = self.op;
        let EntryRef { dir: src, name: old } = op.from;
        let EntryRef { dir: dst, name: new } = op.to;
        let ino = self.moving.entry.ino;
        let mut plan = Plan::new();
        let (mut src_links, mut dst_links) = (0i64, 0i64);

        if src != dst {
            let (space, inodes) = op.usage_below(ino);
            quota_check::check_move(tx, src, dst, self.node.space() + space, 1 + inodes).await?;
            self.charge(&mut plan, &self.node, ino, src, dst);
            if self.node.is_dir() {
                src_links -= 1;
                dst_links += 1;
            }
        }
        let mut hour = None;
        if op.is_exchange() {
            if let Some(taken) = self.taken.clone() {
                dst_links -= self.give_old_name(tx, &mut plan, &taken, &mut src_links);
            }
        } else {
            plan.remove_entry(src, old);
            if let Some(taken) = self.taken.clone() {
                hour = self.remove_replaced(tx, &mut plan, &taken, &mut dst_links).await?;
            }
        }
        Self::relocate(tx, &mut plan, ino, &mut self.node, src, dst);
        plan.put_entry(dst, new, self.moving.entry.kind, ino);
        self.update_dirs(tx, &mut plan, src_links, dst_links);
        if self.node.is_dir() {
            plan.effects.moved_dirs.push(ino);
        }
        let other = self.taken.as_ref().map(|taken| taken.entry.ino);
        plan.log(tx, op.line(other, hour, ino));
        Ok(plan.with_output(Renamed { ino, attr: Some(self.node), other }))
    }

    /// Gives the old name to the node that had the new name. Returns 1 if it is a directory that
    /// leaves the target directory.
    fn give_old_name(
        &self,
        tx: &MetaTxn<'_>,
        plan: &mut Plan<()>,
        taken: &Found,
        src_links: &mut i64,
    ) -> i64 {
        let EntryRef { dir: src, name: old } = self.op.from;
        let dst = self.op.to.dir;
        let ino = taken.entry.ino;
        plan.put_entry(src, old, taken.entry.kind, ino);
        let Some(mut other) = taken.attr.clone() else { return 0 };
        Self::relocate(tx, plan, ino, &mut other, dst, src);
        if other.is_dir() {
            plan.effects.moved_dirs.push(ino);
        }
        if src == dst {
            return 0;
        }
        self.charge(plan, &other, ino, dst, src);
        let is_dir = i64::from(other.is_dir());
        *src_links += is_dir;
        is_dir
    }

    /// Removes the node that had the new name.
    async fn remove_replaced(
        &self,
        tx: &mut MetaTxn<'_>,
        plan: &mut Plan<()>,
        taken: &Found,
        dst_links: &mut i64,
    ) -> Result<Option<Ino>> {
        let ino = taken.entry.ino;
        if let Some(other) = &taken.attr {
            let length = if other.is_file() { other.length.cast_signed() } else { 0 };
            plan.add_dir_usage(self.op.to.dir, -length, -other.space(), -1);
        }
        if taken.entry.kind != FileKind::Dir {
            return Ok(remove_link(tx, plan, self.op.to, taken, self.op.hour).await?.trash);
        }
        *dst_links -= 1;
        plan.push(Change::RemoveDirQuota(ino));
        Ok(drop_dir(tx, plan, self.op.to, ino, taken.attr.as_ref(), self.op.hour))
    }

    /// Updates the node's own record: its ctime, and its parent if it stores one.
    fn relocate(
        tx: &MetaTxn<'_>,
        plan: &mut Plan<()>,
        ino: Ino,
        node: &mut Attr,
        from: Ino,
        to: Ino,
    ) {
        node.ctime = tx.now();
        if from != to {
            if node.is_dir() || node.parent != Ino::NONE {
                node.parent = to;
            } else {
                plan.push(Change::AddParent { ino, parent: to, count: 1 });
                plan.push(Change::AddParent { ino, parent: from, count: -1 });
            }
        }
        plan.put_attr(ino, node);
    }

    /// Moves the usage of a node from one directory to another.
    fn charge(&self, plan: &mut Plan<()>, node: &Attr, ino: Ino, from: Ino, to: Ino) {
        let length = if node.is_file() { node.length.cast_signed() } else { 0 };
        plan.add_dir_usage(from, -length, -node.space(), -1);
        plan.add_dir_usage(to, length, node.space(), 1);
        let (space, inodes) = self.op.usage_below(ino);
        if node.is_dir() && inodes != 0 {
            plan.effects.subtrees.push(SubtreeUsage { dir: from, space: -space, inodes: -inodes });
            plan.effects.subtrees.push(SubtreeUsage { dir: to, space, inodes });
        }
    }

    fn update_dirs(&self, tx: &MetaTxn<'_>, plan: &mut Plan<()>, src_links: i64, dst_links: i64) {
        let (src, dst) = (self.op.from.dir, self.op.to.dir);
        if src != dst && !src.is_trash() {
            plan.touch_dir_if_due(tx, src, &self.src_dir, src_links);
        }
        plan.touch_dir_if_due(tx, dst, &self.dst_dir, dst_links);
    }
}
