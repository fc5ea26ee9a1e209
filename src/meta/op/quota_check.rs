//! Quota check: whether the limits of the volume and all quotas allow more usage.
//!
//! Limits and usage come from memory; without limits nothing is read. With limits on directories
//! the ancestors must be known, which costs a read for each directory that was not seen recently.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::meta::context::Context;
use crate::meta::context::ancestors::{AncestorWalk, WalkStep};
use crate::meta::record::QuotaKey;
use crate::meta::{Ino, MetaTxn};

/// Usage that an operation is about to add.
#[derive(Debug, Clone, Copy)]
pub struct UsageRequest {
    pub uid: u32,
    pub gid: u32,
    pub space: i64,
    pub inodes: i64,
}

/// Fails with `NoSpace` if the volume is full, and with `QuotaExceeded` if a quota of the user, of
/// the group, or of `dirs` or one of their ancestors is exceeded.
pub async fn check(tx: &mut MetaTxn<'_>, wanted: UsageRequest, dirs: &[Ino]) -> Result<()> {
    let UsageRequest { uid, gid, space, inodes } = wanted;
    if space <= 0 && inodes <= 0 {
        return Ok(());
    }
    let context = tx.context();
    let setting = context.setting();
    let owners = [QuotaKey::User(uid), QuotaKey::Group(gid)];
    if setting.user_group_quota && context.quotas.would_exceed(owners, space, inodes) {
        return Err(Error::QuotaExceeded);
    }
    let (used_space, used_inodes) = context.usage.now();
    let exceeds = |limit: u64, used: i64, more: i64| {
        limit > 0 && more > 0 && i128::from(used) + i128::from(more) > i128::from(limit)
    };
    if exceeds(setting.capacity, used_space, space) || exceeds(setting.inodes, used_inodes, inodes)
    {
        return Err(Error::NoSpace);
    }
    for dir in dirs {
        check_dir(tx, *dir, &[], space, inodes).await?;
    }
    Ok(())
}

/// As [`check`], for another entry of a node that the volume already counts: the owner needs one
/// inode, the quotas of the directory the space as well.
pub async fn check_link(tx: &mut MetaTxn<'_>, wanted: UsageRequest, dir: Ino) -> Result<()> {
    let UsageRequest { uid, gid, space, inodes } = wanted;
    let context = tx.context();
    let owners = [QuotaKey::User(uid), QuotaKey::Group(gid)];
    if context.setting().user_group_quota && context.quotas.would_exceed(owners, 0, inodes) {
        return Err(Error::QuotaExceeded);
    }
    check_dir(tx, dir, &[], space, inodes).await
}

/// Fails with `QuotaExceeded` if the move exceeds a quota above `to` that is not also above `from`.
pub async fn check_move(
    tx: &mut MetaTxn<'_>,
    from: Ino,
    to: Ino,
    space: i64,
    inodes: i64,
) -> Result<()> {
    if !limits_dirs(tx.context()) {
        return Ok(());
    }
    let above = quotas_above(tx, from).await?;
    check_dir(tx, to, &above, space, inodes).await
}

/// Whether any limit is in force; if not, callers need not compute the usage to check.
pub fn is_limited(context: &Context) -> bool {
    let setting = context.setting();
    setting.capacity > 0 || setting.inodes > 0 || setting.user_group_quota || limits_dirs(context)
}

async fn check_dir(
    tx: &mut MetaTxn<'_>,
    dir: Ino,
    except: &[Ino],
    space: i64,
    inodes: i64,
) -> Result<()> {
    let context = tx.context();
    if !limits_dirs(context) {
        return Ok(());
    }
    let above = quotas_above(tx, dir).await?;
    let asked = above.iter().filter(|dir| !except.contains(dir)).map(|dir| QuotaKey::Dir(*dir));
    if context.quotas.would_exceed(asked, space, inodes) {
        Err(Error::QuotaExceeded)
    } else {
        Ok(())
    }
}

fn limits_dirs(context: &Context) -> bool {
    context.quotas.limits_dirs() && context.setting().dir_stats
}

/// The directory and its ancestors that have a quota record; none if it is gone or in the trash.
async fn quotas_above(tx: &mut MetaTxn<'_>, dir: Ino) -> Result<Arc<[Ino]>> {
    let Context { parents, quotas, .. } = tx.context();
    let mut walk = AncestorWalk::from(dir);
    loop {
        match walk.advance(parents, quotas) {
            WalkStep::Done(dirs) => return Ok(dirs),
            WalkStep::NeedAttrs(asked) => {
                let attrs = tx.peek_attrs(&asked).await?;
                if walk.supply_attrs(parents, &asked, &attrs).is_err() {
                    return Ok(Arc::default());
                }
            }
        }
    }
}
