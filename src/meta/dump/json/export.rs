//! Dumping as JSON: walks the tree depth first and reads ahead of what is written.
//!
//! Memory is bounded by what is read ahead: some nodes of each directory on the current path, and
//! the names of such a directory on stores that do not sort them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::warn;

use super::model::{DumpedCounters, DumpedDeletedFile, DumpedQuota, DumpedQuotas, DumpedSustained};
use super::write::{Header, Writer};
use crate::error::{Error, Result};
use crate::meta::dump::escape::escape;
use crate::meta::dump::id_set::IdSet;
use crate::meta::dump::node::{EntrySource, Node, NodeReader, Outcome};
use crate::meta::dump::{ALL, DumpOptions, Progress, Skipped};
use crate::meta::engine::Engine;
use crate::meta::record::{Counter, FileKind, QuotaKey, Setting};
use crate::meta::{Ino, Name};

/// Nodes of one directory that are read together.
const BATCH: usize = 100;
/// Text is handed to the writing thread in pieces of about this size.
const PIECE: usize = 256 << 10;
/// Below this depth, less and less is read ahead.
const SHALLOW: usize = 16;

/// Writes a dump to `out`, piece by piece.
pub async fn export(
    engine: Arc<dyn Engine>,
    setting: &Setting,
    options: &DumpOptions,
    out: mpsc::Sender<Vec<u8>>,
    progress: &Progress,
) -> Result<Skipped> {
    let reader = Arc::new(NodeReader::new(Arc::clone(&engine)).await?);
    let is_whole = options.root == Ino::ROOT;
    let mut walk = Walk {
        reader,
        threads: options.threads.max(1),
        writer: Writer::default(),
        out,
        dirs: IdSet::default(),
        skipped: Skipped::default(),
        progress,
    };
    walk.writer.header(&header(engine.as_ref(), setting, options).await?)?;
    let root = walk.top(options.root).await?.ok_or_else(|| {
        Error::damaged(format!("inode {}", options.root), "the top directory does not exist")
    })?;
    walk.tree("FSTree", root).await?;
    if is_whole && !options.skip_trash {
        walk.writer.comma();
        let trash = walk.top(Ino::TRASH).await?.unwrap_or(Node {
            ino: Ino::TRASH,
            attr: None,
            symlink: None,
            xattrs: Vec::new(),
            access_acl: None,
            default_acl: None,
            chunks: Vec::new(),
        });
        walk.tree("Trash", trash).await?;
    }
    walk.writer.end();
    walk.flush().await?;
    Ok(walk.skipped)
}

/// Reads everything that comes before the trees.
async fn header(engine: &dyn Engine, setting: &Setting, options: &DumpOptions) -> Result<Header> {
    let shown = if options.keep_secrets { setting.clone() } else { setting.without_store_keys() };
    let mut deleted = engine.deleted_files(i64::MAX, ALL).await?;
    deleted.sort_unstable_by_key(|file| (file.ino, file.length));
    let mut sustained = Vec::new();
    for session in engine.sessions().await? {
        let mut inodes: Vec<u64> =
            engine.sustained(session.sid).await?.into_iter().map(|ino| ino.0).collect();
        inodes.sort_unstable();
        if !inodes.is_empty() {
            sustained.push(DumpedSustained { sid: session.sid.0, inodes });
        }
    }
    sustained.sort_unstable_by_key(|session| session.sid);
    let (mut dirs, mut users, mut groups) = Default::default();
    for (key, quota) in engine.quotas().await? {
        let quotas: &mut DumpedQuotas = match key {
            QuotaKey::Dir(_) => &mut dirs,
            QuotaKey::User(_) => &mut users,
            QuotaKey::Group(_) => &mut groups,
        };
        if !quota.is_unset() {
            let limits = DumpedQuota { max_space: quota.max_space, max_inodes: quota.max_inodes };
            quotas.insert(key.number().1.to_string(), limits);
        }
    }
    if options.root != Ino::ROOT {
        (users, groups) = (BTreeMap::new(), BTreeMap::new());
    }
    let counters = DumpedCounters {
        used_space: engine.counter(Counter::UsedSpace).await?,
        used_inodes: engine.counter(Counter::TotalInodes).await?,
        next_inode: engine.counter(Counter::NextInode).await?,
        next_chunk: engine.counter(Counter::NextChunk).await?,
        next_session: engine.counter(Counter::NextSession).await?,
        next_trash: engine.counter(Counter::NextTrash).await?,
    };
    Ok(Header {
        setting: shown.to_object()?,
        counters,
        sustained,
        del_files: deleted
            .into_iter()
            .map(|file| DumpedDeletedFile {
                inode: file.ino.0,
                length: file.length,
                expire: file.at,
            })
            .collect(),
        quotas: dirs,
        user_quotas: users,
        group_quotas: groups,
    })
}

struct Walk<'a> {
    reader: Arc<NodeReader>,
    threads: usize,
    writer: Writer,
    out: mpsc::Sender<Vec<u8>>,
    /// Directories written so far: one that moves during the dump could come twice, and a loop in a
    /// damaged volume would never end.
    dirs: IdSet,
    skipped: Skipped,
    progress: &'a Progress,
}

impl Walk<'_> {
    async fn top(&self, ino: Ino) -> Result<Option<Node>> {
        self.reader.node(ino, FileKind::Dir).await
    }

    async fn tree(&mut self, name: &str, top: Node) -> Result<()> {
        let mut path: Vec<Dir> = Vec::new();
        self.dirs.insert(top.ino.0);
        self.writer.begin_dir(name, &top, 1)?;
        self.progress.add(1);
        path.push(open(Arc::clone(&self.reader), top.ino, self.width(0)).await?);
        while let Some(dir) = path.len().checked_sub(1).map(|last| &mut path[last]) {
            let depth = dir.depth;
            let Some((name, mut outcome)) = dir.next(&self.reader).await? else {
                for name in std::mem::take(&mut dir.source.invalid) {
                    self.skipped.damage(&format!("entry {name:?} of inode {}", dir.ino));
                }
                self.writer.end_dir(depth);
                path.pop();
                continue;
            };
            let Some(node) = self.check(dir.ino, &name, &mut outcome) else { continue };
            if dir.is_started {
                self.writer.comma();
            }
            dir.is_started = true;
            self.progress.add(1);
            let escaped = escape(name.as_bytes());
            if node.is_dir() {
                self.writer.begin_dir(&escaped, &node, depth + 2)?;
                let width = self.width(path.len());
                let mut below = match outcome.opening.take() {
                    Some(opening) => join(opening).await?,
                    None => open(Arc::clone(&self.reader), node.ino, width).await?,
                };
                below.depth = depth + 2;
                path.push(below);
            } else {
                self.writer.node(&escaped, &node, depth + 2)?;
            }
            if self.writer.len() >= PIECE {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Returns the node to write; none if it is left out.
    fn check(&mut self, dir: Ino, name: &Name, outcome: &mut Ahead) -> Option<Node> {
        match std::mem::replace(&mut outcome.outcome, Outcome::Gone) {
            Outcome::Gone => {
                self.skipped.gone += 1;
                None
            }
            Outcome::Damaged(why) => {
                self.skipped.damage(&format!("entry {name:?} of inode {dir}: {why}"));
                None
            }
            Outcome::Found(node) if node.is_dir() && !self.dirs.insert(node.ino.0) => {
                warn!(
                    "directory {} was moved during the dump: {name:?} of inode {dir} is left out",
                    node.ino
                );
                self.skipped.moved += 1;
                None
            }
            Outcome::Found(node) => Some(*node),
        }
    }

    /// How many batches and directories are read ahead at this depth.
    fn width(&self, depth: usize) -> usize {
        (self.threads / (1 + depth / SHALLOW)).max(1)
    }

    async fn flush(&mut self) -> Result<()> {
        let piece = self.writer.take();
        // The writing thread has failed, and reports why.
        self.out.send(piece).await.map_err(|_| Error::Interrupted)
    }
}

type NamedOutcomes = Vec<(Name, Outcome)>;

/// A directory that is being written.
struct Dir {
    ino: Ino,
    source: EntrySource,
    /// Batches that are being read, in order.
    reading: VecDeque<JoinHandle<Result<NamedOutcomes>>>,
    /// Nodes that were read.
    nodes: VecDeque<(Name, Ahead)>,
    /// Directories among `nodes` that are being opened.
    opening: usize,
    /// The number of `nodes` that were looked at for directories to open.
    examined: usize,
    width: usize,
    is_started: bool,
    /// Of its own line in the dump.
    depth: usize,
}

/// A node, and its contents if it is a directory that comes soon.
struct Ahead {
    outcome: Outcome,
    opening: Option<JoinHandle<Result<Dir>>>,
}

impl Dir {
    /// Returns the next node by name; none at the end.
    async fn next(&mut self, reader: &Arc<NodeReader>) -> Result<Option<(Name, Ahead)>> {
        while self.nodes.is_empty() {
            self.read_ahead(reader).await?;
            let Some(batch) = self.reading.pop_front() else { return Ok(None) };
            let nodes = join(batch).await?.into_iter();
            self.examined = 0;
            self.nodes
                .extend(nodes.map(|(name, outcome)| (name, Ahead { outcome, opening: None })));
            self.read_ahead(reader).await?;
        }
        while self.opening < self.width
            && let Some((_, ahead)) = self.nodes.get_mut(self.examined)
        {
            if let Outcome::Found(node) = &ahead.outcome
                && node.is_dir()
            {
                ahead.opening = Some(tokio::spawn(open(Arc::clone(reader), node.ino, self.width)));
                self.opening += 1;
            }
            self.examined += 1;
        }
        let next = self.nodes.pop_front();
        self.examined = self.examined.saturating_sub(1);
        if let Some((_, ahead)) = &next
            && ahead.opening.is_some()
        {
            self.opening -= 1;
        }
        Ok(next)
    }

    async fn read_ahead(&mut self, reader: &Arc<NodeReader>) -> Result<()> {
        while self.reading.len() < self.width {
            let entries = self.source.next(reader.engine(), BATCH).await?;
            if entries.is_empty() {
                break;
            }
            let (reader, dir) = (Arc::clone(reader), self.ino);
            self.reading
                .push_back(tokio::spawn(async move { reader.of_entries(dir, entries).await }));
        }
        Ok(())
    }
}

/// Stops what nobody will use.
impl Drop for Dir {
    fn drop(&mut self) {
        for batch in &self.reading {
            batch.abort();
        }
        for (_, ahead) in &self.nodes {
            if let Some(opening) = &ahead.opening {
                opening.abort();
            }
        }
    }
}

/// Lists a directory and reads its first nodes.
async fn open(reader: Arc<NodeReader>, ino: Ino, width: usize) -> Result<Dir> {
    let mut dir = Dir {
        ino,
        source: EntrySource::new(ino),
        reading: VecDeque::new(),
        nodes: VecDeque::new(),
        opening: 0,
        examined: 0,
        width,
        is_started: false,
        depth: 1,
    };
    let first = dir.source.next(reader.engine(), BATCH).await?;
    let nodes = reader.of_entries(ino, first).await?.into_iter();
    dir.nodes.extend(nodes.map(|(name, outcome)| (name, Ahead { outcome, opening: None })));
    Ok(dir)
}

async fn join<T>(task: JoinHandle<Result<T>>) -> Result<T> {
    task.await.map_err(|lost| Error::lost_task("reading nodes", &lost))?
}
