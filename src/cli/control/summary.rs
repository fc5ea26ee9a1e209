//! `summary`: the largest entries of a tree, added up by the mount itself.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

use super::{ControlClient, ReplyEnd, describe_errno};
use crate::cli::progress::Activity;
use crate::cli::table;
use crate::meta::Ino;
use crate::options::sizes::Bytes;
use crate::vfs::control_protocol::{
    SummaryNode, SummaryRequest, SummaryResponse, errno_from_byte, opcode,
};

/// The type of a directory in the mount's reply.
const DIRECTORY: u8 = 2;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Show the largest entries of a directory, two levels deep:
    jfs-mount summary /mnt/jfs/data
  Look at every file instead of the statistics of directories:
    jfs-mount summary --strict /mnt/jfs/data")]
pub struct Summary {
    /// Directory of a mount
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Levels to show, at most 10; 0 shows the directory alone
    #[arg(short, long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u8).range(..=10))]
    depth: u8,
    /// Entries to show of each directory, the largest first, at most 100
    #[arg(short, long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u8).range(..=100))]
    entries: u8,
    /// Look at every file instead of the statistics of directories; slow
    #[arg(long)]
    strict: bool,
    /// Print comma-separated values, sizes in bytes
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print the tree as JSON
    #[arg(long)]
    json: bool,
}

impl Summary {
    pub async fn run(self) -> anyhow::Result<()> {
        let shown = self.path.display();
        let whole = std::path::absolute(&self.path)
            .with_context(|| format!("cannot make {shown} absolute"))?;
        let found = whole.symlink_metadata().with_context(|| format!("cannot stat {shown}"))?;
        let mut client = ControlClient::open(&whole)?;
        let request = SummaryRequest {
            ino: Ino(found.ino()),
            depth: self.depth,
            top: self.entries,
            strict: self.strict,
        };
        let body = request.encode();
        let mut activity = Activity::new();
        let reply = client.request(opcode::SUMMARY, &body, |entries, bytes| {
            activity.show(|| format!("{shown}: {entries} entries, {}", Bytes(bytes)));
        });
        let reply = reply.await;
        activity.finish();
        let tree = match reply.with_context(|| format!("cannot sum up {shown}"))? {
            ReplyEnd::Data(data) => {
                parse(&data).with_context(|| format!("cannot sum up {shown}"))?
            }
            ReplyEnd::Failed(errno) => bail!("cannot sum up {shown}: {}", describe_errno(errno)),
            ReplyEnd::Done => bail!("cannot sum up {shown}: empty reply of the mount"),
        };
        if self.json {
            println!("{}", serde_json::to_string_pretty(&tree)?);
        } else if self.csv {
            print!("{}", csv(&rows(&tree, |bytes| bytes.to_string())));
        } else {
            print!("{}", table::render(&rows(&tree, |bytes| Bytes(bytes).to_string())));
        }
        Ok(())
    }
}

fn parse(data: &[u8]) -> anyhow::Result<SummaryNode> {
    let reply: SummaryResponse =
        serde_json::from_slice(data).context("the mount's reply is not JSON")?;
    if reply.errno != 0 {
        bail!("{}", describe_errno(errno_from_byte(reply.errno)));
    }
    Ok(reply.tree)
}

/// A row for each node, a directory before its children.
fn rows(tree: &SummaryNode, size: impl Fn(u64) -> String) -> Vec<Vec<String>> {
    let mut rows = vec![["PATH", "SIZE", "DIRS", "FILES"].map(str::to_owned).to_vec()];
    let mut left = vec![tree];
    while let Some(node) = left.pop() {
        let mut path = node.path.clone();
        if node.kind == DIRECTORY && !path.ends_with('/') {
            path.push('/');
        }
        rows.push(vec![path, size(node.size), node.dirs.to_string(), node.files.to_string()]);
        left.extend(node.children.iter().rev());
    }
    rows
}

/// RFC 4180: a field with a comma, a quote or a line break is quoted.
fn csv(rows: &[Vec<String>]) -> String {
    let field = |text: &String| {
        if text.contains([',', '"', '\n', '\r']) || text.starts_with(' ') {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.clone()
        }
    };
    rows.iter().map(|row| row.iter().map(field).collect::<Vec<_>>().join(",") + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY: &[u8] = br#"{"Errno":0,"Tree":{"Inode":1,"Path":"","Type":2,"Size":8192,
        "Files":2,"Dirs":2,"Children":[
            {"Inode":2,"Path":"d","Type":2,"Size":4096,"Files":1,"Dirs":1,"Children":[
                {"Inode":3,"Path":"d/a,b","Type":1,"Size":4096,"Files":1,"Dirs":0}]},
            {"Inode":4,"Path":"f","Type":1,"Size":4096,"Files":1,"Dirs":0}]}}"#;

    #[test]
    fn a_tree_is_listed_with_directories_before_their_entries() {
        let rows = rows(&parse(REPLY).unwrap(), |bytes| bytes.to_string());
        let paths: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(paths, ["PATH", "/", "d/", "d/a,b", "f"]);
        assert_eq!(rows[2][1..], ["4096", "1", "1"]);
    }

    #[test]
    fn csv_quotes_what_has_a_comma() {
        let text = csv(&rows(&parse(REPLY).unwrap(), |bytes| bytes.to_string()));
        assert!(text.starts_with("PATH,SIZE,DIRS,FILES\n/,8192,2,2\n"), "{text}");
        assert!(text.contains("\n\"d/a,b\",4096,0,1\n"), "{text}");
    }

    #[test]
    fn an_errno_of_the_reply_is_an_error() {
        let reply =
            br#"{"Errno":13,"Tree":{"Inode":1,"Path":"","Type":2,"Size":0,"Files":0,"Dirs":0}}"#;
        assert_eq!(parse(reply).unwrap_err().to_string(), "permission denied");
    }
}
