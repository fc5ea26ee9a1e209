//! Growth: what a file's change of length costs, in room and in usage.

use super::room::{self, Wanted};
use crate::error::Result;
use crate::meta::record::Attr;
use crate::meta::record::attr::align4k;
use crate::meta::{Ino, MetaTxn, Plan};

/// Charges the change of `file` to `length`, or refuses it for want of room. A hard-linked file is
/// charged to each of its directories, as often as it is in them.
pub async fn charge<T>(
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
    // A removed file that is still open is in no directory.
    let parents = if file.nlink == 0 { Vec::new() } else { tx.peek_parents(ino, file).await? };
    if space > 0 {
        let dirs: Vec<Ino> = parents.iter().map(|(dir, _)| *dir).collect();
        let wanted = Wanted { uid: file.uid, gid: file.gid, space, inodes: 0 };
        room::check(tx, wanted, &dirs).await?;
    }
    plan.use_space(space, 0);
    plan.use_owner(file.uid, file.gid, space, 0);
    for (dir, count) in parents {
        plan.use_dir(dir, grown * count, space * count, 0);
    }
    Ok(())
}
