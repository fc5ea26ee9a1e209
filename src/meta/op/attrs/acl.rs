//! ACL rules in operations: reading and changing the rules of a node, and their effect on its mode.
//!
//! Rules are shared, immutable and never removed; a node refers to its rules by id.
//!
//! - [`rule`] reads the rule with an id.
//! - [`id_of`] returns the id of a rule that the operation has computed. Planning allocates
//!   nothing: if this client knows no equal rule, `id_of` records the rule in the transaction and
//!   ends the plan with an internal error. The run loop stores the rule and plans again; then its
//!   id is known. So an operation just writes `node.access_acl = acl::id_of(tx, rule)?`, before or
//!   after its own checks.
//! - [`inherit`] applies the default rule of a directory to a new node.
//! - [`chmod`] changes the mode of a node that has an access rule.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::meta::engine::{Key, Record};
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{AclKind, AclRule, Attr};
use crate::meta::{Caller, Ino, MetaTxn, Operation, Plan, TxnLock};

const SETGID: u16 = 0o2000;
/// Setuid, setgid and sticky: ACL rules do not cover them.
const SPECIAL: u16 = 0o7000;

/// Reads a rule that an attr refers to.
pub async fn rule(tx: &mut MetaTxn<'_>, id: u32) -> Result<Arc<AclRule>> {
    let known = &tx.context().acls;
    if let Some(rule) = known.rule(id) {
        return Ok(rule);
    }
    // A rule never changes, so it needs no guard, and caching it is safe.
    match tx.peek(Key::Acl(id)).await? {
        Record::Acl(Some(rule)) => Ok(known.add(id, rule)),
        _ => Err(Error::damaged(format!("ACL rule {id}"), "missing")),
    }
}

/// Returns the id of an equal rule; 0 for an empty one. Ends the plan if no equal rule is stored
/// yet.
pub fn id_of(tx: &mut MetaTxn<'_>, rule: &AclRule) -> Result<u32> {
    if rule.is_empty() {
        return Ok(0);
    }
    match tx.context().acls.id_of(rule) {
        Some(id) => Ok(id),
        None => Err(tx.request_rule(rule.clone())),
    }
}

/// Applies a directory's default rule to a new node that is not a symlink: it limits the requested
/// mode, adds an access rule if the mode cannot express everything, and is itself copied to a new
/// directory. The umask is not used.
pub async fn inherit(tx: &mut MetaTxn<'_>, default_acl: u32, node: &mut Attr) -> Result<()> {
    let default = rule(tx, default_acl).await?;
    if node.is_dir() {
        node.default_acl = default_acl;
    }
    let (mode, access) = default.for_child(node.mode);
    node.mode = mode;
    if let Some(access) = access {
        node.access_acl = id_of(tx, &access)?;
    }
    Ok(())
}

/// Sets the mode of a node that has an access rule, and with it the owner, mask and other entries
/// of the rule.
pub async fn chmod(tx: &mut MetaTxn<'_>, node: &mut Attr, mode: u16) -> Result<()> {
    let mut access = AclRule::clone(&*rule(tx, node.access_acl).await?);
    access.set_mode(mode);
    node.mode = mode & SPECIAL | access.mode();
    node.access_acl = id_of(tx, &access)?;
    Ok(())
}

/// Sets or removes one of the two rules of a node.
pub struct SetFacl<'a> {
    pub caller: &'a Caller,
    pub ino: Ino,
    pub kind: AclKind,
    /// An empty rule removes the stored one.
    pub rule: &'a AclRule,
}

impl Operation for SetFacl<'_> {
    type Output = Attr;
    const NAME: &'static str = "setfacl";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Attr>> {
        let before = tx.node(self.ino).await?;
        let caller = self.caller;
        if !caller.is_root() && caller.uid != before.uid {
            return Err(Error::NotPermitted);
        }
        if before.has_flag(flag::IMMUTABLE | flag::APPEND) {
            return Err(Error::NotPermitted);
        }

        let mut node = before.clone();
        if !caller.is_root() && !caller.in_group(node.gid) {
            node.mode &= !SETGID;
        }
        let mut rule = self.rule.clone();
        if rule.is_empty() {
            *acl_of(&mut node, self.kind) = 0;
        } else if rule.is_minimal() && self.kind == AclKind::Access {
            // The mode expresses the whole rule.
            node.access_acl = 0;
            node.mode = node.mode & SPECIAL | rule.mode();
        } else {
            rule.fill_from_mode(node.mode);
            *acl_of(&mut node, self.kind) = id_of(tx, &rule)?;
            if self.kind == AclKind::Access {
                node.mode = node.mode & SPECIAL | rule.mode();
            }
        }
        if node == before {
            return Ok(Plan::unchanged(before));
        }

        node.ctime = tx.now();
        let mut plan = Plan::new();
        plan.put_attr(self.ino, &node);
        let line = LogOp::SetFacl { ino: self.ino, kind: self.kind, rule: &rule };
        plan.log(tx, line);
        Ok(plan.with_output(node))
    }
}

/// Reads one of the two rules of a node.
pub struct Facl {
    pub ino: Ino,
    pub kind: AclKind,
}

impl Operation for Facl {
    type Output = Arc<AclRule>;
    const NAME: &'static str = "getfacl";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Arc<AclRule>>> {
        let mut node = tx.node(self.ino).await?;
        match *acl_of(&mut node, self.kind) {
            0 => Err(Error::NoAttribute),
            id => Ok(Plan::unchanged(rule(tx, id).await?)),
        }
    }
}

fn acl_of(attr: &mut Attr, kind: AclKind) -> &mut u32 {
    match kind {
        AclKind::Access => &mut attr.access_acl,
        AclKind::Default => &mut attr.default_acl,
    }
}
