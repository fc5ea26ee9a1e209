//! The directory of one volume on one disk, and the paths in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use crate::chunk::cache::accounting::AccountId;
use crate::chunk::cache::block_file::{Modes, make_dirs};
use crate::chunk::cache::usage::Counters;
use crate::chunk::{BlockKey, Layout};

/// An id is a UUID; longer content is not one.
const MAX_ID: u64 = 256;

pub struct VolumeDir {
    pub id: AccountId,
    /// The id of the directory in the volume's hash ring, from its lock file; the same for every
    /// client.
    pub lock: String,
    pub layout: Layout,
    pub counters: Arc<Counters>,
    root: PathBuf,
}

impl VolumeDir {
    /// Opens the directory, creating it if needed.
    pub fn open(
        root: PathBuf,
        id: AccountId,
        layout: Layout,
        modes: Modes,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        make_dirs(&root, modes)?;
        let lock = lock_id(&root.join(".lock"))?;
        Ok(Self { id, lock, layout, counters, root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn raw(&self) -> PathBuf {
        self.root.join("raw")
    }

    pub fn staging(&self) -> PathBuf {
        self.root.join("rawstaging")
    }

    pub fn cached_path(&self, block: BlockKey) -> PathBuf {
        self.raw().join(self.layout.key(block))
    }

    pub fn staged_path(&self, block: BlockKey) -> PathBuf {
        self.staging().join(self.layout.key(block))
    }

    /// Returns where an unstable disk is probed.
    pub fn probe_dir(&self) -> PathBuf {
        self.raw().join("probe")
    }
}

/// Returns the id in the lock file. The first client chooses it.
fn lock_id(path: &Path) -> io::Result<String> {
    if let Some(id) = read_id(path)? {
        return Ok(id);
    }
    // Written under another name first, so that no reader sees a part of it.
    let id = Uuid::new_v4().to_string();
    let draft = path.with_extension(format!("{id}.tmp"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&draft)?;
    file.write_all(id.as_bytes())?;
    drop(file);
    // An empty lock file was left by a client that crashed before it could write the id.
    let outcome = match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match read_id(path)? {
            Some(theirs) => Ok(theirs),
            None => fs::rename(&draft, path).map(|()| id),
        },
        other => other.map(|()| id),
    };
    let _ = fs::remove_file(&draft);
    outcome
}

fn read_id(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut id = String::new();
    file.take(MAX_ID).read_to_string(&mut id)?;
    Ok((!id.is_empty()).then_some(id))
}
