//! Removal: one link of a node that is no directory goes, to the trash or for good. Shared by
//! unlink and by rename over an existing name.

use crate::error::Result;
use crate::meta::engine::{Change, Found, Key, Record};
use crate::meta::record::attr::flag;
use crate::meta::record::trash::Trashed;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Ino, MetaTxn, Name, Plan};

/// What became of the node.
#[derive(Debug, Default, Clone, Copy)]
pub struct Removed {
    /// The hour directory it went to.
    pub trash: Option<Ino>,
    /// No name is left, but this client has it open.
    pub open: bool,
}

/// Plans what happens to the node behind `dir/name`; the entry itself is the caller's business.
pub async fn remove_link<T>(
    tx: &mut MetaTxn<'_>,
    plan: &mut Plan<T>,
    (dir, name): (Ino, &Name),
    found: &Found,
    hour: Option<Ino>,
) -> Result<Removed> {
    // Without its node an entry is only a name.
    let Some(mut node) = found.attr.clone() else { return Ok(Removed::default()) };
    let ino = found.entry.ino;
    node.ctime = tx.now();
    if let Some(hour) = hour_for(tx, dir, name, ino, &node, hour).await? {
        keep_in_trash(plan, (dir, name), found, node, hour);
        return Ok(Removed { trash: Some(hour), open: false });
    }
    node.nlink = node.nlink.saturating_sub(1);
    if node.nlink > 0 {
        plan.put_attr(ino, &node);
        if node.parent == Ino::NONE {
            plan.push(Change::AddParent { ino, parent: dir, count: -1 });
        }
        return Ok(Removed::default());
    }
    let facts = tx.facts();
    let open = node.is_file() && facts.sid().0 > 0 && facts.open.is_open(ino);
    if open {
        plan.put_attr(ino, &node);
        plan.push(Change::AddSustained(facts.sid(), ino));
    } else {
        drop_node(tx, plan, ino, &node);
    }
    plan.push(Change::RemoveXattrs(ino));
    if node.parent == Ino::NONE {
        plan.push(Change::RemoveParents(ino));
    }
    Ok(Removed { trash: None, open })
}

/// Where the node goes: nowhere if it opts out, or if a second name that was removed in the same
/// hour already holds its place there.
async fn hour_for(
    tx: &mut MetaTxn<'_>,
    dir: Ino,
    name: &Name,
    ino: Ino,
    node: &Attr,
    hour: Option<Ino>,
) -> Result<Option<Ino>> {
    let Some(hour) = hour else { return Ok(None) };
    if node.has_flag(flag::SKIP_TRASH) {
        return Ok(None);
    }
    if node.nlink > 1 {
        let trashed = Trashed { parent: dir, ino, name: name.clone() };
        let taken = tx.peek(Key::Entry(hour, trashed.entry_name())).await?;
        if taken != Record::Entry(None) {
            return Ok(None);
        }
    }
    Ok(Some(hour))
}

/// In the trash a node keeps its links, and takes the hour directory for its parent.
fn keep_in_trash<T>(
    plan: &mut Plan<T>,
    (dir, name): (Ino, &Name),
    found: &Found,
    mut node: Attr,
    hour: Ino,
) {
    let ino = found.entry.ino;
    if node.parent == Ino::NONE {
        plan.push(Change::AddParent { ino, parent: hour, count: 1 });
        plan.push(Change::AddParent { ino, parent: dir, count: -1 });
    } else {
        node.parent = hour;
    }
    plan.put_attr(ino, &node);
    let trashed = Trashed { parent: dir, ino, name: name.clone() };
    plan.put_entry(hour, &trashed.entry_name(), found.entry.kind, ino);
    let length = if node.is_file() { node.length.cast_signed() } else { 0 };
    plan.use_dir(hour, length, node.space(), 1);
}

/// A node nobody refers to any more. A file's data is deleted later, by what the record says.
fn drop_node<T>(tx: &MetaTxn<'_>, plan: &mut Plan<T>, ino: Ino, node: &Attr) {
    match node.kind {
        FileKind::File => {
            let (length, at) = (node.length, tx.now().sec);
            plan.push(Change::PutDeletedFile { ino, length, at });
            plan.effects.deleted.push((ino, length));
        }
        FileKind::Symlink => plan.push(Change::RemoveSymlink(ino)),
        _ => {}
    }
    plan.push(Change::RemoveAttr(ino));
    plan.effects.stale.push(ino);
    plan.use_space(-node.space(), -1);
    plan.use_owner(node.uid, node.gid, -node.space(), -1);
}
