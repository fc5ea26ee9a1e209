//! Objects as files in a directory: a key is a path below it.
//!
//! A body is written to a temporary file in the same directory and renamed, so objects appear
//! atomically. File system calls block, so they run on blocking threads, a few at a time.

mod listing;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use nix::fcntl::OFlag;
use tokio::sync::Semaphore;

use super::get_request::{BodyError, GetRequest};
use super::{Object, ObjectStore};
use crate::buffer_pool;
use crate::error::{Error, Result};

/// Concurrent calls. Further ones wait without a thread.
const MAX_CALLS: usize = 32;

/// Bytes of the name that the name of its temporary file keeps; names have at most 255.
const MAX_KEPT_NAME: usize = 200;

pub struct FileStore {
    disk: Arc<Disk>,
    place: String,
    calls: Arc<Semaphore>,
}

/// The state that blocking calls need.
struct Disk {
    /// The prefix of all paths, usually a directory with a trailing slash.
    root: String,
    sync: bool,
}

impl FileStore {
    /// With `sync`, an object counts as stored once it is on the disk, so that the promise of
    /// `fsync` also holds after a power failure.
    pub fn new(root: &str, sync: bool) -> Result<Self> {
        if !root.starts_with('/') {
            return Err(Error::BadInput(format!("bucket {root:?} is not an absolute path")));
        }
        let disk = Arc::new(Disk { root: root.to_owned(), sync });
        let calls = Arc::new(Semaphore::new(MAX_CALLS));
        Ok(Self { disk, place: format!("file://{root}"), calls })
    }

    async fn call<T: Send + 'static>(
        &self,
        action: &'static str,
        key: &str,
        work: impl FnOnce(&Disk) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let failed = |cause: String| Error::Storage {
            place: self.place.clone(),
            action,
            key: key.to_owned(),
            cause,
        };
        let permit = Arc::clone(&self.calls).acquire_owned().await;
        let disk = Arc::clone(&self.disk);
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&disk)
        });
        match done.await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Err(Error::NotFound),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

#[async_trait]
impl ObjectStore for FileStore {
    fn place(&self) -> &str {
        &self.place
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        let path = self.disk.path(key)?;
        self.call("get", key, move |_| read(&path, &request))
            .await?
            .map_err(|error| error.into_error(&self.place, key))
    }

    async fn put(&self, key: &str, body: Bytes, _tier: u8) -> Result<()> {
        let path = self.disk.path(key)?;
        self.call("put", key, move |disk| disk.write(&path, &body)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let path = self.disk.path(key)?;
        match self.call("delete", key, move |_| remove(&path)).await {
            Err(Error::NotFound) => Ok(()),
            other => other,
        }
    }

    async fn head(&self, key: &str) -> Result<Object> {
        let path = self.disk.path(key)?;
        let found = self.call("head", key, move |_| {
            let meta = fs::metadata(&path)?;
            if meta.is_file() { Ok((meta.len(), meta.modified()?)) } else { Err(not_found()) }
        });
        let (size, modified) = found.await?;
        Ok(Object::new(key, size, modified))
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        let (from, behind) = (prefix.to_owned(), after.to_owned());
        self.call("list", prefix, move |disk| listing::list(&disk.root, &from, &behind, limit))
            .await
    }

    async fn create(&self) -> Result<()> {
        self.call("create", "", |disk| match disk.root.rfind('/') {
            Some(end) => disk.make_dir(Path::new(&disk.root[..=end])),
            None => Ok(()),
        })
        .await
    }
}

impl Disk {
    /// Returns the path of a key. Refuses a key that could lead out of the root, or whose path
    /// another key would share.
    fn path(&self, key: &str) -> Result<PathBuf> {
        let dir = key.strip_suffix('/').unwrap_or(key);
        let odd = |part: &str| matches!(part, "" | "." | "..") || part.contains('\0');
        if dir.split('/').any(odd) {
            return Err(Error::BadInput(format!("{key:?} cannot be the name of a file")));
        }
        Ok(PathBuf::from(format!("{}{key}", self.root)))
    }

    fn write(&self, path: &Path, body: &[u8]) -> io::Result<()> {
        let temporary = temporary(path).ok_or(ErrorKind::InvalidFilename)?;
        let dir = path.parent().ok_or(ErrorKind::InvalidFilename)?;
        let file = match create(&temporary) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make_dir(dir)?;
                create(&temporary)?
            }
            other => other?,
        };
        let done = self.fill(file, body).and_then(|()| fs::rename(&temporary, path));
        if done.is_err() {
            // A second failure would tell nothing new.
            let _ = fs::remove_file(&temporary);
        }
        done?;
        if self.sync { sync_dir(dir) } else { Ok(()) }
    }

    fn fill(&self, mut file: File, body: &[u8]) -> io::Result<()> {
        file.write_all(body)?;
        if self.sync { file.sync_data() } else { Ok(()) }
    }

    /// Creates a directory and its parents, and with `sync` syncs their names.
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
        fs::DirBuilder::new().recursive(true).mode(0o777).create(dir)?;
        if self.sync {
            for made in missing {
                made.parent().map_or(Ok(()), sync_dir)?;
            }
        }
        Ok(())
    }
}

fn read(path: &Path, request: &GetRequest) -> io::Result<Result<Bytes, BodyError>> {
    // Opening a FIFO would otherwise block.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(not_found());
    }
    let part = request.range.clone().unwrap_or(0..meta.len());
    let (start, end) = (part.start.min(meta.len()), part.end.min(meta.len()));
    let length = end.saturating_sub(start);
    if length > request.max_length() {
        return Ok(Err(BodyError::TooLong { limit: request.max_length(), promised: length }));
    }
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let Some(mut body) = buffer_pool::Buffer::try_exactly(length) else {
        return Ok(Err(BodyError::NoMemory(length)));
    };
    file.read_exact_at(&mut body, start)?;
    Ok(Ok(body.freeze()))
}

/// Removes a file. A key that ends in a slash is a directory, which stays unless it is empty.
fn remove(path: &Path) -> io::Result<()> {
    if !path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return fs::remove_file(path);
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        other => other,
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o666).open(path)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Returns the path a body is written to first, named as JuiceFS does, so that its tools recognize
/// it.
fn temporary(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let kept = &name[..name.floor_char_boundary(MAX_KEPT_NAME)];
    Some(path.with_file_name(format!(".jfs.{kept}.tmp.{}", rand::random::<u64>() >> 1)))
}

fn not_found() -> io::Error {
    ErrorKind::NotFound.into()
}
