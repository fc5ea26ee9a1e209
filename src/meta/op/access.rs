//! Who may do what: mode bits and ACLs, sticky directories, immutable and append-only nodes.

use super::acl;
use crate::error::{Error, Result};
use crate::meta::record::Attr;
use crate::meta::record::attr::flag;
use crate::meta::{Caller, MetaTxn};

pub const READ: u16 = 4;
pub const WRITE: u16 = 2;
pub const EXEC: u16 = 1;

const STICKY: u16 = 0o1000;
/// The group's bits, which with an ACL are its mask: an empty mask leaves the rule nothing to say.
const GROUP: u16 = 0o070;

/// Whether the caller has all of `mask` (bits of [`READ`], [`WRITE`], [`EXEC`]) on a node. Only asked
/// if this client checks: mostly the kernel has done so before.
pub async fn permits(tx: &mut MetaTxn<'_>, caller: &Caller, node: &Attr, mask: u16) -> Result<()> {
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

/// Adding an entry to a directory.
pub fn may_add(dir: &Attr) -> Result<()> {
    if dir.has_flag(flag::IMMUTABLE) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Taking an entry out of a directory.
pub fn may_remove(caller: &Caller, dir: &Attr, node: &Attr) -> Result<()> {
    let frozen = flag::IMMUTABLE | flag::APPEND;
    if dir.has_flag(frozen) || node.has_flag(frozen) {
        return Err(Error::NotPermitted);
    }
    sticky(caller, dir, node)
}

/// In a sticky directory only root and the owners of the directory and the node may remove or
/// replace it.
pub fn sticky(caller: &Caller, dir: &Attr, node: &Attr) -> Result<()> {
    let owns = caller.is_root() || caller.uid == dir.uid || caller.uid == node.uid;
    if dir.mode & STICKY != 0 && !owns { Err(Error::AccessDenied) } else { Ok(()) }
}

/// A directory leaves a sticky directory only by its own owner's hand: owning the place is not
/// enough, since its `..` changes.
pub fn sticky_dir_leaves(caller: &Caller, dir: &Attr, node: &Attr) -> Result<()> {
    let owns = caller.is_root() || caller.uid == node.uid;
    if dir.mode & STICKY != 0 && !owns { Err(Error::AccessDenied) } else { Ok(()) }
}
