//! When a directory's times are rewritten.

use crate::meta::record::Attr;
use crate::meta::{Ino, MetaTxn, Plan};

/// Whether the directory's mtime is old enough to be rewritten for an entry that comes or goes.
/// Hot directories would otherwise be written, and conflict, with every entry.
pub fn are_due(tx: &MetaTxn<'_>, dir: &Attr) -> bool {
    tx.now().nanos_since(dir.mtime) >= tx.facts().options.skip_dir_mtime.as_nanos().cast_signed()
}

/// Writes the directory with new times if its link count changed or the times are due. Answers
/// whether it did.
pub fn update<T>(
    tx: &MetaTxn<'_>,
    plan: &mut Plan<T>,
    ino: Ino,
    dir: Attr,
    links_changed: bool,
) -> bool {
    let write = links_changed || are_due(tx, &dir);
    if write {
        plan.touch(ino, dir, tx.now());
    }
    write
}
