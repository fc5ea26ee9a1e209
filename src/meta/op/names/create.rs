//! Create: a new node and its entry, for create, mkdir, mknod and symlink.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::meta::engine::{Change, Key};
use crate::meta::op::attrs::{access, acl};
use crate::meta::op::quota_check::{self, UsageRequest};
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Attr, DirStat, FileKind};
use crate::meta::{Caller, Ino, MetaTxn, Name, Operation, Plan, TxnLock};

const SETGID: u16 = 0o2000;
/// Setgid and group execute: together they make an inherited setgid bit dangerous on a file.
const SETGID_EXEC: u16 = 0o2010;

pub struct Create<'a> {
    pub caller: &'a Caller,
    pub dir: Ino,
    pub name: &'a Name,
    pub kind: FileKind,
    pub mode: u16,
    pub umask: u16,
    pub rdev: u32,
    /// The target of a symlink; empty otherwise.
    pub target: &'a Bytes,
    /// A new inode number.
    pub ino: Ino,
}

/// The outcome of [`Create`].
pub enum CreateOutcome {
    Created(Ino, Attr),
    /// The name exists and refers to this node.
    Existing(Ino, Attr),
}

impl Operation for Create<'_> {
    type Output = CreateOutcome;
    const NAME: &'static str = "create";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Name(self.dir, self.name.clone())
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<CreateOutcome>> {
        tx.prefetch_speculative(&[Key::Place(self.dir), Key::Lookup(self.dir, self.name.clone())])
            .await?;
        let dir = tx.dir(self.dir).await?;
        if dir.parent.is_sub_trash() {
            return Err(Error::NotFound);
        }
        access::check(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        access::may_add(&dir)?;
        if let Some(found) = tx.lookup(self.dir, self.name).await? {
            // Created by an earlier process, for the same request.
            if let Some(attr) = found.attr.clone().filter(|_| found.entry.ino == self.ino) {
                return Ok(Plan::unchanged(CreateOutcome::Created(self.ino, attr)));
            }
            // The entry refers to a missing node; only its type is known.
            let attr = found.attr.unwrap_or_else(|| {
                Attr::new(found.entry.kind, 0, 0, 0, self.dir, crate::meta::Timestamp::default())
            });
            return Ok(Plan::unchanged(CreateOutcome::Existing(found.entry.ino, attr)));
        }

        let node = self.node(tx, &dir).await?;
        let wanted = UsageRequest { uid: node.uid, gid: node.gid, space: 4096, inodes: 1 };
        if self.dir != Ino::TRASH {
            quota_check::check(tx, wanted, &[self.dir]).await?;
        }

        let mut plan = Plan::new();
        plan.put_attr(self.ino, &node);
        let mut updated = false;
        if self.dir != Ino::TRASH {
            let links = i64::from(self.kind == FileKind::Dir);
            updated = plan.touch_dir_if_due(tx, self.dir, &dir, links);
        }
        if self.kind == FileKind::Symlink {
            plan.push(Change::PutSymlink(self.ino, self.target.clone()));
        }
        plan.put_entry(self.dir, self.name, self.kind, self.ino);
        if self.kind == FileKind::Dir {
            plan.push(Change::PutDirStat(self.ino, DirStat::default()));
        }
        plan.add_usage(4096, 1);
        if self.dir != Ino::TRASH {
            plan.add_dir_usage(self.dir, 0, 4096, 1);
            plan.add_owner_usage(node.uid, node.gid, 4096, 1);
        }
        plan.log(tx, self.line(updated));
        Ok(plan.with_output(CreateOutcome::Created(self.ino, node)))
    }
}

impl Create<'_> {
    async fn node(&self, tx: &mut MetaTxn<'_>, dir: &Attr) -> Result<Attr> {
        let gid = if dir.mode & SETGID != 0 { dir.gid } else { self.caller.gid };
        let mut node = Attr::new(self.kind, self.mode, self.caller.uid, gid, self.dir, tx.now());
        match self.kind {
            FileKind::Symlink => node.length = self.target.len() as u64,
            FileKind::Dir => {}
            _ => node.rdev = self.rdev,
        }
        node.tier = dir.tier;
        node.flags |= dir.flags & flag::SKIP_TRASH;
        if dir.default_acl != 0 && self.kind != FileKind::Symlink {
            acl::inherit(tx, dir.default_acl, &mut node).await?;
        } else {
            node.mode &= !self.umask;
        }
        if dir.mode & SETGID != 0 {
            if self.kind == FileKind::Dir {
                node.mode |= SETGID;
            } else if self.caller.check
                && !self.caller.is_root()
                && node.mode & SETGID_EXEC == SETGID_EXEC
                && !self.caller.in_group(dir.gid)
            {
                node.mode &= !SETGID;
            }
        }
        Ok(node)
    }

    fn line(&self, touches_parent: bool) -> LogOp<'_> {
        LogOp::Create {
            parent: self.dir,
            name: self.name,
            uid: self.caller.uid,
            gid: self.caller.gid,
            kind: self.kind,
            mode: self.mode & 0o7777,
            umask: self.umask,
            target: self.target,
            touches_parent,
            ino: self.ino,
        }
    }
}
