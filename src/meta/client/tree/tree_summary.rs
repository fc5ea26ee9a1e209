//! Tree summaries: totals of the directories of a subtree down to some depth, with the largest
//! entries of each.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::meta::client::tree::summary::{Summary, SummaryOptions};
use crate::meta::client::tree::walk::{Visit, run_work_list};
use crate::meta::client::{Meta, Progress};
use crate::meta::record::FileKind;
use crate::meta::{Caller, Ino};
use crate::sync::{Mutex, MutexGuard};

/// Directories processed concurrently; each may read many below it at once.
const AT_ONCE: usize = 4;
/// The limits of the tools: larger values are reduced.
const MAX_DEPTH: u8 = 10;
const MAX_ENTRIES: u8 = 100;
/// Directories whose entries are listed; the entries of further ones are only totalled.
const MAX_LISTED: usize = 2000;
/// Children kept beyond those to be returned, before the smallest are combined.
const SPARE: usize = 16;

/// What a tree summary returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeSummaryOptions {
    /// Levels to return; deeper ones are only totalled.
    pub depth: u8,
    /// Entries to return for each directory; the rest are combined.
    pub top: u8,
    /// Reads every node instead of relying on dir stats.
    pub strict: bool,
}

/// A node with the totals of its subtree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeNode {
    /// [`Ino::NONE`] for combined entries.
    pub ino: Ino,
    /// Relative to the top of the tree; empty for the top itself.
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    pub files: u64,
    pub dirs: u64,
    /// The largest first.
    pub children: Vec<TreeNode>,
}

/// A tree summary in progress.
struct Summariser<'a> {
    meta: &'a Meta,
    caller: &'a Caller,
    top: Ino,
    how: TreeSummaryOptions,
    progress: &'a Progress,
    listed: Mutex<Vec<ListedDir>>,
}

/// A directory to be returned; its sub-directories follow it in the list.
struct ListedDir {
    above: usize,
    /// The directory, with everything below it that is not among its children.
    node: TreeNode,
    /// The children that are combined.
    others: TreeNode,
    is_gone: bool,
}

/// A work item: what is to be added to a listed directory.
enum Work {
    /// Its entries.
    Entries { to: usize, visit: Visit, depth: u8 },
    /// Everything below it.
    Below { to: usize, visit: Visit },
    /// A sub-directory of which only the totals are returned.
    Leaf { to: usize, visit: Visit, node: TreeNode },
}

impl Meta {
    /// Totals of a subtree and of its directories, for a caller that must be allowed to list all of
    /// them. Counts nodes and bytes as they are found.
    pub async fn tree_summary(
        &self,
        caller: &Caller,
        ino: Ino,
        how: TreeSummaryOptions,
        progress: &Progress,
    ) -> Result<TreeNode> {
        let attr = self.stored_attr(ino).await?.ok_or(Error::NotFound)?;
        let top = TreeNode::new(ino, String::new(), attr.kind, attr.length, progress);
        if !attr.is_dir() {
            return Ok(top);
        }
        let listed = Mutex::new(vec![ListedDir::new(0, top)]);
        let how = TreeSummaryOptions {
            depth: how.depth.min(MAX_DEPTH),
            top: how.top.min(MAX_ENTRIES),
            ..how
        };
        let summariser = Summariser { meta: self, caller, top: ino, how, progress, listed };
        let first = Work::first(0, Visit::top(ino), how.depth);
        let work = |work, limit| summariser.work(work, limit);
        run_work_list(vec![first], AT_ONCE, progress, work).await?;
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
                self.update_listed(to, |dir| dir.node.add(below));
                Ok(Vec::new())
            }
            Work::Leaf { to, visit, mut node } => {
                node.add(self.below(visit).await?);
                self.update_listed(to, |dir| dir.add_child(node, self.how.top));
                Ok(Vec::new())
            }
        }
    }

    async fn below(&self, visit: Visit) -> Result<Summary> {
        let of = SummaryOptions { recursive: true, strict: self.how.strict };
        self.meta.sum_below(self.caller, self.top, visit, of, self.progress).await
    }

    async fn entries(&self, to: usize, visit: Visit, depth: u8, limit: usize) -> Result<Vec<Work>> {
        let dir = visit.dir;
        if !visit.is_started() && self.meta.enter(self.caller, self.top, &visit).await?.is_none() {
            self.update_listed(to, |dir| dir.is_gone = true);
            return Ok(Vec::new());
        }
        let mut rest = Vec::new();
        let entries = visit.entries_with_attrs(self.meta, limit, &mut rest).await?;
        let own: HashSet<Ino> = self.meta.dirs_among(self.top, dir, &entries).into_iter().collect();
        let rest = rest.into_iter().map(|visit| Work::Entries { to, visit, depth });
        let mut next: Vec<Work> = rest.collect();
        let mut listed = self.lock();
        let path = listed.get(to).map(|dir| dir.node.path.clone()).unwrap_or_default();
        for entry in entries {
            let path = join(&path, &entry.name.to_string());
            let length = entry.attr.map_or(0, |attr| attr.length);
            let node = |path| TreeNode::new(entry.ino, path, entry.kind, length, self.progress);
            if entry.kind != FileKind::Dir {
                if let Some(dir) = listed.get_mut(to) {
                    dir.add_child(node(path), self.how.top);
                }
            } else if own.contains(&entry.ino) {
                let visit = Visit::below(entry.ino, dir);
                if listed.len() < MAX_LISTED {
                    listed.push(ListedDir::new(to, node(path)));
                    next.push(Work::first(listed.len() - 1, visit, depth - 1));
                } else {
                    next.push(Work::Leaf { to, visit, node: node(path) });
                }
            }
        }
        Ok(next)
    }

    /// Adds every directory to its parent, the last found first.
    fn fold(self) -> TreeNode {
        let mut listed = self.listed.into_inner();
        let mut top = None;
        while let Some(ListedDir { above, mut node, others, is_gone }) = listed.pop() {
            node.close(others, self.how.top);
            match listed.get_mut(above) {
                Some(above) if !is_gone => above.add_child(node, self.how.top),
                Some(_) => {}
                None => top = Some(node),
            }
        }
        top.unwrap_or_else(|| TreeNode::rest(String::new()))
    }

    fn update_listed(&self, at: usize, change: impl FnOnce(&mut ListedDir)) {
        if let Some(dir) = self.lock().get_mut(at) {
            change(dir);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ListedDir>> {
        self.listed.lock()
    }
}

impl ListedDir {
    fn new(above: usize, node: TreeNode) -> Self {
        Self { above, node, others: TreeNode::rest(String::new()), is_gone: false }
    }

    /// Adds a child. Of many, the largest are kept.
    fn add_child(&mut self, child: TreeNode, top: u8) {
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
        progress.add_summary(own);
        let mut node = Self { ino, path, kind, size: 0, files: 0, dirs: 0, children: Vec::new() };
        node.add(own);
        node
    }

    fn add(&mut self, sum: Summary) {
        self.size = self.size.saturating_add(sum.size);
        self.files += sum.files;
        self.dirs += sum.dirs;
    }

    /// A node for combined entries.
    fn rest(path: String) -> Self {
        let (ino, kind) = (Ino::NONE, FileKind::File);
        Self { ino, path, kind, size: 0, files: 0, dirs: 0, children: Vec::new() }
    }

    /// Totals the children and keeps the largest, with all others combined.
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

/// Sorts the largest first.
fn sort(children: &mut [TreeNode]) {
    children.sort_unstable_by(|a, b| b.size.cmp(&a.size).then_with(|| a.path.cmp(&b.path)));
}

fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}
