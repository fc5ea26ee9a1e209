//! A plain in-memory tree that models a volume after the same operations.
//!
//! It knows nothing of records or engines: only nodes, names, link counts and lengths. All totals
//! that a volume keeps (usage, dir stats, quota usage) are counted from the tree when asked for.

use std::collections::{BTreeMap, BTreeSet};

use jfs::meta::record::{DirStat, FileKind};

pub type Path = Vec<u8>;

/// The expected error of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    NotPermitted,
    Invalid,
}

pub type Outcome = Result<(), Refusal>;

#[derive(Debug, Clone)]
pub struct Node {
    pub kind: FileKind,
    pub uid: u32,
    pub gid: u32,
    pub length: u64,
    pub names: u32,
    pub parent: usize,
    pub children: BTreeMap<u8, usize>,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub nodes: BTreeMap<usize, Node>,
    /// All entries in the trash: the former directory and name of the node, and the node.
    trash: BTreeSet<(usize, u8, usize)>,
    keeps_trash: bool,
    next: usize,
}

pub const ROOT: usize = 0;

impl Model {
    pub fn new(keeps_trash: bool) -> Self {
        let root = Node::new(FileKind::Dir, ROOT);
        Self { nodes: BTreeMap::from([(ROOT, root)]), trash: BTreeSet::new(), keeps_trash, next: 1 }
    }

    /// The node at a path: the first missing or wrong step fails.
    pub fn find(&self, path: &[u8]) -> Result<usize, Refusal> {
        let mut at = ROOT;
        for name in path {
            let node = &self.nodes[&at];
            if node.kind != FileKind::Dir {
                return Err(Refusal::NotFound);
            }
            at = *node.children.get(name).ok_or(Refusal::NotFound)?;
        }
        Ok(at)
    }

    /// The directory that holds, or would hold, the last step of a path.
    fn place(&self, path: &[u8]) -> Result<(usize, u8), Refusal> {
        let (last, dirs) = path.split_last().ok_or(Refusal::Invalid)?;
        let dir = self.find(dirs)?;
        if self.nodes[&dir].kind != FileKind::Dir {
            return Err(Refusal::NotDirectory);
        }
        Ok((dir, *last))
    }

    pub fn make(&mut self, path: &[u8], kind: FileKind, (uid, gid): (u32, u32)) -> Outcome {
        let (dir, name) = self.place(path)?;
        if self.nodes[&dir].children.contains_key(&name) {
            return Err(Refusal::Exists);
        }
        let id = self.next;
        self.next += 1;
        let node = Node { uid, gid, ..Node::new(kind, dir) };
        self.nodes.insert(id, node);
        self.dir(dir).children.insert(name, id);
        Ok(())
    }

    pub fn link(&mut self, from: &[u8], to: &[u8]) -> Outcome {
        let id = self.find(from)?;
        let (dir, name) = self.place(to)?;
        if self.nodes[&id].kind == FileKind::Dir {
            return Err(Refusal::NotPermitted);
        }
        if self.nodes[&dir].children.contains_key(&name) {
            return Err(Refusal::Exists);
        }
        self.dir(id).names += 1;
        self.dir(dir).children.insert(name, id);
        Ok(())
    }

    pub fn unlink(&mut self, path: &[u8]) -> Outcome {
        let (dir, name) = self.place(path)?;
        let id = *self.nodes[&dir].children.get(&name).ok_or(Refusal::NotFound)?;
        if self.nodes[&id].kind == FileKind::Dir {
            return Err(Refusal::NotPermitted);
        }
        self.dir(dir).children.remove(&name);
        self.drop_name(dir, name, id);
        Ok(())
    }

    pub fn rmdir(&mut self, path: &[u8]) -> Outcome {
        let (dir, name) = self.place(path)?;
        let id = *self.nodes[&dir].children.get(&name).ok_or(Refusal::NotFound)?;
        let node = &self.nodes[&id];
        if node.kind != FileKind::Dir {
            return Err(Refusal::NotDirectory);
        }
        if !node.children.is_empty() {
            return Err(Refusal::NotEmpty);
        }
        self.dir(dir).children.remove(&name);
        self.drop_name(dir, name, id);
        Ok(())
    }

    /// Removes a whole tree permanently.
    pub fn remove_tree(&mut self, path: &[u8]) -> Outcome {
        let (dir, name) = self.place(path)?;
        let id = *self.nodes[&dir].children.get(&name).ok_or(Refusal::NotFound)?;
        self.dir(dir).children.remove(&name);
        self.drop_tree(id);
        Ok(())
    }

    pub fn rename(&mut self, from: &[u8], to: &[u8], exchange: bool, no_replace: bool) -> Outcome {
        let (src, old) = self.place(from)?;
        let (dst, new) = self.place(to)?;
        let id = *self.nodes[&src].children.get(&old).ok_or(Refusal::NotFound)?;
        let taken = self.nodes[&dst].children.get(&new).copied();
        if (src, old) == (dst, new) {
            return Ok(());
        }
        if taken.is_some() && no_replace {
            return Err(Refusal::Exists);
        }
        if taken == Some(id) {
            return Ok(());
        }
        self.may_rename(id, dst, taken, exchange)?;
        if exchange {
            let other = taken.ok_or(Refusal::NotFound)?;
            if self.is_below(src, other) {
                let direct = other == src || self.nodes[&src].parent == other;
                return Err(if direct { Refusal::NotPermitted } else { Refusal::Invalid });
            }
            self.dir(src).children.insert(old, other);
            self.adopt(other, src);
        } else {
            self.dir(src).children.remove(&old);
            if let Some(other) = taken {
                self.drop_name(dst, new, other);
            }
        }
        self.dir(dst).children.insert(new, id);
        self.adopt(id, dst);
        Ok(())
    }

    fn may_rename(&self, id: usize, dst: usize, taken: Option<usize>, exchange: bool) -> Outcome {
        let is_dir = |id: usize| self.nodes[&id].kind == FileKind::Dir;
        if exchange {
            taken.ok_or(Refusal::NotFound)?;
        } else if let Some(taken) = taken {
            if is_dir(id) && !is_dir(taken) {
                return Err(Refusal::NotDirectory);
            }
            if !is_dir(id) && is_dir(taken) {
                return Err(Refusal::IsDirectory);
            }
        }
        if id == dst || self.nodes[&dst].parent == id {
            return Err(Refusal::NotPermitted);
        }
        if is_dir(id) && self.is_below(dst, id) {
            return Err(Refusal::Invalid);
        }
        match taken.filter(|_| !exchange) {
            Some(taken) if !self.nodes[&taken].children.is_empty() => Err(Refusal::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Whether `at` is `top` or lies below it.
    fn is_below(&self, mut at: usize, top: usize) -> bool {
        loop {
            if at == top {
                return true;
            }
            if at == ROOT {
                return false;
            }
            at = self.nodes[&at].parent;
        }
    }

    fn adopt(&mut self, id: usize, dir: usize) {
        self.dir(id).parent = dir;
    }

    pub fn set_length(&mut self, path: &[u8], length: u64) -> Outcome {
        let id = self.find(path)?;
        if self.nodes[&id].kind != FileKind::File {
            return Err(Refusal::NotPermitted);
        }
        self.dir(id).length = length;
        Ok(())
    }

    /// Bytes are written up to `end`.
    pub fn grow(&mut self, path: &[u8], end: u64) -> Outcome {
        let id = self.find(path)?;
        if self.nodes[&id].kind != FileKind::File {
            return Err(Refusal::NotPermitted);
        }
        let node = self.dir(id);
        node.length = node.length.max(end);
        Ok(())
    }

    pub fn chown(&mut self, path: &[u8], uid: u32, gid: u32) -> Outcome {
        let id = self.find(path)?;
        let node = self.dir(id);
        (node.uid, node.gid) = (uid, gid);
        Ok(())
    }

    pub fn clone_tree(&mut self, from: &[u8], to: &[u8]) -> Outcome {
        let id = self.find(from)?;
        let (dir, name) = self.place(to)?;
        if self.nodes[&dir].children.contains_key(&name) {
            return Err(Refusal::Exists);
        }
        // The copy is made of the tree as it is without the copy.
        let before = self.clone();
        let copy = self.copy_from(&before, id, dir);
        self.dir(dir).children.insert(name, copy);
        Ok(())
    }

    fn copy_from(&mut self, before: &Self, id: usize, dir: usize) -> usize {
        let copy = self.next;
        self.next += 1;
        let source = before.nodes[&id].clone();
        let children = source.children.clone();
        let node = Node { names: 1, parent: dir, children: BTreeMap::new(), ..source };
        self.nodes.insert(copy, node);
        for (name, child) in children {
            let below = self.copy_from(before, child, copy);
            self.dir(copy).children.insert(name, below);
        }
        copy
    }

    /// Removes a name of a node: to the trash, unless another link of it is there under the same
    /// name.
    fn drop_name(&mut self, dir: usize, name: u8, id: usize) {
        let place = (dir, name, id);
        if self.keeps_trash && (self.nodes[&id].names == 1 || !self.trash.contains(&place)) {
            self.trash.insert(place);
            return;
        }
        let node = self.dir(id);
        node.names -= 1;
        if node.names == 0 {
            self.nodes.remove(&id);
        }
    }

    fn drop_tree(&mut self, id: usize) {
        let children: Vec<usize> = self.nodes[&id].children.values().copied().collect();
        for child in children {
            self.drop_tree(child);
        }
        let node = self.dir(id);
        node.names -= 1;
        if node.names == 0 {
            self.nodes.remove(&id);
        }
    }

    fn dir(&mut self, id: usize) -> &mut Node {
        self.nodes.get_mut(&id).expect("the model knows its nodes")
    }

    /// Space and inodes of everything but the root and the trash's own directories.
    pub fn usage(&self) -> (i64, i64) {
        let nodes = self.nodes.iter().filter(|(id, _)| **id != ROOT);
        nodes.fold((0, 0), |(space, inodes), (_, node)| (space + node.space(), inodes + 1))
    }

    /// Usage per owner: users and groups.
    pub fn owner_usage(&self) -> [BTreeMap<u32, (i64, i64)>; 2] {
        let mut owners = [BTreeMap::new(), BTreeMap::new()];
        for (_, node) in self.nodes.iter().filter(|(id, _)| **id != ROOT) {
            for (usage, owner) in owners.iter_mut().zip([node.uid, node.gid]) {
                let (space, inodes) = usage.entry(owner).or_insert((0, 0));
                *space += node.space();
                *inodes += 1;
            }
        }
        owners
    }

    pub fn dir_stat(&self, id: usize) -> DirStat {
        let mut stat = DirStat::default();
        for child in self.nodes[&id].children.values() {
            let node = &self.nodes[child];
            let length = if node.kind == FileKind::File { node.length.cast_signed() } else { 0 };
            stat += DirStat { length, space: node.space(), inodes: 1 };
        }
        stat
    }

    /// Space and inodes of everything below a directory, counting each name.
    pub fn below(&self, id: usize) -> (i64, i64) {
        let (mut space, mut inodes) = (0, 0);
        for child in self.nodes[&id].children.values() {
            let (more_space, more_inodes) = self.below(*child);
            space += self.nodes[child].space() + more_space;
            inodes += 1 + more_inodes;
        }
        (space, inodes)
    }

    /// All paths with their nodes, the root first.
    pub fn walk(&self) -> Vec<(Path, usize)> {
        let mut all = vec![(Path::new(), ROOT)];
        let mut at = 0;
        while at < all.len() {
            let (path, id) = all[at].clone();
            for (name, child) in &self.nodes[&id].children {
                let mut below = path.clone();
                below.push(*name);
                all.push((below, *child));
            }
            at += 1;
        }
        all
    }

    /// The link count: names, or for a directory two plus its sub-directories.
    pub fn nlink(&self, id: usize) -> u32 {
        let node = &self.nodes[&id];
        if node.kind != FileKind::Dir {
            return node.names;
        }
        let dirs = node.children.values().filter(|c| self.nodes[c].kind == FileKind::Dir).count();
        2 + u32::try_from(dirs).expect("few directories")
    }
}

impl Node {
    fn new(kind: FileKind, parent: usize) -> Self {
        Self { kind, uid: 0, gid: 0, length: 0, names: 1, parent, children: BTreeMap::new() }
    }

    pub fn space(&self) -> i64 {
        let length = if self.kind == FileKind::File { self.length } else { 0 };
        if length == 0 { 4096 } else { (length.div_ceil(4096) * 4096).cast_signed() }
    }
}
