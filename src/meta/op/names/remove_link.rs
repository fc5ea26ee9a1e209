//! Remove link: removes one link of a node that is not a directory, to the trash or permanently.
//! Shared by unlink and by rename over an existing name.

use crate::error::Result;
use crate::meta::engine::{Change, Found, Key, Record};
use crate::meta::record::attr::flag;
use crate::meta::record::trash::Trashed;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{EntryRef, Ino, MetaTxn, Plan};

/// What happened to the node.
#[derive(Debug, Default, Clone, Copy)]
pub struct Removed {
    /// The hour directory of the trash that it moved to.
    pub trash: Option<Ino>,
    /// No name is left, but this client has the file open.
    pub open: bool,
}

/// Plans what happens to the node of an entry; the caller removes the entry itself.
pub async fn remove_link<T>(
    tx: &mut MetaTxn<'_>,
    plan: &mut Plan<T>,
    entry: EntryRef<'_>,
    found: &Found,
    hour: Option<Ino>,
) -> Result<Removed> {
    // Without a node, only the entry has to be removed.
    let Some(mut node) = found.attr.clone() else { return Ok(Removed::default()) };
    let ino = found.entry.ino;
    node.ctime = tx.now();
    if let Some(hour) = hour_dir_for(tx, entry, ino, &node, hour).await? {
        keep_in_trash(plan, entry, found, node, hour);
        return Ok(Removed { trash: Some(hour), open: false });
    }
    node.nlink = node.nlink.saturating_sub(1);
    if node.nlink > 0 {
        plan.put_attr(ino, &node);
        if node.parent == Ino::NONE {
            plan.push(Change::AddParent { ino, parent: entry.dir, count: -1 });
        }
        return Ok(Removed::default());
    }
    let context = tx.context();
    let open = node.is_file() && context.sid().0 > 0 && context.open.is_open(ino);
    if open {
        plan.put_attr(ino, &node);
        plan.push(Change::AddSustained(context.sid(), ino));
    } else {
        drop_node(tx, plan, ino, &node);
    }
    plan.push(Change::RemoveXattrs(ino));
    if node.parent == Ino::NONE {
        plan.push(Change::RemoveParents(ino));
    }
    Ok(Removed { trash: None, open })
}

/// Returns the hour directory that the node moves to. None if the node skips the trash, or if
/// another name of it, removed within the same hour, already has that trash entry.
async fn hour_dir_for(
    tx: &mut MetaTxn<'_>,
    entry: EntryRef<'_>,
    ino: Ino,
    node: &Attr,
    hour: Option<Ino>,
) -> Result<Option<Ino>> {
    let Some(hour) = hour else { return Ok(None) };
    if node.has_flag(flag::SKIP_TRASH) {
        return Ok(None);
    }
    if node.nlink > 1 {
        let trashed = Trashed { parent: entry.dir, ino, name: entry.name.clone() };
        let taken = tx.peek(Key::Entry(hour, trashed.entry_name())).await?;
        if taken != Record::Entry(None) {
            return Ok(None);
        }
    }
    Ok(Some(hour))
}

/// A node in the trash keeps its links; the hour directory becomes its parent.
fn keep_in_trash<T>(
    plan: &mut Plan<T>,
    entry: EntryRef<'_>,
    found: &Found,
    mut node: Attr,
    hour: Ino,
) {
    let ino = found.entry.ino;
    if node.parent == Ino::NONE {
        plan.push(Change::AddParent { ino, parent: hour, count: 1 });
        plan.push(Change::AddParent { ino, parent: entry.dir, count: -1 });
    } else {
        node.parent = hour;
    }
    plan.put_attr(ino, &node);
    let trashed = Trashed { parent: entry.dir, ino, name: entry.name.clone() };
    plan.put_entry(hour, &trashed.entry_name(), found.entry.kind, ino);
    let length = if node.is_file() { node.length.cast_signed() } else { 0 };
    plan.add_dir_usage(hour, length, node.space(), 1);
}

/// Removes a node without references. The data of a file is deleted later, by its deletion record.
fn drop_node<T>(tx: &MetaTxn<'_>, plan: &mut Plan<T>, ino: Ino, node: &Attr) {
    match node.kind {
        FileKind::File => {
            let (length, at) = (node.length, tx.now().sec);
            plan.push(Change::PutDeletedFile { ino, length, at });
            plan.effects.deleted_files.push((ino, length));
        }
        FileKind::Symlink => plan.push(Change::RemoveSymlink(ino)),
        _ => {}
    }
    plan.push(Change::RemoveAttr(ino));
    plan.effects.changed_nodes.push(ino);
    plan.add_usage(-node.space(), -1);
    plan.add_owner_usage(node.uid, node.gid, -node.space(), -1);
}
