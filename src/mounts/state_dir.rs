//! The state directory: what is published on this node, for the next process.
//!
//! One file for each volume, replaced atomically. It has no secrets.

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::volume_id::VolumeId;
use crate::error::{Error, Result};

const EXTENSION: &str = "json";
/// The extension of unreadable records.
const DAMAGED: &str = "damaged";
/// More than the targets of a volume need.
const MAX_RECORD: u64 = 16 << 20;

/// The record of one PV.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvRecord {
    pub volume: String,
    /// Where it is mounted.
    pub point: PathBuf,
    /// The session id in the metadata, for a process that resumes the session.
    pub session: u64,
    /// Its directory is deleted with its last target.
    #[serde(default)]
    pub ephemeral: bool,
    pub targets: Vec<Target>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub path: PathBuf,
    pub read_only: bool,
}

#[derive(Debug)]
pub struct StateDir {
    records: PathBuf,
    points: PathBuf,
}

impl StateDir {
    pub fn open(dir: &Path) -> Result<Self> {
        let state_dir = Self { records: dir.join("published"), points: dir.join("mounts") };
        for dir in [&state_dir.records, &state_dir.points] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(|e| fault(dir, &e))?;
        }
        Ok(state_dir)
    }

    /// Returns the directory of all mount points.
    pub fn mount_points_dir(&self) -> &Path {
        &self.points
    }

    /// Returns the mount point of a volume; creates it if it is missing.
    pub fn mount_point(&self, volume: &VolumeId) -> Result<PathBuf> {
        let point = self.points.join(volume.file_name());
        match DirBuilder::new().mode(0o700).create(&point) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(fault(&point, &error)),
            _ => Ok(point),
        }
    }

    /// Writes a record durably.
    pub fn put(&self, record: &PvRecord) -> Result<()> {
        let path = self.path(&VolumeId::new(&record.volume)?);
        let temporary = path.with_extension("new");
        let text = serde_json::to_vec_pretty(record).map_err(|e| Error::bad_input(&e))?;
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(&self.records)?.sync_all()
        };
        write().map_err(|error| fault(&path, &error))
    }

    pub fn remove(&self, volume: &VolumeId) -> Result<()> {
        let path = self.path(volume);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(fault(&path, &error)),
            _ => Ok(()),
        }
    }

    /// Returns all records. An unreadable file is logged and renamed, so that it affects only its
    /// own volume.
    pub fn all(&self) -> Result<Vec<(VolumeId, PvRecord)>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.records).map_err(|error| fault(&self.records, &error))? {
            let path = entry.map_err(|error| fault(&self.records, &error))?.path();
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            match self.read(&path) {
                Ok(found) => records.push(found),
                Err(cause) => put_aside(&path, &cause),
            }
        }
        Ok(records)
    }

    fn read(&self, path: &Path) -> Result<(VolumeId, PvRecord), String> {
        let text = read_bounded(path).map_err(|error| error.to_string())?;
        let record: PvRecord = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let volume = VolumeId::new(&record.volume).map_err(|error| error.to_string())?;
        if self.path(&volume) != path {
            return Err(format!("it belongs to volume {volume}"));
        }
        Ok((volume, record))
    }

    fn path(&self, volume: &VolumeId) -> PathBuf {
        self.records.join(format!("{}.{EXTENSION}", volume.file_name()))
    }
}

/// Reads a record of limited size. Anything but a regular file is an error.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let mut text = Vec::new();
    File::open(path)?.take(MAX_RECORD).read_to_end(&mut text)?;
    Ok(text)
}

/// Renames an unreadable record, so that the next start skips it and the operator can examine it.
fn put_aside(path: &Path, cause: &str) {
    let aside = path.with_extension(DAMAGED);
    match fs::rename(path, &aside) {
        Ok(()) => {
            let (path, aside) = (path.display(), aside.display());
            warn!(%path, %aside, cause, "renamed an unreadable record");
        }
        Err(error) => {
            warn!(path = %path.display(), cause, %error, "cannot rename an unreadable record");
        }
    }
}

fn fault(path: &Path, error: &std::io::Error) -> Error {
    Error::Unreachable { place: path.display().to_string(), cause: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(dir.path()).unwrap();
        let volume = VolumeId::new("pvc-1").unwrap();
        let mut record = PvRecord {
            volume: "pvc-1".to_owned(),
            point: state_dir.mount_point(&volume).unwrap(),
            session: 7,
            ephemeral: false,
            targets: vec![Target { path: "/pods/a".into(), read_only: true }],
        };
        state_dir.put(&record).unwrap();
        record.targets.clear();
        state_dir.put(&record).unwrap();
        let again = StateDir::open(dir.path()).unwrap();
        assert_eq!(again.all().unwrap(), [(volume.clone(), record)]);
        again.remove(&volume).unwrap();
        again.remove(&volume).unwrap();
        assert!(again.all().unwrap().is_empty());
    }

    #[test]
    fn unreadable_records_are_renamed_and_do_not_hide_others() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(dir.path()).unwrap();
        let record = PvRecord {
            volume: "v".to_owned(),
            point: "/p".into(),
            session: 0,
            ephemeral: false,
            targets: Vec::new(),
        };
        state_dir.put(&record).unwrap();
        let published = dir.path().join("published");
        let text = |volume: &str| {
            serde_json::to_vec(&PvRecord { volume: volume.into(), ..record.clone() })
        };
        fs::write(published.join("broken.json"), "{").unwrap();
        fs::write(published.join("nameless.json"), text("").unwrap()).unwrap();
        fs::write(published.join("moved.json"), text("w").unwrap()).unwrap();
        fs::create_dir(published.join("folder.json")).unwrap();
        let volume = VolumeId::new("v").unwrap();
        assert_eq!(state_dir.all().unwrap(), [(volume, record)]);
        for name in ["broken", "nameless", "moved", "folder"] {
            assert!(published.join(format!("{name}.damaged")).exists(), "{name}");
        }
    }
}
