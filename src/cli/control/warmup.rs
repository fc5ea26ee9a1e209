//! `warmup`: fills the block cache of a mount, empties it, or reports what it holds.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use tracing::error;

use super::{ControlClient, ReplyEnd, describe_errno};
use crate::cli::progress::Activity;
use crate::cli::table;
use crate::options::sizes::Bytes;
use crate::vfs::control_protocol::{CacheAction, Paths, WarmupRequest, WarmupResponse, opcode};

/// Paths in one request.
const BATCH: usize = 10_240;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Read all files of a directory into the cache:
    jfs-mount warmup /mnt/jfs/data
  Read the files that a list names, one path in a line:
    jfs-mount warmup -f list.txt
  Show how much of a directory is cached:
    jfs-mount warmup --check /mnt/jfs/data")]
pub struct Warmup {
    /// Files and directories of one mount
    #[arg(value_name = "PATH", required_unless_present = "file")]
    paths: Vec<PathBuf>,
    /// File with more paths, one in a line
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Files read at once
    #[arg(short = 'p', long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Return at once; the mount goes on by itself
    #[arg(short, long)]
    background: bool,
    /// Remove blocks from the cache instead
    #[arg(long, conflicts_with = "check")]
    evict: bool,
    /// Show how much is cached, and where, instead
    #[arg(long)]
    check: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Adds up the replies to several requests.
fn add(total: &mut WarmupResponse, other: WarmupResponse) {
    total.file_count += other.file_count;
    total.slice_count += other.slice_count;
    total.total_bytes += other.total_bytes;
    total.miss_bytes += other.miss_bytes;
    for (place, bytes) in other.locations {
        *total.locations.entry(place).or_default() += bytes;
    }
}

impl Warmup {
    pub async fn run(self) -> anyhow::Result<()> {
        let paths = self.paths()?;
        let Some(first) = paths.first() else { bail!("the list of paths is empty") };
        let mount = MountPoint::of(first)?;
        let mut client = ControlClient::open(first)?;
        let mut total = WarmupResponse::default();
        let mut activity = Activity::new();
        let mut failures = 0;
        for batch in paths.chunks(BATCH) {
            let mut names = Vec::with_capacity(batch.len());
            for path in batch {
                match mount.name(path) {
                    Ok(name) => names.push(name),
                    Err(cause) => {
                        error!("{cause:#}");
                        failures += 1;
                    }
                }
            }
            if names.is_empty() {
                continue;
            }
            let before = (total.file_count, total.total_bytes);
            let reply = client
                .request(opcode::WARMUP, &self.request(&names).encode()?, |files, bytes| {
                    activity.show(|| {
                        let bytes = Bytes(before.1 + bytes);
                        format!("{}: {} files, {bytes}", self.verb(), before.0 + files)
                    });
                })
                .await?;
            match reply {
                ReplyEnd::Data(data) => add(&mut total, serde_json::from_slice(&data)?),
                ReplyEnd::Done => {}
                ReplyEnd::Failed(errno) => {
                    bail!("cannot {}: {}", self.verb(), describe_errno(errno))
                }
            }
        }
        activity.finish();
        self.print(&total, paths.len())?;
        if failures > 0 {
            bail!("{failures} of {} paths were left out", paths.len());
        }
        Ok(())
    }

    fn paths(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut paths = self.paths.clone();
        if let Some(file) = &self.file {
            let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            let lines = lines.filter(|line| !line.is_empty());
            paths.extend(lines.map(|line| PathBuf::from(std::ffi::OsStr::from_bytes(line))));
        }
        let absolute = |path: PathBuf| {
            std::path::absolute(&path)
                .with_context(|| format!("cannot make {} absolute", path.display()))
        };
        paths.into_iter().map(absolute).collect()
    }

    fn request(&self, names: &[Vec<u8>]) -> WarmupRequest {
        let action = match (self.evict, self.check) {
            (true, _) => CacheAction::Evict,
            (_, true) => CacheAction::Check,
            _ => CacheAction::Warm,
        };
        let paths = Paths::new(names);
        WarmupRequest { paths, threads: self.threads, background: self.background, action }
    }

    fn verb(&self) -> &'static str {
        match (self.evict, self.check) {
            (true, _) => "evict",
            (_, true) => "check",
            _ => "warm up",
        }
    }

    fn print(&self, total: &WarmupResponse, paths: usize) -> anyhow::Result<()> {
        if self.json {
            println!("{}", serde_json::to_string_pretty(total)?);
            return Ok(());
        }
        if self.background {
            println!("{}: {paths} paths in the background", self.verb());
            return Ok(());
        }
        let all = total.total_bytes;
        if !self.check {
            println!("{}: {} files ({})", self.verb(), total.file_count, Bytes(all));
            return Ok(());
        }
        let percent = |bytes: u64| if all == 0 { 0.0 } else { bytes as f64 * 100.0 / all as f64 };
        let locations = total.locations.iter();
        let mut rows = vec![["Location", "Size", "Percentage"].map(str::to_owned).to_vec()];
        rows.extend(locations.map(|(place, bytes)| {
            let share = format!("{:.1}%", percent(*bytes));
            vec![place.clone(), Bytes(*bytes).to_string(), share]
        }));
        if rows.len() > 1 {
            print!("{}", table::render(&rows));
        }
        let cached = all.saturating_sub(total.miss_bytes);
        println!(
            "check: {} files checked, {} of {} ({:.1}%) cached",
            total.file_count,
            Bytes(cached),
            Bytes(all),
            percent(cached)
        );
        Ok(())
    }
}

/// The root of the mount that a path is in, if the path leads there by directories.
struct MountPoint(Option<PathBuf>);

impl MountPoint {
    const ROOT: u64 = 1;

    fn of(path: &Path) -> anyhow::Result<Self> {
        for dir in path.ancestors() {
            let found = fs::symlink_metadata(dir)
                .with_context(|| format!("cannot stat {}", dir.display()))?;
            if found.ino() == Self::ROOT {
                return Ok(Self((dir != Path::new("/")).then(|| dir.to_owned())));
            }
        }
        Ok(Self(None))
    }

    /// How a request names a path: from the root of the mount, or by inode where that is unknown or
    /// the path would not fit in a line.
    fn name(&self, path: &Path) -> anyhow::Result<Vec<u8>> {
        if let Some(root) = &self.0 {
            let Ok(below) = path.strip_prefix(root) else {
                bail!("{} is not in the mount at {}", path.display(), root.display());
            };
            let below = below.as_os_str().as_bytes();
            if !below.contains(&b'\n') {
                return Ok([b"/", below].concat());
            }
        }
        let found = fs::symlink_metadata(path)
            .with_context(|| format!("cannot stat {}", path.display()))?;
        Ok(format!("inode:{}", found.ino()).into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        command: Warmup,
    }

    fn parse(words: &[&str]) -> Result<Warmup, clap::Error> {
        Line::try_parse_from([&["warmup"], words].concat()).map(|line| line.command)
    }

    #[test]
    fn a_request_has_exactly_these_bytes() {
        let names = [b"/a".to_vec(), b"/b".to_vec()];
        let warm = parse(&["-p", "50", "/m/a"]).unwrap();
        assert_eq!(warm.request(&names).encode().unwrap(), b"\0\0\0\x05/a\n/b\0\x32\0\0");
        let evict = parse(&["--evict", "-b", "/m/a"]).unwrap();
        assert_eq!(evict.request(&names).encode().unwrap(), b"\0\0\0\x05/a\n/b\0\x32\x01\x01");
        let check = parse(&["--check", "/m/a"]).unwrap();
        assert_eq!(check.request(&names).encode().unwrap(), b"\0\0\0\x05/a\n/b\0\x32\0\x02");
    }

    #[test]
    fn evict_and_check_exclude_each_other() {
        assert!(parse(&["--evict", "--check", "/m/a"]).is_err());
        assert!(parse(&[]).is_err(), "a path is required");
    }

    #[test]
    fn paths_of_a_list_follow_those_of_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        fs::write(&list, "/m/b\n\n  /m/c d  \n").unwrap();
        let warm = parse(&["-f", list.to_str().unwrap(), "/m/a"]).unwrap();
        let paths = warm.paths().unwrap();
        assert_eq!(paths, ["/m/a", "/m/b", "/m/c d"].map(PathBuf::from));
    }

    #[test]
    fn a_path_is_named_from_the_root_of_its_mount() {
        let mount = MountPoint(Some("/m".into()));
        assert_eq!(mount.name(Path::new("/m/a/b")).unwrap(), b"/a/b");
        assert_eq!(mount.name(Path::new("/m")).unwrap(), b"/");
        let refused = mount.name(Path::new("/elsewhere")).unwrap_err().to_string();
        assert_eq!(refused, "/elsewhere is not in the mount at /m");
    }

    #[test]
    fn replies_add_up() {
        let mut total = WarmupResponse::default();
        for _ in 0..2 {
            let reply = br#"{"FileCount":1,"SliceCount":2,"TotalBytes":10,"MissBytes":4,
                             "Locations":{"/cache":6}}"#;
            add(&mut total, serde_json::from_slice(reply).unwrap());
        }
        let empty =
            br#"{"FileCount":0,"SliceCount":0,"TotalBytes":0,"MissBytes":0,"Locations":null}"#;
        add(&mut total, serde_json::from_slice(empty).unwrap());
        assert_eq!((total.file_count, total.total_bytes, total.miss_bytes), (2, 20, 8));
        assert_eq!(total.locations["/cache"], 12);
    }
}
