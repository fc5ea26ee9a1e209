//! When a directory's times are rewritten.

use crate::meta::record::Attr;
use crate::meta::{Ino, MetaTxn, Plan};

/// Touches the directory if its link count changes or its times are old enough: hot directories
/// would otherwise be written with every entry. Answers whether it did.
pub fn update<T>(tx: &MetaTxn<'_>, plan: &mut Plan<T>, ino: Ino, dir: &Attr, links: i64) -> bool {
    let pause = tx.facts().options.skip_dir_mtime.as_nanos().cast_signed();
    let touches = links != 0 || tx.now().nanos_since(dir.mtime) >= pause;
    if touches {
        plan.touch(ino, links, Some(tx.now()));
    }
    touches
}
