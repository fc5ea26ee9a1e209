//! Permission checks: mode bits and ACLs, sticky directories, immutable and append-only nodes.

use crate::error::{Error, Result};
use crate::meta::op::attrs::acl;
use crate::meta::record::Attr;
use crate::meta::record::attr::flag;
use crate::meta::{Caller, MetaTxn};

pub const READ: u16 = 4;
pub const WRITE: u16 = 2;
pub const EXEC: u16 = 1;

const STICKY: u16 = 0o1000;
/// The group bits. With an ACL they are its mask: if it is empty, the rule grants nothing.
const GROUP: u16 = 0o070;

/// Checks that the caller has all of `mask` (bits of [`READ`], [`WRITE`], [`EXEC`]) on a node. Does
/// nothing for callers that the kernel has checked.
pub async fn check(tx: &mut MetaTxn<'_>, caller: &Caller, node: &Attr, mask: u16) -> Result<()> {
    if !caller.check || caller.is_root() {
        return Ok(());
    }
    let allowed = if node.access_acl != 0 && node.mode & GROUP != 0 {
        let rule = acl::rule(tx, node.access_acl).await?;
        rule.permits(caller.uid, |gid| caller.in_group(gid), node, mask)
    } else if caller.uid == node.uid {
        node.mode >> 6 & mask == mask
    } else if caller.in_group(node.gid) {
        node.mode >> 3 & mask == mask
    } else {
        node.mode & mask == mask
    };
    if allowed { Ok(()) } else { Err(Error::AccessDenied) }
}

/// Checks that an entry may be added to a directory.
pub fn may_add(dir: &Attr) -> Result<()> {
    if dir.has_flag(flag::IMMUTABLE) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Checks that an entry may be removed from a directory.
pub fn may_remove(caller: &Caller, dir: &Attr, node: &Attr) -> Result<()> {
    let frozen = flag::IMMUTABLE | flag::APPEND;
    if dir.has_flag(frozen) || node.has_flag(frozen) {
        return Err(Error::NotPermitted);
    }
    check_sticky(caller, dir, node)
}

/// Checks the sticky bit: in a sticky directory only root and the owners of the directory and of
/// the node may remove or replace an entry.
pub fn check_sticky(caller: &Caller, dir: &Attr, node: &Attr) -> Result<()> {
    let owns = caller.is_root() || caller.uid == dir.uid || caller.uid == node.uid;
    if dir.mode & STICKY != 0 && !owns { Err(Error::AccessDenied) } else { Ok(()) }
}

/// Checks the sticky bit for a directory that moves to another parent. Only its own owner may do
/// so: owning the parent is not enough, since the `..` of the directory changes.
pub fn check_sticky_move(caller: &Caller, dir: &Attr, node: &Attr) -> Result<()> {
    let owns = caller.is_root() || caller.uid == node.uid;
    if dir.mode & STICKY != 0 && !owns { Err(Error::AccessDenied) } else { Ok(()) }
}
