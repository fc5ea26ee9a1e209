//! Room: whether the volume and every quota in the way can take more.
//!
//! Limits and usage come from memory; without limits nothing is read. With limits on directories
//! the ancestors must be known, which costs a read for each directory not seen lately.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::meta::client::{Climb, Facts, Step};
use crate::meta::record::QuotaKey;
use crate::meta::{Ino, MetaTxn};

/// More usage that someone asks for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub uid: u32,
    pub gid: u32,
    pub space: i64,
    pub inodes: i64,
}

/// Refuses with `NoSpace` if the volume is full, with `QuotaExceeded` if a quota of the user, the
/// group, or of `dirs` or any of their ancestors is.
pub async fn check(tx: &mut MetaTxn<'_>, wanted: Wanted, dirs: &[Ino]) -> Result<()> {
    let Wanted { uid, gid, space, inodes } = wanted;
    if space <= 0 && inodes <= 0 {
        return Ok(());
    }
    let facts = tx.facts();
    let setting = facts.setting();
    let owners = [QuotaKey::User(uid), QuotaKey::Group(gid)];
    if setting.user_group_quota && facts.quotas.refuses(owners, space, inodes) {
        return Err(Error::QuotaExceeded);
    }
    let (used_space, used_inodes) = facts.usage.now();
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

/// As [`check`] for one more entry of a node that is already counted by volume: its owner needs
/// an inode, the directory's quotas its space as well.
pub async fn check_link(tx: &mut MetaTxn<'_>, wanted: Wanted, dir: Ino) -> Result<()> {
    let Wanted { uid, gid, space, inodes } = wanted;
    let facts = tx.facts();
    let owners = [QuotaKey::User(uid), QuotaKey::Group(gid)];
    if facts.setting().user_group_quota && facts.quotas.refuses(owners, 0, inodes) {
        return Err(Error::QuotaExceeded);
    }
    check_dir(tx, dir, &[], space, inodes).await
}

/// Refuses with `QuotaExceeded` if a quota above `to` that is not above `from` lacks the room.
pub async fn check_move(
    tx: &mut MetaTxn<'_>,
    from: Ino,
    to: Ino,
    space: i64,
    inodes: i64,
) -> Result<()> {
    if !limits_dirs(tx.facts()) {
        return Ok(());
    }
    let above = quotas_above(tx, from).await?;
    check_dir(tx, to, &above, space, inodes).await
}

/// Whether a check could refuse at all; if not, callers need not find out what to ask for.
pub fn is_limited(facts: &Facts) -> bool {
    let setting = facts.setting();
    setting.capacity > 0 || setting.inodes > 0 || setting.user_group_quota || limits_dirs(facts)
}

async fn check_dir(
    tx: &mut MetaTxn<'_>,
    dir: Ino,
    except: &[Ino],
    space: i64,
    inodes: i64,
) -> Result<()> {
    let facts = tx.facts();
    if !limits_dirs(facts) {
        return Ok(());
    }
    let above = quotas_above(tx, dir).await?;
    let asked = above.iter().filter(|dir| !except.contains(dir)).map(|dir| QuotaKey::Dir(*dir));
    if facts.quotas.refuses(asked, space, inodes) { Err(Error::QuotaExceeded) } else { Ok(()) }
}

fn limits_dirs(facts: &Facts) -> bool {
    facts.quotas.limits_dirs() && facts.setting().dir_stats
}

/// Those of a directory and all above it that have a quota record; none for what is gone or in the
/// trash.
async fn quotas_above(tx: &mut MetaTxn<'_>, dir: Ino) -> Result<Arc<[Ino]>> {
    let Facts { parents, quotas, .. } = tx.facts();
    let mut climb = Climb::from(dir);
    loop {
        match climb.go_on(parents, quotas) {
            Step::Done(dirs) => return Ok(dirs),
            Step::Ask(asked) => {
                let attrs = tx.peek_attrs(&asked).await?;
                if climb.hear(parents, &asked, &attrs).is_err() {
                    return Ok(Arc::default());
                }
            }
        }
    }
}
