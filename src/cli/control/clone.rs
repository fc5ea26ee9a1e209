//! `clone`: a copy of a file or tree that shares its data, made by the mount itself.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use nix::sys::stat::{Mode, umask};

use super::{ControlClient, ReplyEnd, describe_errno};
use crate::cli::progress::Activity;
use crate::meta::Ino;
use crate::vfs::control_protocol::{CloneRequest, opcode};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Clone a directory:
    jfs-mount clone /mnt/jfs/data /mnt/jfs/data-copy
  Keep owners, modes and times:
    jfs-mount clone -p /mnt/jfs/data /mnt/jfs/data-copy")]
pub struct Clone {
    /// File or directory to clone
    #[arg(value_name = "SRC")]
    src: PathBuf,
    /// Name of the clone, which must not exist; with a slash at the end, the directory to put it in
    #[arg(value_name = "DST")]
    dst: PathBuf,
    /// Keep owner, group, mode and times
    #[arg(short, long)]
    preserve: bool,
    /// Directories cloned at once
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u8).range(1..))]
    threads: u8,
}

impl Clone {
    pub async fn run(self) -> anyhow::Result<()> {
        let place = Places::new(&self.src, &self.dst)?;
        let (src, src_dir) = (look(&place.src)?, look(&place.src_dir)?);
        let dst_dir = look(&place.dst_dir)?;
        if src.dev() != dst_dir.dev() {
            bail!("{} and {} are in different mounts", self.src.display(), self.dst.display());
        }
        let dst = place.dst_dir.join(OsStr::from_bytes(&place.name));
        if dst.symlink_metadata().is_ok() {
            bail!("{} exists already", dst.display());
        }
        let mut client = ControlClient::open(&place.dst_dir)?;
        let mut activity = Activity::new();
        let request = CloneRequest {
            src: Ino(src.ino()),
            src_dir: Ino(src_dir.ino()),
            dst_dir: Ino(dst_dir.ino()),
            name: place.name.into(),
            umask: file_mode_mask(),
            preserve: self.preserve,
            threads: self.threads,
        };
        let body = request.encode()?;
        let reply = client.request(opcode::CLONE, &body, |done, total| {
            activity.show(|| format!("clone: {done} of {total} entries"));
        });
        let reply = reply.await;
        activity.finish();
        let failed = || format!("cannot clone {}", self.src.display());
        match reply.with_context(failed)? {
            ReplyEnd::Done => Ok(()),
            ReplyEnd::Failed(errno) => bail!("{}: {}", failed(), describe_errno(errno)),
            ReplyEnd::Data(_) => bail!("{}: unexpected reply of the mount", failed()),
        }
    }
}

/// Source and destination as absolute paths.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    src: PathBuf,
    src_dir: PathBuf,
    dst_dir: PathBuf,
    name: Vec<u8>,
}

impl Places {
    fn new(src: &Path, dst: &Path) -> anyhow::Result<Self> {
        let absolute = |path: &Path| {
            std::path::absolute(path)
                .with_context(|| format!("cannot make {} absolute", path.display()))
        };
        let into_dir = dst.as_os_str().as_bytes().ends_with(b"/");
        let (src, mut dst) = (absolute(src)?, absolute(dst)?);
        let (Some(src_dir), Some(src_name)) = (src.parent(), src.file_name()) else {
            bail!("{} has no name", src.display());
        };
        if into_dir {
            dst.push(src_name);
        }
        let (Some(dst_dir), Some(name)) = (dst.parent(), dst.file_name()) else {
            bail!("{} has no name", dst.display());
        };
        if dst != src && dst.starts_with(&src) {
            bail!("{} is inside {}", dst.display(), src.display());
        }
        Ok(Self {
            src_dir: src_dir.to_owned(),
            dst_dir: dst_dir.to_owned(),
            name: name.as_bytes().to_owned(),
            src,
        })
    }
}

fn look(path: &Path) -> anyhow::Result<std::fs::Metadata> {
    path.symlink_metadata().with_context(|| format!("cannot stat {}", path.display()))
}

/// The umask of this process, which can only be read by setting it.
fn file_mode_mask() -> u16 {
    let mask = umask(Mode::empty());
    umask(mask);
    u16::try_from(mask.bits()).unwrap_or(0o22)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(src: &str, dst: &str) -> anyhow::Result<Places> {
        Places::new(Path::new(src), Path::new(dst))
    }

    #[test]
    fn a_destination_is_a_directory_and_a_name() {
        let plain = places("/m/a", "/m/d/b").unwrap();
        assert_eq!((plain.dst_dir, plain.name), ("/m/d".into(), b"b".to_vec()));
        let into = places("/m/a", "/m/d/").unwrap();
        assert_eq!((into.dst_dir, into.name), ("/m/d".into(), b"a".to_vec()));
    }

    #[test]
    fn a_tree_is_not_cloned_into_itself() {
        let refused = places("/m/a", "/m/a/b").unwrap_err().to_string();
        assert_eq!(refused, "/m/a/b is inside /m/a");
        assert!(places("/m/a", "/m/ab").is_ok());
    }
}
