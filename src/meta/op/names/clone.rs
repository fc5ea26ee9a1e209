//! Clone: copies nodes that share the slices of their sources.

use crate::error::{Error, Result};
use crate::meta::engine::{Change, Key};
use crate::meta::op::attrs::access;
use crate::meta::record::attr::{align4k, flag};
use crate::meta::record::changelog::LogOp;
use crate::meta::record::{Attr, CHUNK_SIZE, DirStat, FileKind, SliceSize};
use crate::meta::{Caller, CloneMode, Ino, MetaTxn, Name, Operation, Plan, Timestamp, TxnLock};

/// One node to clone.
#[derive(Debug, Clone)]
pub struct Source {
    pub src: Ino,
    pub name: Name,
    /// A new inode number for the copy.
    pub ino: Ino,
    /// For a file with very many chunks: the chunks that it had at one time.
    pub chunks: Option<ChunkHint>,
}

/// The chunks that a large file had while its attr was as given.
#[derive(Debug, Clone)]
pub struct ChunkHint {
    pub length: u64,
    pub mtime: Timestamp,
    pub indexes: Vec<u32>,
}

/// Setuid and setgid.
const SET_ID: u16 = 0o6000;
/// A file with more chunks than this has them listed first, so that absent ones are not read.
pub const PLAIN_CHUNKS: u64 = 256;

/// Clones nodes of one directory into another. Sources that no longer exist are skipped.
pub struct CloneNodes<'a> {
    pub caller: &'a Caller,
    pub sources: &'a [Source],
    pub dir: Ino,
    pub mode: CloneMode,
    /// This is the top of the clone: its name must be free, and a directory stays detached until it
    /// is complete.
    pub top: bool,
}

/// A cloned node.
#[derive(Debug, Clone)]
pub struct Cloned {
    pub src: Ino,
    pub ino: Ino,
    pub attr: Attr,
}

/// The outcome of [`CloneNodes`]. `Stale`: a chunk hint is out of date and must be read again.
#[derive(Debug)]
pub enum Clones {
    CreateOutcome(Vec<Cloned>),
    Stale,
}

impl Operation for CloneNodes<'_> {
    type Output = Clones;
    const NAME: &'static str = "clone";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.dir)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Clones>> {
        self.fetch_nodes(tx).await?;
        let mut found = Vec::new();
        for source in self.sources {
            if let Some(attr) = tx.attr(source.src).await? {
                if !source.is_current(&attr) {
                    return Ok(Plan::unchanged(Clones::Stale));
                }
                self.may_copy(tx, &attr).await?;
                found.push((source, attr));
            } else if self.top {
                return Err(Error::NotFound);
            }
        }
        fetch_content(tx, &found).await?;

        let mut plan = Plan::new();
        let mut cloned = Vec::new();
        for (source, attr) in found {
            let copy = self.copy(tx, &attr);
            self.plan_node(tx, &mut plan, source, &copy).await?;
            cloned.push(Cloned { src: source.src, ino: source.ino, attr: copy });
        }
        let dirs = cloned.iter().filter(|clone| clone.attr.is_dir()).count();
        if self.top && dirs == 0 {
            plan.touch_dir(self.dir, 0, Some(tx.now()));
        } else if !self.top && dirs > 0 {
            // Guards against a concurrent removal of the clone.
            tx.dir(self.dir).await?;
            plan.touch_dir(self.dir, i64::try_from(dirs).unwrap_or(i64::MAX), None);
        }
        Ok(plan.with_output(Clones::CreateOutcome(cloned)))
    }
}

impl CloneNodes<'_> {
    async fn fetch_nodes(&self, tx: &mut MetaTxn<'_>) -> Result<()> {
        let mut keys = Vec::new();
        for source in self.sources {
            keys.push(Key::Attr(source.src));
            keys.push(Key::Xattrs(source.src));
        }
        if self.top {
            keys.push(Key::Place(self.dir));
            keys.extend(self.sources.iter().map(|s| Key::Entry(self.dir, s.name.clone())));
        }
        tx.prefetch(&keys).await?;
        if !self.top {
            return Ok(());
        }
        let dir = tx.dir(self.dir).await?;
        access::check(tx, self.caller, &dir, access::WRITE | access::EXEC).await?;
        if dir.has_flag(flag::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        if dir.parent.is_sub_trash() {
            return Err(Error::NotFound);
        }
        for source in self.sources {
            if tx.entry(self.dir, &source.name).await?.is_some() {
                return Err(Error::Exists);
            }
        }
        Ok(())
    }

    /// Checks that the caller could copy the node by reading it.
    async fn may_copy(&self, tx: &mut MetaTxn<'_>, source: &Attr) -> Result<()> {
        match source.kind {
            FileKind::BlockDevice | FileKind::CharDevice if !self.caller.is_root() => {
                Err(Error::NotPermitted)
            }
            FileKind::Dir => {
                access::check(tx, self.caller, source, access::READ | access::EXEC).await
            }
            FileKind::File => access::check(tx, self.caller, source, access::READ).await,
            _ => Ok(()),
        }
    }

    fn copy(&self, tx: &MetaTxn<'_>, source: &Attr) -> Attr {
        let mut copy = Attr { parent: self.dir, ..source.clone() };
        // Sub-directories are added as they are cloned; other nodes have one name so far.
        copy.nlink = if copy.is_dir() { 2 } else { 1 };
        if !self.mode.preserve {
            copy.uid = self.caller.uid;
            copy.gid = self.caller.gid;
            copy.mode &= !self.mode.umask;
            (copy.atime, copy.mtime, copy.ctime) = (tx.now(), tx.now(), tx.now());
        }
        if !self.caller.is_root() {
            self.as_own(&mut copy);
        }
        copy
    }

    /// Applies the limits of a caller that is not root: it cannot create nodes that belong to
    /// others, or with flags that only root may set.
    fn as_own(&self, copy: &mut Attr) {
        if copy.uid != self.caller.uid || !self.caller.in_group(copy.gid) {
            (copy.uid, copy.gid) = (self.caller.uid, self.caller.gid);
            copy.mode &= !SET_ID;
        }
        copy.flags &= !(flag::IMMUTABLE | flag::APPEND);
    }

    async fn plan_node<T>(
        &self,
        tx: &mut MetaTxn<'_>,
        plan: &mut Plan<T>,
        source: &Source,
        copy: &Attr,
    ) -> Result<()> {
        let (src, ino) = (source.src, source.ino);
        let space = align4k(copy.length);
        plan.put_attr(ino, copy);
        plan.add_usage(space, 1);
        plan.add_owner_usage(copy.uid, copy.gid, space, 1);
        let is_root = self.caller.is_root();
        for (name, value) in tx.xattrs(src).await? {
            if !is_root && !name.as_bytes().starts_with(b"user.") {
                continue;
            }
            plan.push(Change::PutXattr(ino, name, value));
        }
        let detached = self.top && copy.is_dir();
        if detached {
            plan.push(Change::PutDetached(ino, tx.now().sec));
        } else {
            plan.put_entry(self.dir, &source.name, copy.kind, ino);
            let length = if copy.is_file() { copy.length.cast_signed() } else { 0 };
            plan.add_dir_usage(self.dir, length, copy.space(), 1);
        }
        match copy.kind {
            FileKind::Dir => plan.push(Change::PutDirStat(ino, DirStat::default())),
            FileKind::File => copy_chunks(tx, plan, source, copy.length).await?,
            FileKind::Symlink => {
                if let Some(target) = tx.symlink(src).await? {
                    plan.push(Change::PutSymlink(ino, target));
                }
            }
            _ => {}
        }
        let line = LogOp::Clone {
            source: src,
            parent: self.dir,
            name: &source.name,
            ino,
            mode: if self.mode.preserve { 2 } else { 0 },
            umask: self.mode.umask,
            is_top: self.top,
        };
        plan.log(tx, line);
        Ok(())
    }
}

impl Source {
    fn indexes(&self, length: u64) -> Vec<u32> {
        match &self.chunks {
            Some(hint) => hint.indexes.clone(),
            None if length == 0 => Vec::new(),
            None => (0..=u32::try_from(length / CHUNK_SIZE).unwrap_or(u32::MAX)).collect(),
        }
    }

    fn is_current(&self, attr: &Attr) -> bool {
        match &self.chunks {
            Some(hint) => hint.length == attr.length && hint.mtime == attr.mtime,
            None => !attr.is_file() || attr.length / CHUNK_SIZE < PLAIN_CHUNKS,
        }
    }
}

/// Reads the chunks and symlink targets of all sources with one request.
async fn fetch_content(tx: &mut MetaTxn<'_>, found: &[(&Source, Attr)]) -> Result<()> {
    let mut keys = Vec::new();
    for (source, attr) in found {
        match attr.kind {
            FileKind::File => {
                let indexes = source.indexes(attr.length);
                keys.extend(indexes.into_iter().map(|index| Key::Chunk(source.src, index)));
            }
            FileKind::Symlink => keys.push(Key::Symlink(source.src)),
            _ => {}
        }
    }
    tx.prefetch(&keys).await
}

async fn copy_chunks<T>(
    tx: &mut MetaTxn<'_>,
    plan: &mut Plan<T>,
    source: &Source,
    length: u64,
) -> Result<()> {
    for index in source.indexes(length) {
        let slices = tx.chunk(source.src, index).await?;
        if slices.is_empty() {
            continue;
        }
        for slice in slices.iter().filter(|slice| !slice.id.is_hole()) {
            let slice = SliceSize { id: slice.id, size: slice.size };
            plan.push(Change::AddSliceRef { slice, by: 1 });
        }
        plan.push(Change::AppendSlices { ino: source.ino, index, slices, if_present: false });
    }
    Ok(())
}

/// Gives a complete, detached directory its name.
pub struct Attach<'a> {
    pub caller: &'a Caller,
    pub ino: Ino,
    pub dir: Ino,
    pub name: &'a Name,
}

impl Operation for Attach<'_> {
    type Output = ();
    const NAME: &'static str = "attach";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.dir)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<()>> {
        let entry = Key::Entry(self.dir, self.name.clone());
        tx.prefetch(&[Key::Place(self.dir), entry]).await?;
        let dir = tx.dir(self.dir).await?;
        if dir.parent.is_sub_trash() {
            return Err(Error::NotFound);
        }
        access::may_add(&dir)?;
        if tx.entry(self.dir, self.name).await?.is_some() {
            return Err(Error::Exists);
        }
        let mut plan = Plan::new();
        plan.touch_dir(self.dir, 1, Some(tx.now()));
        plan.put_entry(self.dir, self.name, FileKind::Dir, self.ino);
        plan.push(Change::RemoveDetached(self.ino));
        plan.add_dir_usage(self.dir, 0, 4096, 1);
        plan.log(tx, LogOp::Attach { ino: self.ino, parent: self.dir, name: self.name });
        Ok(plan)
    }
}

/// Removes the emptied top directory of an abandoned clone.
pub struct DropDetached {
    pub ino: Ino,
}

impl Operation for DropDetached {
    type Output = ();
    const NAME: &'static str = "drop detached";

    fn txn_lock(&self) -> TxnLock {
        TxnLock::Node(self.ino)
    }

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<()>> {
        let mut plan = Plan::new();
        plan.push(Change::RemoveDetached(self.ino));
        let Some(node) = tx.attr(self.ino).await? else { return Ok(plan) };
        plan.push(Change::RemoveAttr(self.ino));
        plan.push(Change::RemoveXattrs(self.ino));
        plan.push(Change::RemoveDirStat(self.ino));
        plan.effects.changed_nodes.push(self.ino);
        plan.effects.removed_dirs.push(self.ino);
        plan.add_usage(-4096, -1);
        plan.add_owner_usage(node.uid, node.gid, -4096, -1);
        plan.log(tx, LogOp::Cleanup { ino: self.ino });
        Ok(plan)
    }
}
