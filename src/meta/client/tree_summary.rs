//! Summaries of the directories of a subtree, down to some depth, the largest of each.

use std::collections::HashSet;

use super::summary::{Summary, SummaryOf};
use super::walk::{Visit, work_off};
use super::{Caller, Meta, Progress};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::FileKind;
use crate::sync::{Mutex, MutexGuard};

/// Directories looked at beside each other; each may ask for many below it at once.
const AT_ONCE: usize = 4;
/// As the tools have it: what is more is not shown.
const DEEPEST: u8 = 10;
const MOST: u8 = 100;
/// Directories whose entries may be shown; what is in more of them is only added up.
const MOST_SHOWN: usize = 2000;
/// Children of a directory beyond those that are shown, before the smallest are put together.
const SPARE: usize = 16;

/// What is wanted of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeSummary {
    /// Levels that are shown; what is deeper is only added up.
    pub depth: u8,
    /// Entries of each directory that are shown; the rest are shown as one.
    pub top: u8,
    /// Every file is looked at; otherwise dir stats are believed.
    pub strict: bool,
}

/// A node with all that is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeNode {
    /// [`Ino::NONE`] for what stands for several.
    pub ino: Ino,
    /// From the top of the tree, whose own is empty.
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    pub files: u64,
    pub dirs: u64,
    /// The largest first.
    pub children: Vec<TreeNode>,
}

/// One summary in the making.
struct Summariser<'a> {
    meta: &'a Meta,
    caller: &'a Caller,
    top: Ino,
    how: TreeSummary,
    progress: &'a Progress,
    shown: Mutex<Vec<Shown>>,
}

/// A directory that is shown; those in it come after it.
struct Shown {
    above: usize,
    /// Itself, and what is below it and not among its children.
    node: TreeNode,
    /// What of its children does not stand for itself.
    others: TreeNode,
    is_gone: bool,
}

/// What is to be added to a directory that is shown.
enum Work {
    /// Its entries.
    Entries { to: usize, visit: Visit, depth: u8 },
    /// All that is below it.
    Below { to: usize, visit: Visit },
    /// A directory in it, of which nothing is shown but its sum.
    Leaf { to: usize, visit: Visit, node: TreeNode },
}

impl Meta {
    /// Adds up a subtree and the directories in it, for a caller who must be allowed to list all of
    /// them. Nodes and bytes are counted as they are found.
    pub async fn tree_summary(
        &self,
        caller: &Caller,
        ino: Ino,
        how: TreeSummary,
        progress: &Progress,
    ) -> Result<TreeNode> {
        let attr = self.attr_now(ino).await?.ok_or(Error::NotFound)?;
        let top = TreeNode::new(ino, String::new(), attr.kind, attr.length, progress);
        if !attr.is_dir() {
            return Ok(top);
        }
        let shown = Mutex::new(vec![Shown::new(0, top)]);
        let how = TreeSummary { depth: how.depth.min(DEEPEST), top: how.top.min(MOST), ..how };
        let summariser = Summariser { meta: self, caller, top: ino, how, progress, shown };
        let first = Work::first(0, Visit::top(ino), how.depth);
        let work = |work, limit| summariser.work(work, limit);
        work_off(vec![first], AT_ONCE, progress, work).await?;
        Ok(summariser.fold())
    }
}

impl Work {
    fn first(to: usize, visit: Visit, depth: u8) -> Self {
        if depth == 0 { Self::Below { to, visit } } else { Self::Entries { to, visit, depth } }
    }
}

impl Summariser<'_> {
    async fn work(&self, work: Work, limit: usize) -> Result<Vec<Work>> {
        match work {
            Work::Entries { to, visit, depth } => self.entries(to, visit, depth, limit).await,
            Work::Below { to, visit } => {
                let below = self.below(visit).await?;
                self.shown_at(to, |dir| dir.node.add(below));
                Ok(Vec::new())
            }
            Work::Leaf { to, visit, mut node } => {
                node.add(self.below(visit).await?);
                self.shown_at(to, |dir| dir.adopt(node, self.how.top));
                Ok(Vec::new())
            }
        }
    }

    async fn below(&self, visit: Visit) -> Result<Summary> {
        let of = SummaryOf { recursive: true, strict: self.how.strict };
        self.meta.sum_below(self.caller, (self.top, visit), of, self.progress).await
    }

    async fn entries(&self, to: usize, visit: Visit, depth: u8, limit: usize) -> Result<Vec<Work>> {
        let dir = visit.dir;
        if !visit.is_begun() && self.meta.enter(self.caller, self.top, &visit).await?.is_none() {
            self.shown_at(to, |dir| dir.is_gone = true);
            return Ok(Vec::new());
        }
        let mut rest = Vec::new();
        let entries = visit.nodes(self.meta, limit, &mut rest).await?;
        let own: HashSet<Ino> = self.meta.dirs_among(self.top, dir, &entries).into_iter().collect();
        let rest = rest.into_iter().map(|visit| Work::Entries { to, visit, depth });
        let mut next: Vec<Work> = rest.collect();
        let mut shown = self.lock();
        let path = shown.get(to).map(|dir| dir.node.path.clone()).unwrap_or_default();
        for entry in entries {
            let path = join(&path, &entry.name.to_string());
            let length = entry.attr.map_or(0, |attr| attr.length);
            let node = |path| TreeNode::new(entry.ino, path, entry.kind, length, self.progress);
            if entry.kind != FileKind::Dir {
                if let Some(dir) = shown.get_mut(to) {
                    dir.adopt(node(path), self.how.top);
                }
            } else if own.contains(&entry.ino) {
                let visit = Visit::below(entry.ino, dir);
                if shown.len() < MOST_SHOWN {
                    shown.push(Shown::new(to, node(path)));
                    next.push(Work::first(shown.len() - 1, visit, depth - 1));
                } else {
                    next.push(Work::Leaf { to, visit, node: node(path) });
                }
            }
        }
        Ok(next)
    }

    /// Puts every directory into the one above, the last found first.
    fn fold(self) -> TreeNode {
        let mut shown = self.shown.into_inner();
        let mut top = None;
        while let Some(Shown { above, mut node, others, is_gone }) = shown.pop() {
            node.close(others, self.how.top);
            match shown.get_mut(above) {
                Some(above) if !is_gone => above.adopt(node, self.how.top),
                Some(_) => {}
                None => top = Some(node),
            }
        }
        top.unwrap_or_else(|| TreeNode::rest(String::new()))
    }

    fn shown_at(&self, at: usize, change: impl FnOnce(&mut Shown)) {
        if let Some(dir) = self.lock().get_mut(at) {
            change(dir);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Shown>> {
        self.shown.lock()
    }
}

impl Shown {
    fn new(above: usize, node: TreeNode) -> Self {
        Self { above, node, others: TreeNode::rest(String::new()), is_gone: false }
    }

    /// Takes a child. Of many, the largest are kept.
    fn adopt(&mut self, child: TreeNode, top: u8) {
        let children = &mut self.node.children;
        children.push(child);
        if children.len() > 2 * usize::from(top) + SPARE {
            sort(children);
            for child in children.drain(usize::from(top)..) {
                self.others.add(child.sum());
            }
        }
    }
}

impl TreeNode {
    fn new(ino: Ino, path: String, kind: FileKind, length: u64, progress: &Progress) -> Self {
        let mut own = Summary::default();
        own.add(kind, length);
        progress.summed(own);
        let mut node = Self { ino, path, kind, size: 0, files: 0, dirs: 0, children: Vec::new() };
        node.add(own);
        node
    }

    fn add(&mut self, sum: Summary) {
        self.size = self.size.saturating_add(sum.size);
        self.files += sum.files;
        self.dirs += sum.dirs;
    }

    /// What stands for several.
    fn rest(path: String) -> Self {
        let (ino, kind) = (Ino::NONE, FileKind::File);
        Self { ino, path, kind, size: 0, files: 0, dirs: 0, children: Vec::new() }
    }

    /// Adds the children up and shows the largest, all others as one.
    fn close(&mut self, others: Self, top: u8) {
        let mut children = std::mem::take(&mut self.children);
        sort(&mut children);
        let mut rest = Self { path: join(&self.path, "..."), ..others };
        let is_more = rest.sum() != Summary::default() || children.len() > usize::from(top);
        for child in children.drain(children.len().min(usize::from(top))..) {
            rest.add(child.sum());
        }
        if is_more {
            children.push(rest);
        }
        for child in &children {
            self.add(child.sum());
        }
        self.children = children;
    }

    fn sum(&self) -> Summary {
        Summary { files: self.files, dirs: self.dirs, length: 0, size: self.size }
    }
}

/// The largest first.
fn sort(children: &mut [TreeNode]) {
    children.sort_unstable_by(|a, b| b.size.cmp(&a.size).then_with(|| a.path.cmp(&b.path)));
}

fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}
