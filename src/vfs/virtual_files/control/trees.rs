//! Operations on trees by request: remove, clone, compact and summarize.

use tracing::{debug, info, warn};

use super::reply::ReplyWriter;
use crate::error::{Error, Result};
use crate::meta::client::{Progress, Removal, TreeNode, TreeSummaryOptions};
use crate::meta::record::FileKind;
use crate::meta::{Caller, CloneMode, EntryRef, Ino, Name};
use crate::vfs::control_protocol::{
    CloneRequest, RemoveRequest, SummaryNode, SummaryRequest, SummaryResponse, errno_to_byte,
};
use crate::vfs::virtual_files::ControlContext;

impl ControlContext {
    pub async fn remove(&self, caller: &Caller, request: RemoveRequest, reply: ReplyWriter) {
        let progress = Progress::default();
        let work = self.remove_tree(caller, &request, &progress);
        let outcome = reply.watch(&progress, |progress| (progress.done(), 0), work).await;
        let (dir, name) = (request.dir.0, String::from_utf8_lossy(&request.name));
        match &outcome {
            Ok(()) => {
                info!(dir, %name, uid = caller.uid, count = progress.done(), "removed a tree");
            }
            Err(error) if error.is_fault() => warn!(dir, %name, %error, "cannot remove a tree"),
            Err(error) => debug!(dir, %name, uid = caller.uid, %error, "refused to remove a tree"),
        }
        // Also after a failure: a part of the tree may be gone.
        self.invalidator.invalidate_entry(request.dir, &request.name);
        self.invalidator.invalidate_attr(request.dir);
        self.invalidator.delivered().await;
        reply.end(outcome);
    }

    async fn remove_tree(
        &self,
        caller: &Caller,
        request: &RemoveRequest,
        progress: &Progress,
    ) -> Result<()> {
        // The trash guards against mistakes; only root may bypass it.
        if request.skip_trash && !caller.is_root() {
            return Err(Error::NotPermitted);
        }
        let name = Name::new(&request.name)?;
        let at_once = request.threads.into();
        let how = Removal { skip_trash: request.skip_trash, at_once, keeps_going: false };
        self.meta.remove_tree_with(caller, EntryRef::new(request.dir, &name), how, progress).await
    }

    pub async fn clone_tree(&self, caller: &Caller, request: CloneRequest, reply: ReplyWriter) {
        let progress = Progress::default();
        let work = self.make_clone(caller, &request, &progress);
        let shown = |progress: &Progress| (progress.done(), progress.total());
        let outcome = reply.watch(&progress, shown, work).await;
        let (src, dir, name) =
            (request.src.0, request.dst_dir.0, String::from_utf8_lossy(&request.name));
        match &outcome {
            Ok(()) => info!(src, dir, %name, uid = caller.uid, "cloned a tree"),
            Err(error) if error.is_fault() => warn!(src, dir, %name, %error, "cannot clone a tree"),
            Err(error) => {
                debug!(src, dir, %name, uid = caller.uid, %error, "refused to clone a tree");
            }
        }
        // The kernel may have cached that the name does not exist.
        self.invalidator.invalidate_entry(request.dst_dir, &request.name);
        self.invalidator.invalidate_attr(request.dst_dir);
        self.invalidator.delivered().await;
        reply.end(outcome);
    }

    async fn make_clone(
        &self,
        caller: &Caller,
        request: &CloneRequest,
        progress: &Progress,
    ) -> Result<()> {
        if request.src_dir.is_trash() {
            return Err(Error::NotPermitted);
        }
        if request.name.is_empty() {
            return Err(Error::NotFound);
        }
        let name = Name::new(&request.name)?;
        // A clone shares the stored slices of its source.
        self.content.flush(request.src).await?;
        let mode = CloneMode { preserve: request.preserve, umask: request.umask };
        let (to, threads) = (EntryRef::new(request.dst_dir, &name), request.threads.into());
        self.meta.clone_tree(caller, request.src, to, mode, threads, progress).await.map(drop)
    }

    pub async fn compact(&self, caller: &Caller, ino: Ino, threads: u16, reply: ReplyWriter) {
        let progress = Progress::default();
        let work = self.meta.compact_tree(caller, ino, threads.into(), &progress);
        let shown = |progress: &Progress| (progress.total(), progress.done());
        let outcome = reply.watch(&progress, shown, work).await;
        match &outcome {
            Ok(()) => info!(ino = ino.0, chunks = progress.done(), "compacted a tree"),
            Err(error) if error.is_fault() => warn!(ino = ino.0, %error, "cannot compact a tree"),
            Err(error) => debug!(ino = ino.0, %error, "refused to compact a tree"),
        }
        reply.end(outcome);
    }

    pub async fn summary(&self, caller: &Caller, request: SummaryRequest, reply: ReplyWriter) {
        let SummaryRequest { ino, depth, top, strict } = request;
        let progress = Progress::default();
        let how = TreeSummaryOptions { depth, top, strict };
        let work = self.meta.tree_summary(caller, ino, how, &progress);
        let shown = |progress: &Progress| (progress.done() + progress.total(), progress.bytes());
        let (errno, tree) = match reply.watch(&progress, shown, work).await {
            Ok(tree) => (0, summary_node(tree)),
            Err(error) => {
                let empty = SummaryNode { inode: ino.0, ..SummaryNode::default() };
                (errno_to_byte(error.errno()), empty)
            }
        };
        // The tools treat the top as a directory whatever it is.
        let tree = SummaryNode { kind: FileKind::Dir as u8, ..tree };
        reply.end_with(&SummaryResponse { errno, tree });
    }
}

fn summary_node(node: TreeNode) -> SummaryNode {
    let TreeNode { ino, path, kind, size, files, dirs, children } = node;
    let children = children.into_iter().map(summary_node).collect();
    SummaryNode { inode: ino.0, path, kind: kind as u8, size, files, dirs, children }
}
