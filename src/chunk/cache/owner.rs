//! Whose a directory of the cache is.
//!
//! A volume's directory is named by its UUID, and the UUID is whatever the volume's metadata says. Where
//! volumes of several owners share a cache, a directory therefore also names its owner, in the file
//! `.owner`: another owner with the same UUID gets a directory of its own, and never reads, writes or
//! uploads what lies in the first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::file::{Modes, make_dirs};
use crate::error::{Error, Result};

/// Says whose the directory is.
const FILE: &str = ".owner";
/// An owner is a digest in hexadecimal digits; whatever is longer is none.
const MAX_OWNER: u64 = 256;
/// Digits of the owner in the name of a directory of its own.
const DIGITS: usize = 16;

/// Who uses a part of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOwner {
    /// Equal for equal owners: a digest of what the volume is known by beside its UUID.
    pub id: String,
    /// Whether a directory that names no owner, such as one of another client, is taken over with
    /// all that lies in it.
    pub takes_unowned: bool,
}

/// The directory of a volume below `dir` for an owner; made and marked if it is missing. Without an
/// owner it is the one that is named by the UUID, whoever's it is.
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
    Err(io::Error::new(ErrorKind::PermissionDenied, "it belongs to another owner"))
}

/// Refuses a volume whose blocks, not uploaded yet, may lie in a directory without an owner: with
/// another directory in its place they would be forgotten.
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
        // What cannot be looked at cannot be used either, and is told by whoever opens it.
        _ => Ok(()),
    }
}

fn staging(root: &Path) -> PathBuf {
    root.join("rawstaging")
}

fn holds_blocks(root: &Path) -> io::Result<bool> {
    Ok(has_files(&root.join("raw"))? || has_files(&staging(root))?)
}

/// Whether a file lies in the tree. Looks at as much of it as it needs to.
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

/// Marks the directory, unless somebody else has. Whether it is the owner's then.
fn claim(root: &Path, owner: &str, modes: Modes) -> io::Result<bool> {
    make_dirs(root, modes)?;
    // By a name of its own first, so that nobody reads half of it.
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
