//! Reading the nodes of a directory, with everything that a JSON dump holds about them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use crate::error::{Error, Result};
use crate::meta::engine::{Cursor, Engine, Key, Record};
use crate::meta::record::{AclRule, Attr, CHUNK_SIZE, Entry, FileKind, Slice};
use crate::meta::{Ino, Name};
use crate::sync::Mutex;

/// Nodes read by one request.
const AT_ONCE: usize = 25;
/// Chunks of one file read by one request.
const CHUNKS_AT_ONCE: usize = 500;

/// A node as a dump shows it.
#[derive(Debug, Clone)]
pub struct Node {
    pub ino: Ino,
    /// `None` only for the trash of a volume that never had one.
    pub attr: Option<Attr>,
    pub symlink: Option<Bytes>,
    /// By name.
    pub xattrs: Vec<(Name, Bytes)>,
    pub access_acl: Option<AclRule>,
    pub default_acl: Option<AclRule>,
    /// Chunks with records, below the length of the file.
    pub chunks: Vec<(u32, Vec<Slice>)>,
}

impl Node {
    pub fn is_dir(&self) -> bool {
        self.attr.as_ref().is_none_or(Attr::is_dir)
    }
}

/// What became of an entry between its listing and the reading of its node.
#[derive(Debug)]
pub enum Outcome {
    Found(Box<Node>),
    /// Removed meanwhile.
    Gone,
    /// The entry exists, but its node does not, or not readably.
    Damaged(String),
}

/// Reads nodes of one volume.
pub struct NodeReader {
    engine: Arc<dyn Engine>,
    rules: Mutex<HashMap<u32, Option<AclRule>>>,
}

impl NodeReader {
    pub async fn new(engine: Arc<dyn Engine>) -> Result<Self> {
        let rules = engine.acls().await?.into_iter().map(|(id, rule)| (id, Some(rule)));
        Ok(Self { rules: Mutex::new(rules.collect()), engine })
    }

    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Reads one node; none if it does not exist.
    pub async fn node(&self, ino: Ino, kind: FileKind) -> Result<Option<Node>> {
        Ok(self.nodes(&[(ino, kind)]).await?.pop().flatten())
    }

    /// Reads the nodes of some entries of a directory, in their order.
    pub async fn of_entries(
        &self,
        dir: Ino,
        entries: Vec<(Name, Entry)>,
    ) -> Result<Vec<(Name, Outcome)>> {
        let batches: Vec<_> =
            entries.chunks(AT_ONCE).map(|some| self.batch(dir, some.to_vec())).collect();
        let outcomes: Vec<Vec<Outcome>> =
            stream::iter(batches).buffered(usize::MAX).try_collect().await?;
        let names = entries.into_iter().map(|(name, _)| name);
        Ok(names.zip(outcomes.into_iter().flatten()).collect())
    }

    async fn batch(&self, dir: Ino, entries: Vec<(Name, Entry)>) -> Result<Vec<Outcome>> {
        let wanted: Vec<_> = entries.iter().map(|(_, entry)| (entry.ino, entry.kind)).collect();
        let mut outcomes = Vec::with_capacity(entries.len());
        match self.nodes(&wanted).await {
            Ok(nodes) => {
                for ((name, entry), node) in entries.into_iter().zip(nodes) {
                    outcomes.push(match node {
                        Some(node) => Outcome::Found(Box::new(node)),
                        None => self.missing(dir, name, entry).await?,
                    });
                }
            }
            // One of them is damaged: find out which.
            Err(Error::Damaged { .. }) => {
                for (name, entry) in entries {
                    outcomes.push(match self.node(entry.ino, entry.kind).await {
                        Ok(Some(node)) => Outcome::Found(Box::new(node)),
                        Ok(None) => self.missing(dir, name, entry).await?,
                        Err(error @ Error::Damaged { .. }) => Outcome::Damaged(error.to_string()),
                        Err(other) => return Err(other),
                    });
                }
            }
            Err(other) => return Err(other),
        }
        Ok(outcomes)
    }

    /// Tells an entry that was removed meanwhile from one without a node.
    async fn missing(&self, dir: Ino, name: Name, entry: Entry) -> Result<Outcome> {
        let found = self.engine.read(&[Key::Entry(dir, name)]).await?.pop();
        Ok(match found {
            Some(Record::Entry(Some(now))) if now.ino == entry.ino => {
                Outcome::Damaged(format!("inode {} does not exist", entry.ino))
            }
            _ => Outcome::Gone,
        })
    }

    /// Reads nodes whose kinds are known from their entries.
    async fn nodes(&self, wanted: &[(Ino, FileKind)]) -> Result<Vec<Option<Node>>> {
        let mut keys = Vec::with_capacity(wanted.len() * 3);
        for (ino, kind) in wanted {
            keys.extend([Key::Attr(*ino), Key::Xattrs(*ino)]);
            keys.extend(match kind {
                FileKind::File => Some(Key::Chunk(*ino, 0)),
                FileKind::Symlink => Some(Key::Symlink(*ino)),
                _ => None,
            });
        }
        let mut records = self.engine.read(&keys).await?.into_iter();
        let mut nodes = Vec::with_capacity(wanted.len());
        for (ino, kind) in wanted {
            let (attr, xattrs) = (records.next(), records.next());
            let content = match kind {
                FileKind::File | FileKind::Symlink => records.next(),
                _ => None,
            };
            let (Some(Record::Attr(attr)), Some(Record::Xattrs(mut xattrs))) = (attr, xattrs)
            else {
                return Err(Error::internal("reading nodes", "unexpected records"));
            };
            let Some(attr) = attr else {
                nodes.push(None);
                continue;
            };
            xattrs.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            let (mut symlink, mut chunks) = (None, Vec::new());
            match content {
                Some(Record::Chunk(slices)) if !slices.is_empty() => chunks.push((0, slices)),
                Some(Record::Symlink(target)) => symlink = target,
                _ => {}
            }
            nodes.push(Some(Node {
                ino: *ino,
                symlink,
                xattrs,
                access_acl: None,
                default_acl: None,
                chunks,
                attr: Some(attr),
            }));
        }
        for (node, (_, kind)) in nodes.iter_mut().zip(wanted) {
            if let Some(node) = node {
                self.complete(node, *kind).await?;
            }
        }
        Ok(nodes)
    }

    /// Adds what the first request could not ask for: ACL rules and further chunks.
    async fn complete(&self, node: &mut Node, listed: FileKind) -> Result<()> {
        let Some(attr) = node.attr.clone() else { return Ok(()) };
        if attr.kind != listed {
            return Err(Error::damaged(
                format!("inode {}", node.ino),
                format!("its entry says {listed:?}, its attr {:?}", attr.kind),
            ));
        }
        node.access_acl = self.rule(attr.access_acl).await?;
        node.default_acl = self.rule(attr.default_acl).await?;
        if !attr.is_file() {
            return Ok(());
        }
        if attr.length == 0 {
            node.chunks.clear();
        }
        if attr.length <= CHUNK_SIZE {
            return Ok(());
        }
        let indexes = self.engine.chunk_indexes(node.ino, attr.length).await?;
        let more: Vec<u32> = indexes
            .into_iter()
            .filter(|index| *index > 0 && u64::from(*index) * CHUNK_SIZE < attr.length)
            .collect();
        for some in more.chunks(CHUNKS_AT_ONCE) {
            let keys: Vec<Key> = some.iter().map(|index| Key::Chunk(node.ino, *index)).collect();
            for (index, record) in some.iter().zip(self.engine.read(&keys).await?) {
                if let Record::Chunk(slices) = record
                    && !slices.is_empty()
                {
                    node.chunks.push((*index, slices));
                }
            }
        }
        Ok(())
    }

    /// Returns a rule; none for id 0 and for a rule that does not exist.
    async fn rule(&self, id: u32) -> Result<Option<AclRule>> {
        if id == 0 {
            return Ok(None);
        }
        if let Some(known) = self.rules.lock().get(&id) {
            return Ok(known.clone());
        }
        let rule = match self.engine.read(&[Key::Acl(id)]).await?.pop() {
            Some(Record::Acl(rule)) => rule,
            _ => None,
        };
        self.rules.lock().insert(id, rule.clone());
        Ok(rule)
    }
}

/// The entries of a directory by name, some at a time.
pub struct EntrySource {
    dir: Ino,
    /// Entries that were read and not yet taken, the next one last.
    ready: Vec<(Name, Entry)>,
    cursor: Cursor,
    /// Entries that cannot be dumped.
    pub invalid: Vec<String>,
}

/// Entries of one page of a listing.
const PAGE: usize = 1000;

impl EntrySource {
    pub fn new(dir: Ino) -> Self {
        Self { dir, ready: Vec::new(), cursor: Cursor::Start, invalid: Vec::new() }
    }

    /// Returns the next entries, at most `count`; none at the end.
    pub async fn next(
        &mut self,
        engine: &Arc<dyn Engine>,
        count: usize,
    ) -> Result<Vec<(Name, Entry)>> {
        while self.ready.is_empty() && self.cursor != Cursor::End {
            self.fill(engine).await?;
        }
        let from = self.ready.len().saturating_sub(count);
        let mut some = self.ready.split_off(from);
        some.reverse();
        Ok(some)
    }

    /// Reads a page; on a store without order, all entries.
    async fn fill(&mut self, engine: &Arc<dyn Engine>) -> Result<()> {
        let sorted = engine.properties().sorted;
        loop {
            let page = engine.list(self.dir, &self.cursor, PAGE).await?;
            self.ready.extend(page.entries);
            self.cursor = page.next;
            for bad in page.invalid {
                self.invalid.push(String::from_utf8_lossy(&bad.name).into_owned());
            }
            if sorted || self.cursor == Cursor::End {
                break;
            }
        }
        // A listing of a directory that changes may return an entry twice.
        self.ready.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        self.ready.dedup_by(|(a, _), (b, _)| a == b);
        Ok(())
    }
}
