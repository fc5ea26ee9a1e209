//! Summarizes a tree by request.

use super::reply::ReplyWriter;
use crate::meta::Caller;
use crate::meta::client::{Progress, TreeNode, TreeSummary};
use crate::meta::record::FileKind;
use crate::vfs::control_protocol::{SummaryNode, SummaryRequest, SummaryResponse, errno_to_byte};
use crate::vfs::virtual_files::ControlContext;

impl ControlContext {
    pub async fn summary(&self, caller: &Caller, request: SummaryRequest, reply: ReplyWriter) {
        let SummaryRequest { ino, depth, top, strict } = request;
        let progress = Progress::default();
        let how = TreeSummary { depth, top, strict };
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
