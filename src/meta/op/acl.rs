//! ACL rules in operations: reading a node's rule, changing it, and what it does to modes.
//!
//! Rules are shared, immutable and never removed; a node names its rules by id. What an operation
//! needs to know:
//!
//! - [`rule`] is the rule behind an id.
//! - [`id_of`] is the id of a rule that the operation made up. Planning allocates nothing: if this
//!   client knows no equal rule, `id_of` notes the rule in the transaction and ends the plan by an
//!   error that nobody sees. The run loop stores the rule and plans again; this time its id is known.
//!   So an operation just writes `node.access_acl = acl::id_of(tx, rule)?`, before or after its own
//!   checks, as with any other refusal.
//! - [`inherit`] gives a new node what the default rule of its directory says.
//! - [`chmod`] changes the mode of a node that has an access rule.

use std::sync::Arc;

use super::log;
use crate::error::{Error, Result};
use crate::meta::engine::{Key, Record};
use crate::meta::record::attr::flag;
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{AclKind, AclRule, Attr};
use crate::meta::{Caller, Ino, Lane, MetaTxn, Operation, Plan};

const SETGID: u16 = 0o2000;
/// Setuid, setgid and sticky: no rule speaks of them.
const SPECIAL: u16 = 0o7000;

/// The rule `id`, which some attr names.
pub async fn rule(tx: &mut MetaTxn<'_>, id: u32) -> Result<Arc<AclRule>> {
    let known = &tx.facts().acls;
    if let Some(rule) = known.rule(id) {
        return Ok(rule);
    }
    // Never changes once it is there, so it needs no guard, and keeping it is no side effect.
    match tx.peek(Key::Acl(id)).await? {
        Record::Acl(Some(rule)) => Ok(known.add(id, rule)),
        _ => Err(Error::damaged(format!("ACL rule {id}"), "missing")),
    }
}

/// The id of an equal rule; 0 for an empty one. Ends the plan if there is none yet.
pub fn id_of(tx: &mut MetaTxn<'_>, rule: &AclRule) -> Result<u32> {
    if rule.is_empty() {
        return Ok(0);
    }
    match tx.facts().acls.id_of(rule) {
        Some(id) => Ok(id),
        None => Err(tx.want_rule(rule.clone())),
    }
}

/// What a new node (no symlink) gets from its directory's default rule: the mode it was asked with
/// limited by the rule, an access rule if the mode cannot say it all, and the default rule itself
/// if it is a directory. The umask plays no part.
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

/// Sets the mode of a node with an access rule, and the rule's owner, mask and others with it.
pub async fn chmod(tx: &mut MetaTxn<'_>, node: &mut Attr, mode: u16) -> Result<()> {
    let mut access = AclRule::clone(&*rule(tx, node.access_acl).await?);
    access.set_mode(mode);
    node.mode = mode & SPECIAL | access.mode();
    node.access_acl = id_of(tx, &access)?;
    Ok(())
}

/// Sets or removes one of a node's rules.
pub struct SetFacl<'a> {
    pub caller: &'a Caller,
    pub ino: Ino,
    pub kind: AclKind,
    /// An empty rule removes.
    pub rule: &'a AclRule,
}

impl Operation for SetFacl<'_> {
    type Output = Attr;
    const NAME: &'static str = "setfacl";

    fn lane(&self) -> Lane {
        Lane::Node(self.ino)
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
            // The mode says all of it.
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
            return Ok(Plan::answer(before));
        }

        node.ctime = tx.now();
        let mut plan = Plan::new();
        plan.put_attr(self.ino, &node);
        let line = LogOp::SetFacl { ino: self.ino, kind: self.kind, rule: &rule };
        log::log(tx, &mut plan, line);
        Ok(plan.with(node))
    }
}

/// Reads one of a node's rules.
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
            id => Ok(Plan::answer(rule(tx, id).await?)),
        }
    }
}

fn acl_of(attr: &mut Attr, kind: AclKind) -> &mut u32 {
    match kind {
        AclKind::Access => &mut attr.access_acl,
        AclKind::Default => &mut attr.default_acl,
    }
}
