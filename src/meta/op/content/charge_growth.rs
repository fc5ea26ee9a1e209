//! What a change of a file's length adds to usage.

use crate::error::Result;
use crate::meta::op::quota_check;
use crate::meta::op::quota_check::UsageRequest;
use crate::meta::record::Attr;
use crate::meta::record::attr::align4k;
use crate::meta::{Ino, MetaTxn, Plan};

/// Charges the change of `file` to `length`, or fails if a limit does not allow it. A hard-linked
/// file is charged to each parent directory, once for every entry there.
pub async fn charge_growth<T>(
    tx: &mut MetaTxn<'_>,
    plan: &mut Plan<T>,
    ino: Ino,
    file: &Attr,
    length: u64,
) -> Result<()> {
    if length == file.length {
        return Ok(());
    }
    let grown = length.cast_signed() - file.length.cast_signed();
    let space = align4k(length) - align4k(file.length);
    // A removed file that is still open has no parent directory.
    let parents = if file.nlink == 0 { Vec::new() } else { tx.peek_parents(ino, file).await? };
    if space > 0 {
        let dirs: Vec<Ino> = parents.iter().map(|(dir, _)| *dir).collect();
        let wanted = UsageRequest { uid: file.uid, gid: file.gid, space, inodes: 0 };
        quota_check::check(tx, wanted, &dirs).await?;
    }
    plan.add_usage(space, 0);
    plan.add_owner_usage(file.uid, file.gid, space, 0);
    for (dir, count) in parents {
        plan.add_dir_usage(dir, grown * count, space * count, 0);
    }
    Ok(())
}
