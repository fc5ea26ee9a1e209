//! Plans: what an operation wants changed, and what follows once it is.

use std::collections::BTreeMap;

use super::engine::Change;
use super::record::{Attr, DirStat, Entry, FileKind, SliceSize};
use super::{Ino, Name, Timestamp};

/// The outcome of planning: changes to commit, effects of the commit, and the answer.
///
/// Planning has no side effects, so an operation can be planned any number of times.
#[derive(Debug)]
pub struct Plan<T> {
    pub changes: Vec<Change>,
    pub effects: Effects,
    pub output: T,
}

/// Bookkeeping that happens once, after the commit.
#[derive(Debug, Default)]
pub struct Effects {
    /// Usage that a directory's direct entries gained or lost; also charged to the quotas of the
    /// directory and its ancestors.
    pub dirs: Vec<(Ino, DirStat)>,
    /// Usage of dir quotas only: for subtrees that move, where dir stats see one entry.
    pub quotas: Vec<(Ino, i64, i64)>,
    /// Usage by owner: uid, gid, space, inodes.
    pub owners: Vec<(u32, u32, i64, i64)>,
    /// Files whose data can go now.
    pub deleted: Vec<(Ino, u64)>,
    /// Slices without references whose objects can go now.
    pub dead: Vec<SliceSize>,
    /// Nodes whose content or attr changed: what caches know of them is void.
    pub stale: Vec<Ino>,
    /// Directories that moved: what is cached about their parent is void.
    pub moved: Vec<Ino>,
    /// Directories that were empty and are gone.
    pub gone: Vec<Ino>,
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
    pub fn answer(output: T) -> Self {
        Plan::new().with(output)
    }

    pub fn with<U>(self, output: U) -> Plan<U> {
        Plan { changes: self.changes, effects: self.effects, output }
    }

    pub fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub fn put_attr(&mut self, ino: Ino, attr: &Attr) {
        self.effects.stale.push(ino);
        self.changes.push(Change::PutAttr(ino, attr.clone()));
    }

    pub fn put_entry(&mut self, dir: Ino, name: &Name, kind: FileKind, ino: Ino) {
        self.changes.push(Change::PutEntry(dir, name.clone(), Entry { kind, ino }));
    }

    pub fn remove_entry(&mut self, dir: Ino, name: &Name) {
        self.changes.push(Change::RemoveEntry(dir, name.clone()));
    }

    /// Volume usage.
    pub fn use_space(&mut self, space: i64, inodes: i64) {
        if space != 0 || inodes != 0 {
            self.changes.push(Change::AddUsage { space, inodes });
        }
    }

    /// Usage of a directory's direct entries, and of the quotas above it.
    pub fn use_dir(&mut self, dir: Ino, length: i64, space: i64, inodes: i64) {
        let stat = DirStat { length, space, inodes };
        if !stat.is_zero() {
            self.effects.dirs.push((dir, stat));
        }
    }

    pub fn use_owner(&mut self, uid: u32, gid: u32, space: i64, inodes: i64) {
        if space != 0 || inodes != 0 {
            self.effects.owners.push((uid, gid, space, inodes));
        }
    }

    /// Adds up the usage of many nodes: of the volume, and of each directory and owner.
    pub fn add_up(&mut self) {
        let (mut space, mut inodes) = (0, 0);
        self.changes.retain(|change| match change {
            Change::AddUsage { space: by, inodes: count } => {
                (space, inodes) = (space + by, inodes + count);
                false
            }
            _ => true,
        });
        self.use_space(space, inodes);
        let mut dirs: BTreeMap<Ino, DirStat> = BTreeMap::new();
        for (dir, stat) in self.effects.dirs.drain(..) {
            *dirs.entry(dir).or_default() += stat;
        }
        self.effects.dirs.extend(dirs);
        let mut owners: BTreeMap<(u32, u32), (i64, i64)> = BTreeMap::new();
        for (uid, gid, space, inodes) in self.effects.owners.drain(..) {
            let owner = owners.entry((uid, gid)).or_default();
            *owner = (owner.0 + space, owner.1 + inodes);
        }
        let owners = owners.into_iter();
        self.effects
            .owners
            .extend(owners.map(|((uid, gid), (space, inodes))| (uid, gid, space, inodes)));
    }

    /// A directory whose entries change: its link count, and its mtime and ctime if `at` is given.
    pub fn touch(&mut self, ino: Ino, links: i64, at: Option<Timestamp>) {
        self.effects.stale.push(ino);
        self.changes.push(Change::TouchDir { ino, links, at });
    }
}
