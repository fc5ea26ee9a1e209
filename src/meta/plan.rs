//! Plans: the changes that an operation wants committed, and their effects on this client.

use std::collections::BTreeMap;

use super::engine::Change;
use super::record::changelog::{LogLine, LogOp};
use super::record::{Attr, DirStat, Entry, FileKind};
use super::{Ino, MetaTxn, Name, Timestamp};

/// The outcome of planning: changes to commit, effects of the commit, and the operation's output.
///
/// An operation can be planned any number of times: planning changes nothing in the store, and
/// nothing in this client except that it fills caches and draws numbers for change log lines.
#[derive(Debug)]
pub struct Plan<T> {
    pub changes: Vec<Change>,
    pub effects: Effects,
    pub output: T,
}

/// What this client updates once the commit has taken effect.
#[derive(Debug, Default)]
pub struct Effects {
    /// Usage that a directory's direct entries gained or lost; also charged to the quotas of the
    /// directory and its ancestors.
    pub dirs: Vec<(Ino, DirStat)>,
    /// Usage that is charged to directory quotas only: of subtrees that move, which the dir stats
    /// count as one entry.
    pub subtrees: Vec<SubtreeUsage>,
    pub owners: Vec<OwnerUsage>,
    /// Files whose data can be deleted now, with their lengths.
    pub deleted_files: Vec<(Ino, u64)>,
    /// Nodes whose content or attr changed: cached copies are invalid.
    pub changed_nodes: Vec<Ino>,
    /// Directories that moved: their cached parents are invalid.
    pub moved_dirs: Vec<Ino>,
    /// Directories that were empty and have been removed.
    pub removed_dirs: Vec<Ino>,
}

/// Usage below a directory.
#[derive(Debug, Clone, Copy)]
pub struct SubtreeUsage {
    pub dir: Ino,
    pub space: i64,
    pub inodes: i64,
}

/// Usage of a user and a group.
#[derive(Debug, Clone, Copy)]
pub struct OwnerUsage {
    pub uid: u32,
    pub gid: u32,
    pub space: i64,
    pub inodes: i64,
}

impl Plan<()> {
    pub fn new() -> Self {
        Self { changes: Vec::new(), effects: Effects::default(), output: () }
    }
}

impl Default for Plan<()> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Plan<T> {
    /// A plan that changes nothing.
    pub fn unchanged(output: T) -> Self {
        Plan::new().with_output(output)
    }

    pub fn with_output<U>(self, output: U) -> Plan<U> {
        Plan { changes: self.changes, effects: self.effects, output }
    }

    pub fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub fn put_attr(&mut self, ino: Ino, attr: &Attr) {
        self.effects.changed_nodes.push(ino);
        self.changes.push(Change::PutAttr(ino, attr.clone()));
    }

    pub fn put_entry(&mut self, dir: Ino, name: &Name, kind: FileKind, ino: Ino) {
        self.changes.push(Change::PutEntry(dir, name.clone(), Entry { kind, ino }));
    }

    pub fn remove_entry(&mut self, dir: Ino, name: &Name) {
        self.changes.push(Change::RemoveEntry(dir, name.clone()));
    }

    /// Changes the usage of the volume.
    pub fn add_usage(&mut self, space: i64, inodes: i64) {
        if space != 0 || inodes != 0 {
            self.changes.push(Change::AddUsage { space, inodes });
        }
    }

    /// Changes the usage of a directory's direct entries, and of the quotas above it.
    pub fn add_dir_usage(&mut self, dir: Ino, length: i64, space: i64, inodes: i64) {
        let stat = DirStat { length, space, inodes };
        if !stat.is_zero() {
            self.effects.dirs.push((dir, stat));
        }
    }

    pub fn add_owner_usage(&mut self, uid: u32, gid: u32, space: i64, inodes: i64) {
        if space != 0 || inodes != 0 {
            self.effects.owners.push(OwnerUsage { uid, gid, space, inodes });
        }
    }

    /// Merges usage changes, so that the volume, each directory and each owner has one.
    pub fn merge_usage(&mut self) {
        let (mut space, mut inodes) = (0, 0);
        self.changes.retain(|change| match change {
            Change::AddUsage { space: by, inodes: count } => {
                (space, inodes) = (space + by, inodes + count);
                false
            }
            _ => true,
        });
        self.add_usage(space, inodes);
        let mut dirs: BTreeMap<Ino, DirStat> = BTreeMap::new();
        for (dir, stat) in self.effects.dirs.drain(..) {
            *dirs.entry(dir).or_default() += stat;
        }
        self.effects.dirs.extend(dirs);
        let mut owners: BTreeMap<(u32, u32), (i64, i64)> = BTreeMap::new();
        for OwnerUsage { uid, gid, space, inodes } in self.effects.owners.drain(..) {
            let owner = owners.entry((uid, gid)).or_default();
            *owner = (owner.0 + space, owner.1 + inodes);
        }
        for ((uid, gid), (space, inodes)) in owners {
            self.add_owner_usage(uid, gid, space, inodes);
        }
    }

    /// Updates a directory whose entries change: its link count, and its mtime and ctime if `at` is
    /// given.
    pub fn touch_dir(&mut self, ino: Ino, links: i64, at: Option<Timestamp>) {
        self.effects.changed_nodes.push(ino);
        self.changes.push(Change::TouchDir { ino, links, at });
    }

    /// Touches a directory if its link count changes or its times are older than
    /// [`Options::skip_dir_mtime`]: a busy directory would otherwise be written with every entry.
    /// Returns whether it was touched.
    ///
    /// [`Options::skip_dir_mtime`]: super::Options::skip_dir_mtime
    pub fn touch_dir_if_due(&mut self, tx: &MetaTxn<'_>, ino: Ino, dir: &Attr, links: i64) -> bool {
        let pause = tx.context().options.skip_dir_mtime.as_nanos().cast_signed();
        let is_due = links != 0 || tx.now().nanos_since(dir.mtime) >= pause;
        if is_due {
            self.touch_dir(ino, links, Some(tx.now()));
        }
        is_due
    }

    /// Adds a line to the change log, if the volume keeps one.
    pub fn log(&mut self, tx: &MetaTxn<'_>, op: LogOp<'_>) {
        let context = tx.context();
        if context.setting().change_log {
            let line = LogLine { at: tx.now(), op };
            self.push(Change::Log(line.render(context.sid(), context.next_log_number())));
        }
    }
}
