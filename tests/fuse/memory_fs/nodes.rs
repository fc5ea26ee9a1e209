//! The nodes: what a store would hold.

use std::collections::{BTreeMap, HashMap};

use jfs::error::{Error, Result};
use jfs::fuse::Stat;
use jfs::meta::Timestamp;
use jfs::meta::record::{FileKind, Flock, Plock};

use super::Behaviour;

#[derive(Clone)]
pub struct Nodes {
    nodes: HashMap<u64, Node>,
    next: u64,
}

#[derive(Clone)]
pub struct Node {
    pub kind: FileKind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub rdev: u32,
    pub mtime: Timestamp,
    pub content: Vec<u8>,
    pub entries: BTreeMap<Vec<u8>, u64>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub flags: u32,
    pub behaviour: Behaviour,
    /// The backing file that the kernel uses instead.
    pub backing: Option<u32>,
    pub flocks: Vec<Flock>,
    pub plocks: Vec<Plock>,
}

impl Node {
    pub fn new(kind: FileKind, mode: u32, (uid, gid): (u32, u32)) -> Self {
        Self {
            kind,
            mode: mode & 0o7777,
            uid,
            gid,
            nlink: if kind == FileKind::Dir { 2 } else { 1 },
            rdev: 0,
            mtime: Timestamp::now(),
            content: Vec::new(),
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            flags: 0,
            behaviour: Behaviour::Plain,
            backing: None,
            flocks: Vec::new(),
            plocks: Vec::new(),
        }
    }
}

impl Nodes {
    pub fn new() -> Self {
        let root = Node::new(FileKind::Dir, 0o777, (0, 0));
        Self { nodes: HashMap::from([(1, root)]), next: 2 }
    }

    pub fn get(&self, ino: u64) -> Result<&Node> {
        self.nodes.get(&ino).ok_or(Error::NotFound)
    }

    pub fn get_mut(&mut self, ino: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Error::NotFound)
    }

    pub fn file_mut(&mut self, ino: u64) -> Result<&mut Vec<u8>> {
        let node = self.get_mut(ino)?;
        node.mtime = Timestamp::now();
        Ok(&mut node.content)
    }

    pub fn child(&self, dir: u64, name: &[u8]) -> Result<u64> {
        self.get(dir)?.entries.get(name).copied().ok_or(Error::NotFound)
    }

    pub fn add(&mut self, dir: u64, name: &[u8], node: Node) -> Result<u64> {
        if self.child(dir, name).is_ok() {
            return Err(Error::Exists);
        }
        let ino = self.add_nameless(node);
        self.get_mut(dir)?.entries.insert(name.to_vec(), ino);
        Ok(ino)
    }

    pub fn add_nameless(&mut self, node: Node) -> u64 {
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, node);
        ino
    }

    pub fn add_file(&mut self, dir: u64, name: &[u8], content: &[u8]) -> u64 {
        let node = Node { content: content.to_vec(), ..Node::new(FileKind::File, 0o644, (0, 0)) };
        self.add(dir, name, node).unwrap()
    }

    pub fn remove(&mut self, dir: u64, name: &[u8]) -> Option<u64> {
        let ino = self.get_mut(dir).ok()?.entries.remove(name)?;
        // Nodes stay: they may be open.
        self.get_mut(ino).ok()?.nlink -= 1;
        Some(ino)
    }

    pub fn stat(&self, ino: u64) -> Stat {
        let Some(node) = self.nodes.get(&ino) else { return Stat::default() };
        let size = node.content.len() as u64;
        Stat {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: node.mtime,
            mtime: node.mtime,
            ctime: node.mtime,
            mode: type_bits(node.kind) | node.mode,
            nlink: node.nlink,
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            block_size: 4096,
        }
    }
}

pub fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::Dir => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::File => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}

pub fn kind_of(mode: u32) -> FileKind {
    let all = [
        FileKind::Fifo,
        FileKind::CharDevice,
        FileKind::Dir,
        FileKind::BlockDevice,
        FileKind::Symlink,
        FileKind::Socket,
    ];
    let same = |kind: &FileKind| type_bits(*kind) == mode & 0o170_000;
    all.into_iter().find(same).unwrap_or(FileKind::File)
}
