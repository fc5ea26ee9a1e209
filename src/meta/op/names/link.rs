//! Link: adds a name to a node.

use crate::error::{Error, Result};
use crate::meta::engine::{Change, Key};
use crate::meta::op::attrs::access;
use crate::meta::op::quota_check::{self, UsageRequest};
use crate::meta::record::Attr;
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::{Caller, Ino, MetaTxn, Name, Operation, Plan, TxnLock};

pub struct Link<'a> {
    pub caller: &'a Caller,
    pub ino: Ino,
    pub dir: Ino,
    pub name: &'a Name,
}

impl Operation for Link<'_> {
    type Output = Attr;
    const NAME: &'static str = "link";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Attr>> {
        tx.prefetch_speculative(&[
            Key::Place(self.dir),
            Key::Entry(self.dir, self.name.clone()),
            Key::Attr(self.ino),
        ])
        .await?;
        let dir = tx.dir(self.dir).await?;
        if dir.parent.is_sub_trash() {
            return Err(Error::NotFound);
        }
        access::check(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        access::may_add(&dir)?;
        let mut node = tx.node(self.ino).await?;
        if node.is_dir() || node.has_flag(flag::APPEND | flag::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        // A node without names is one that this client created with O_TMPFILE and holds open. The
        // kernel refuses to link files whose last name was removed.
        let sid = tx.context().sid();
        let is_nameless = node.nlink == 0;
        if is_nameless && !tx.sustained(sid, self.ino).await? {
            return Err(Error::NotFound);
        }
        if let Some(entry) = tx.entry(self.dir, self.name).await? {
            // Linked by an earlier process, for the same request.
            if self.caller.earlier_intent().is_some() && entry.ino == self.ino {
                return Ok(Plan::unchanged(node));
            }
            self.caller.intend([0; 4]);
            return Err(Error::Exists);
        }
        self.caller.intend([self.ino.0, 0, 0, 0]);
        let space = node.space();
        let wanted = UsageRequest { uid: node.uid, gid: node.gid, space, inodes: 1 };
        quota_check::check_link(tx, wanted, self.dir).await?;

        let old_parent = node.parent;
        node.parent = if is_nameless { self.dir } else { Ino::NONE };
        node.nlink += 1;
        node.ctime = tx.now();

        let mut plan = Plan::new();
        plan.put_entry(self.dir, self.name, node.kind, self.ino);
        let touches_parent = plan.touch_dir_if_due(tx, self.dir, &dir, 0);
        plan.put_attr(self.ino, &node);
        if is_nameless {
            // Otherwise the cleanup of this session would delete a file that has a name.
            plan.push(Change::RemoveSustained(sid, self.ino));
        } else {
            if old_parent != Ino::NONE {
                plan.push(Change::AddParent { ino: self.ino, parent: old_parent, count: 1 });
            }
            plan.push(Change::AddParent { ino: self.ino, parent: self.dir, count: 1 });
        }
        let length = if node.is_file() { node.length.cast_signed() } else { 0 };
        plan.add_dir_usage(self.dir, length, space, 1);
        let line = LogOp::Link {
            ino: self.ino,
            parent: self.dir,
            name: self.name,
            touches_parent,
            nlink: node.nlink,
        };
        plan.log(tx, line);
        Ok(plan.with_output(node))
    }
}
