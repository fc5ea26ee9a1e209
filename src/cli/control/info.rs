//! `info`: prints what a mount knows about a path or an inode.

use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use nix::errno::Errno;
use serde_json::Value;

use super::{ControlClient, ReplyEnd, describe_errno};
use crate::cli::table;
use crate::meta::Ino;
use crate::vfs::control_protocol::{
    InfoObject, InfoRequest, InfoResponse, InfoSummary, InfoTier, opcode,
};

/// Bytes of a chunk.
const CHUNK: u64 = 64 << 20;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Show the chunks and objects of a file:
    jfs-mount info /mnt/jfs/dir/file
  Sum up a directory:
    jfs-mount info /mnt/jfs/dir --recursive
  Find the file with an inode number:
    cd /mnt/jfs && jfs-mount info --inode 12345")]
pub struct Info {
    /// Paths in a mount, or inode numbers with --inode
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<String>,
    /// Take inode numbers instead of paths; the current directory must be in the mount
    #[arg(short, long)]
    inode: bool,
    /// Sum up everything below a directory
    #[arg(short, long)]
    recursive: bool,
    /// Look at every file instead of using the recorded usage of directories
    #[arg(long)]
    strict: bool,
    /// Print slices instead of objects
    #[arg(long)]
    raw: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Info {
    pub async fn run(self) -> anyhow::Result<()> {
        let mut all = Vec::new();
        for path in &self.paths {
            let (dir, ino) = self.find(path)?;
            let mut client = ControlClient::open(&dir)?;
            match client.request(opcode::INFO, &self.request(ino).encode(), |_, _| {}).await? {
                ReplyEnd::Data(data) if self.json => {
                    all.push(serde_json::from_slice::<Value>(&data)?);
                }
                ReplyEnd::Data(data) => {
                    print!("{}", describe(path, &serde_json::from_slice(&data)?)?);
                }
                ReplyEnd::Failed(Errno::EINVAL) if !self.json => {
                    let body = self.request(ino).encode_legacy();
                    let mut client = ControlClient::open(&dir)?;
                    let text = client.request_text(opcode::LEGACY_INFO, &body).await?;
                    print!("{path} :\n{text}");
                }
                ReplyEnd::Failed(errno) => bail!("{path}: {}", describe_errno(errno)),
                ReplyEnd::Done => bail!("{path}: empty reply of the mount"),
            }
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&all)?);
        }
        Ok(())
    }

    /// Returns a path in the mount, and the inode to ask about.
    fn find(&self, path: &str) -> anyhow::Result<(PathBuf, u64)> {
        if self.inode {
            let ino = path.parse().with_context(|| format!("{path:?} is not an inode number"))?;
            let here = std::env::current_dir().context("cannot find the current directory")?;
            return Ok((here, ino));
        }
        let full =
            std::path::absolute(path).with_context(|| format!("cannot make {path} absolute"))?;
        let found =
            Path::new(path).symlink_metadata().with_context(|| format!("cannot stat {path}"))?;
        Ok((full, found.ino()))
    }

    fn request(&self, ino: u64) -> InfoRequest {
        let Self { recursive, raw, strict, .. } = *self;
        InfoRequest { ino: Ino(ino), recursive, raw, strict }
    }
}

/// Renders a reply for people.
fn describe(path: &str, response: &InfoResponse) -> anyhow::Result<String> {
    if response.failed {
        bail!("{path}: {}", response.reason);
    }
    let InfoSummary { length, size, files, dirs } = response.summary;
    let mut lines = vec![
        format!("{path} :"),
        format!("  inode: {}", response.ino),
        format!("  files: {files}"),
        format!("   dirs: {dirs}"),
        format!(" length: {}", bytes(length)),
        format!("   size: {}", bytes(size)),
    ];
    match response.paths.as_deref().unwrap_or_default() {
        [] => lines.push("   path: unknown".to_owned()),
        [path] => lines.push(format!("   path: {path}")),
        paths => {
            lines.push("  paths:".to_owned());
            lines.extend(paths.iter().map(|path| format!("\t{path}")));
        }
    }
    if let Some(InfoTier { id, storage_class, tag }) = &response.tier {
        let tag = if tag.is_empty() { String::new() } else { format!(" tag: {tag}") };
        lines.push(format!("   tier: {id}->{storage_class}{tag}"));
    }
    if !response.restore_status.is_empty() {
        lines.push(format!("   restore status: {}", response.restore_status));
    }
    let mut text = lines.join("\n") + "\n";
    for (title, rows) in tables(response) {
        if rows.len() > 1 {
            // Writing to a string does not fail.
            let _ = write!(text, " {title}:\n{}", table::render(&rows));
        }
    }
    Ok(text)
}

/// Returns the titled tables of a reply; the first row of each is its header.
fn tables(response: &InfoResponse) -> [(&'static str, Vec<Vec<String>>); 4] {
    let header = |names: &[&str]| vec![names.iter().map(|name| (*name).to_owned()).collect()];
    let row = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<String>>();

    let mut chunks = header(&["chunkIndex", "sliceId", "size", "offset", "length"]);
    for slice in response.chunks.iter().flatten() {
        chunks.push(row(&[slice.chunk_index, slice.id, slice.size, slice.off, slice.len]));
    }
    let mut objects = header(&["chunkIndex", "objectName", "size", "offset", "length", "pos"]);
    for (object, pos) in positions(response) {
        let mut cells = row(&[object.chunk_index, object.size, object.off, object.len, pos]);
        cells.insert(1, object.key.clone());
        objects.push(cells);
    }
    let mut flocks = header(&["Sid", "Owner", "Type"]);
    for lock in response.flocks.iter().flatten() {
        let mut cells = row(&[lock.sid, lock.owner]);
        cells.push(lock.kind.clone());
        flocks.push(cells);
    }
    let mut plocks = header(&["Sid", "Owner", "Type", "Pid", "Start", "End"]);
    for lock in response.plocks.iter().flatten() {
        let mut cells = row(&[lock.sid, lock.owner, lock.pid.into(), lock.start, lock.end]);
        let kind = match lock.kind {
            0 => "R",
            1 => "W",
            _ => "UNKNOWN",
        };
        cells.insert(2, kind.to_owned());
        plocks.push(cells);
    }
    [("chunks", chunks), ("objects", objects), ("flocks", flocks), ("plocks", plocks)]
}

/// Returns the objects within the file, each with its offset in the file.
fn positions(response: &InfoResponse) -> Vec<(&InfoObject, u64)> {
    let mut positions: Vec<(&InfoObject, u64)> = Vec::new();
    for object in response.objects.iter().flatten() {
        let pos = match positions.last() {
            Some((last, pos)) if last.chunk_index == object.chunk_index => pos + last.len,
            _ => object.chunk_index * CHUNK,
        };
        if pos + object.len > response.summary.length {
            break;
        }
        positions.push((object, pos));
    }
    positions
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1 << 10 {
        return format!("{count} Bytes");
    }
    let (mut amount, mut unit) = (count, 0);
    while unit < UNITS.len() - 1 && amount >= 1 << 20 {
        amount >>= 10;
        unit += 1;
    }
    format!("{:.2} {} ({count} Bytes)", amount as f64 / 1024.0, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn response() -> Value {
        json!({
            "Ino": 5, "Failed": false, "Reason": "",
            "Summary": {"Length": 67_108_870, "Size": 67_112_960, "Files": 1, "Dirs": 0},
            "Paths": ["/f"], "Chunks": null,
            "Objects": [
                {"ChunkIndex": 0, "Key": "vol/a", "Size": 10, "Off": 2, "Len": 8},
                {"ChunkIndex": 0, "Key": "vol/b", "Size": 20, "Off": 0, "Len": 20},
                {"ChunkIndex": 1, "Key": "vol/c", "Size": 6, "Off": 0, "Len": 6},
            ],
            "PLocks": [{"Sid": 1, "Owner": 2, "Type": 1, "Pid": 3, "Start": 4, "End": 5}],
            "FLocks": null, "Tier": {"ID": 0, "StorageClass": "actual()", "Tag": ""},
            "RestoreStatus": "",
        })
    }

    #[test]
    fn a_file_is_described() {
        let text = describe("f", &serde_json::from_value(response()).unwrap()).unwrap();
        let expected = "\
f :
  inode: 5
  files: 1
   dirs: 0
 length: 64.00 MiB (67108870 Bytes)
   size: 64.00 MiB (67112960 Bytes)
   path: /f
   tier: 0->actual()
 objects:
+------------+------------+------+--------+--------+----------+
| chunkIndex | objectName | size | offset | length |    pos   |
+------------+------------+------+--------+--------+----------+
| 0          |      vol/a |   10 |      2 |      8 |        0 |
| 0          |      vol/b |   20 |      0 |     20 |        8 |
| 1          |      vol/c |    6 |      0 |      6 | 67108864 |
+------------+------------+------+--------+--------+----------+
 plocks:
+-----+-------+------+-----+-------+-----+
| Sid | Owner | Type | Pid | Start | End |
+-----+-------+------+-----+-------+-----+
| 1   |     2 |    W |   3 |     4 |   5 |
+-----+-------+------+-----+-------+-----+
";
        assert_eq!(text, expected);
    }

    #[test]
    fn tiers_are_left_out_for_older_mounts() {
        let mut response = response();
        let fields = response.as_object_mut().unwrap();
        fields.remove("Tier");
        fields.remove("RestoreStatus");
        let text = describe("f", &serde_json::from_value(response).unwrap()).unwrap();
        assert!(!text.contains("tier"), "{text}");
    }

    #[test]
    fn a_failure_is_an_error() {
        let mut response = response();
        response["Failed"] = true.into();
        response["Reason"] = "no such file or directory".into();
        let error = describe("f", &serde_json::from_value(response).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "f: no such file or directory");
    }
}
