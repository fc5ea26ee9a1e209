//! The state directory: what is published on this node, for whoever comes after this process.
//!
//! A file for each volume, written whole. There is nothing secret in it.

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::id::VolumeId;
use crate::error::{Error, Result};

const ENDING: &str = "json";
/// Of a record that nobody understands.
const DAMAGED: &str = "damaged";
/// More than the targets of a volume take.
const LONGEST: u64 = 16 << 20;

/// What is known of one volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub volume: String,
    /// Where its session is mounted.
    pub point: PathBuf,
    /// Our registration in the metadata: what a process that goes on with the session resumes.
    pub session: u64,
    /// Its directory is removed with its last target.
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
pub struct State {
    records: PathBuf,
    points: PathBuf,
}

impl State {
    pub fn open(dir: &Path) -> Result<Self> {
        let state = Self { records: dir.join("published"), points: dir.join("mounts") };
        for dir in [&state.records, &state.points] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(|e| fault(dir, &e))?;
        }
        Ok(state)
    }

    /// The directory of all sessions' mounts.
    pub fn points(&self) -> &Path {
        &self.points
    }

    /// Where the session of a volume is mounted; made if it is missing.
    pub fn point(&self, volume: &VolumeId) -> Result<PathBuf> {
        let point = self.points.join(volume.file_name());
        match DirBuilder::new().mode(0o700).create(&point) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(fault(&point, &error)),
            _ => Ok(point),
        }
    }

    /// Durable when it returns.
    pub fn put(&self, record: &Record) -> Result<()> {
        let path = self.path(&VolumeId::new(&record.volume)?);
        let draft = path.with_extension("new");
        let text = serde_json::to_vec_pretty(record).map_err(|e| Error::bad_input(&e))?;
        let write = || {
            let mut file = File::create(&draft)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
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

    /// Everything that was recorded. A file that says nothing usable is told and put aside, so that it
    /// costs at most its own volume.
    pub fn all(&self) -> Result<Vec<(VolumeId, Record)>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.records).map_err(|error| fault(&self.records, &error))? {
            let path = entry.map_err(|error| fault(&self.records, &error))?.path();
            if path.extension().is_none_or(|ending| ending != ENDING) {
                continue;
            }
            match self.read(&path) {
                Ok(found) => records.push(found),
                Err(cause) => put_aside(&path, &cause),
            }
        }
        Ok(records)
    }

    fn read(&self, path: &Path) -> Result<(VolumeId, Record), String> {
        let text = read_bounded(path).map_err(|error| error.to_string())?;
        let record: Record = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let volume = VolumeId::new(&record.volume).map_err(|error| error.to_string())?;
        if self.path(&volume) != path {
            return Err(format!("it is of volume {volume}"));
        }
        Ok((volume, record))
    }

    fn path(&self, volume: &VolumeId) -> PathBuf {
        self.records.join(format!("{}.{ENDING}", volume.file_name()))
    }
}

/// A record is small, and whatever else lies there is not read without end.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let mut text = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
    Ok(text)
}

/// Out of the way of the next start, and there for who wants to know.
fn put_aside(path: &Path, cause: &str) {
    let aside = path.with_extension(DAMAGED);
    match fs::rename(path, &aside) {
        Ok(()) => {
            warn!(path = %path.display(), aside = %aside.display(), cause, "a record is damaged and put aside");
        }
        Err(error) => warn!(path = %path.display(), cause, %error, "a record is damaged and stays"),
    }
}

fn fault(path: &Path, error: &std::io::Error) -> Error {
    Error::Unreachable { place: path.display().to_string(), cause: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        let volume = VolumeId::new("pvc-1").unwrap();
        let mut record = Record {
            volume: "pvc-1".to_owned(),
            point: state.point(&volume).unwrap(),
            session: 7,
            ephemeral: false,
            targets: vec![Target { path: "/pods/a".into(), read_only: true }],
        };
        state.put(&record).unwrap();
        record.targets.clear();
        state.put(&record).unwrap();
        let again = State::open(dir.path()).unwrap();
        assert_eq!(again.all().unwrap(), [(volume.clone(), record)]);
        again.remove(&volume).unwrap();
        again.remove(&volume).unwrap();
        assert!(again.all().unwrap().is_empty());
    }

    #[test]
    fn what_is_no_record_is_put_aside_and_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        let record = Record {
            volume: "v".to_owned(),
            point: "/p".into(),
            session: 0,
            ephemeral: false,
            targets: Vec::new(),
        };
        state.put(&record).unwrap();
        let published = dir.path().join("published");
        let text =
            |volume: &str| serde_json::to_vec(&Record { volume: volume.into(), ..record.clone() });
        fs::write(published.join("broken.json"), "{").unwrap();
        fs::write(published.join("nameless.json"), text("").unwrap()).unwrap();
        fs::write(published.join("moved.json"), text("w").unwrap()).unwrap();
        fs::create_dir(published.join("folder.json")).unwrap();
        let volume = VolumeId::new("v").unwrap();
        assert_eq!(state.all().unwrap(), [(volume, record)]);
        for name in ["broken", "nameless", "moved", "folder"] {
            assert!(published.join(format!("{name}.damaged")).exists(), "{name}");
        }
    }
}
