//! Summaries of a tree by request.

use serde::{Serialize, Serializer};

use super::answer::{Answer, errno_byte};
use super::request::Summary;
use crate::meta::client::{Progress, TreeNode, TreeSummaryOptions};
use crate::meta::record::FileKind;
use crate::meta::{Caller, Ino};
use crate::vfs::internal::Work;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Response {
    errno: u8,
    tree: Shown,
}

/// A node as the tools read it.
struct Shown(TreeNode);

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Fields<'a> {
            inode: u64,
            path: &'a str,
            #[serde(rename = "Type")]
            kind: u8,
            size: u64,
            files: u64,
            dirs: u64,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            children: Vec<Shown>,
        }
        let TreeNode { ino, path, kind, size, files, dirs, children } = &self.0;
        let fields = Fields {
            inode: ino.0,
            path,
            kind: *kind as u8,
            size: *size,
            files: *files,
            dirs: *dirs,
            children: children.iter().cloned().map(Shown).collect(),
        };
        fields.serialize(serializer)
    }
}

impl Work {
    pub async fn summary(&self, caller: &Caller, ask: Summary, answer: Answer) {
        let Summary { ino, depth, top, strict } = ask;
        let progress = Progress::default();
        let how = TreeSummaryOptions { depth, top, strict };
        let work = self.meta.tree_summary(caller, ino, how, &progress);
        let shown = |progress: &Progress| (progress.done() + progress.total(), progress.bytes());
        let (errno, tree) = match answer.watch(&progress, shown, work).await {
            Ok(tree) => (0, tree),
            Err(error) => (errno_byte(error.errno()), nothing(ino)),
        };
        // The tools take the top for a directory whatever it is.
        let tree = Shown(TreeNode { kind: FileKind::Dir, ..tree });
        answer.end_with(&Response { errno, tree });
    }
}

fn nothing(ino: Ino) -> TreeNode {
    let kind = FileKind::Dir;
    TreeNode { ino, path: String::new(), kind, size: 0, files: 0, dirs: 0, children: Vec::new() }
}
