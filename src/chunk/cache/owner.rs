//! Ownership of cache directories.
//!
//! The directory of a volume is named by the volume's UUID, and the metadata can claim any UUID. If
//! volumes of several owners share a cache, a directory therefore also names its owner, in the file
//! `.owner`. Another owner with the same UUID gets a directory of its own, and never reads, writes
//! or uploads blocks of the first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::block_file::{Modes, make_dirs};
use crate::error::{Error, Result};

/// The file that names the owner of a directory.
const FILE: &str = ".owner";
/// An owner is a digest in hexadecimal; longer content is not an owner.
const MAX_OWNER: u64 = 256;
/// Digits of the owner in the name of a separate directory.
const DIGITS: usize = 16;

/// The owner of a volume's part of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOwner {
    /// Identifies the owner: a digest of the volume's identity besides its UUID.
    pub id: String,
    /// Whether to take over directories without an owner, such as those of another client, with all
    /// their blocks.
    pub takes_unowned: bool,
}

/// Returns the directory of a volume below `dir` for an owner, creating and claiming it if needed.
/// Without an owner, it is the one named by the UUID, whoever owns it.
pub fn directory(
    dir: &Path,
    uuid: &str,
    owner: Option<&CacheOwner>,
    modes: Modes,
) -> io::Result<PathBuf> {
    let root = dir.join(uuid);
    let Some(owner) = owner else { return Ok(root) };
    let is_free = match read(&root)? {
        Some(found) if found == owner.id => return Ok(root),
        Some(_) => false,
        None => owner.takes_unowned || !holds_blocks(&root)?,
    };
    if is_free && claim(&root, &owner.id, modes)? {
        return Ok(root);
    }
    let digits = owner.id.get(..DIGITS).unwrap_or(&owner.id);
    let own = dir.join(format!("{uuid}@{digits}"));
    if claim(&own, &owner.id, modes)? {
        return Ok(own);
    }
    Err(io::Error::new(ErrorKind::PermissionDenied, "the directory belongs to another owner"))
}

/// Refuses a volume if a directory without an owner may hold blocks of it that are not uploaded
/// yet: with another directory in its place, they would be lost.
pub fn check_staged(dir: &Path, uuid: &str, owner: Option<&CacheOwner>) -> Result<()> {
    let Some(owner) = owner else { return Ok(()) };
    let root = dir.join(uuid);
    let may_be_lost = || {
        let found = !owner.takes_unowned && read(&root)?.is_none() && has_files(&staging(&root))?;
        Ok::<_, io::Error>(found)
    };
    match may_be_lost() {
        Ok(true) => Err(Error::Refused(format!(
            "cache directory {} names no owner and holds blocks that are not uploaded yet: let the \
             client that wrote them upload them, or start the driver with --take-over-cache",
            root.display()
        ))),
        // A directory that cannot be read cannot be used either; opening it reports that.
        _ => Ok(()),
    }
}

fn staging(root: &Path) -> PathBuf {
    root.join("rawstaging")
}

fn holds_blocks(root: &Path) -> io::Result<bool> {
    Ok(has_files(&root.join("raw"))? || has_files(&staging(root))?)
}

/// Whether a directory tree contains a file. Stops at the first one.
fn has_files(tree: &Path) -> io::Result<bool> {
    let mut dirs = vec![tree.to_owned()];
    while let Some(dir) = dirs.pop() {
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                return Ok(true);
            }
            dirs.push(entry.path());
        }
    }
    Ok(false)
}

fn read(root: &Path) -> io::Result<Option<String>> {
    let file = match File::open(root.join(FILE)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut owner = String::new();
    file.take(MAX_OWNER).read_to_string(&mut owner)?;
    Ok(Some(owner))
}

/// Claims the directory unless another owner has. Returns whether it belongs to `owner` then.
fn claim(root: &Path, owner: &str, modes: Modes) -> io::Result<bool> {
    make_dirs(root, modes)?;
    // Written under another name first, so that no reader sees a part of it.
    let draft = root.join(format!("{FILE}.{}.tmp", Uuid::new_v4()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let marked = file
        .write_all(owner.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&draft, root.join(FILE)));
    let _ = fs::remove_file(&draft);
    match marked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Ok(read(root)?.is_some_and(|found| found == owner))
        }
        other => other.map(|()| true),
    }
}
