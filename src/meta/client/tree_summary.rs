//! Summaries of the directories of a subtree, down to some depth, the largest of each.

use std::sync::{Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::crew::Crew;
use super::listing::DirEntry;
use super::summary::Summary;
use super::{Meta, Progress};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::FileKind;

/// Directories looked at beside each other; each may ask for many below it at once.
const AT_ONCE: usize = 4;

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
    how: TreeSummary,
    crew: Crew<'a>,
}

impl Meta {
    /// Adds up a subtree and the directories in it. Nodes and bytes are counted as they are found.
    pub async fn tree_summary(
        &self,
        ino: Ino,
        how: TreeSummary,
        progress: &Progress,
    ) -> Result<TreeNode> {
        let attr = self.attr_now(ino).await?.ok_or(Error::NotFound)?;
        let mut top = TreeNode::new(ino, String::new(), attr.kind, attr.length, progress);
        let summariser = Summariser { meta: self, how, crew: Crew::new(AT_ONCE, progress) };
        if attr.is_dir() {
            summariser.fill(&mut top, how.depth).await?;
        }
        Ok(top)
    }
}

impl Summariser<'_> {
    /// Adds what is below a directory.
    fn fill<'a>(&'a self, node: &'a mut TreeNode, depth: u8) -> BoxFuture<'a, Result<()>> {
        async move {
            self.crew.check()?;
            let progress = self.crew.progress();
            if depth == 0 {
                let below = self.meta.sum_below(node.ino, true, self.how.strict, progress).await?;
                node.add(below);
                return Ok(());
            }
            let children = Mutex::new(Vec::new());
            let mut listing = self.meta.list(node.ino, true);
            while let Some(page) = listing.next().await? {
                let (children, path) = (&children, &node.path);
                let work = |entry| {
                    let work = async move {
                        if let Some(child) = self.child(path, entry, depth - 1).await? {
                            children.lock().unwrap_or_else(PoisonError::into_inner).push(child);
                        }
                        Ok(())
                    };
                    work.boxed()
                };
                self.crew.run(page, work).await?;
            }
            node.adopt(children.into_inner().unwrap_or_else(PoisonError::into_inner), self.how.top);
            Ok(())
        }
        .boxed()
    }

    /// None if it is gone by now.
    async fn child(&self, dir: &str, entry: DirEntry, depth: u8) -> Result<Option<TreeNode>> {
        let length = entry.attr.map_or(0, |attr| attr.length);
        let path = join(dir, &entry.name.to_string());
        let mut child = TreeNode::new(entry.ino, path, entry.kind, length, self.crew.progress());
        if entry.kind == FileKind::Dir {
            match self.fill(&mut child, depth).await {
                Err(Error::NotFound) => return Ok(None),
                other => other?,
            }
        }
        Ok(Some(child))
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
        self.size += sum.size;
        self.files += sum.files;
        self.dirs += sum.dirs;
    }

    /// Takes the entries of the directory, adds them up and shows the largest.
    fn adopt(&mut self, mut children: Vec<Self>, top: u8) {
        for child in &children {
            self.add(child.sum());
        }
        children.sort_unstable_by(|a, b| b.size.cmp(&a.size).then_with(|| a.path.cmp(&b.path)));
        if children.len() > usize::from(top) {
            let (path, kind) = (join(&self.path, "..."), FileKind::File);
            let mut others =
                Self { ino: Ino::NONE, path, kind, size: 0, files: 0, dirs: 0, children: vec![] };
            for child in children.drain(usize::from(top)..) {
                others.add(child.sum());
            }
            children.push(others);
        }
        self.children = children;
    }

    fn sum(&self) -> Summary {
        Summary { files: self.files, dirs: self.dirs, length: 0, size: self.size }
    }
}

fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}
