//! The unix sockets that kubelet and the sidecars connect to.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::stream::{self, Stream};
use tokio::net::UnixListener;
use tokio::time::sleep;
use tracing::warn;

use super::authority::AnyAuthority;
use crate::error::{Error, Result};

/// How often the file of a socket is looked for.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// A listening socket. Its file is removed when it is dropped, unless another process has replaced
/// it by its own.
pub struct Socket {
    path: PathBuf,
    /// Device and inode number of its file.
    file: Option<(u64, u64)>,
    listener: UnixListener,
}

impl Socket {
    /// Listens at a path. Replaces the socket of a dead process, and refuses that of a running one.
    pub fn listen(path: &Path) -> Result<Self> {
        if is_socket(path) && UnixStream::connect(path).is_ok() {
            let text = format!("socket {}: another process is listening on it", path.display());
            return Err(Error::bad_input(text));
        }
        Self::replace(path)
    }

    /// Listens at a path. Replaces the socket of any process.
    pub fn replace(path: &Path) -> Result<Self> {
        let fail = |what: String| Error::bad_input(format!("socket {}: {what}", path.display()));
        let failed = |error: io::Error| fail(error.to_string());
        match std::fs::symlink_metadata(path) {
            Ok(_) if is_socket(path) => std::fs::remove_file(path).map_err(failed)?,
            Ok(_) => return Err(fail("the path exists and is not a socket".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(dir) = path.parent() {
                    std::fs::create_dir_all(dir).map_err(failed)?;
                }
            }
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        // Only root may call the driver.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file: identity(path), listener })
    }

    /// Returns a stream of incoming connections. If the file is removed, listens again: the
    /// registrar sidecar of an old pod removes it at its end, whoever listens there by then.
    pub fn incoming(self) -> impl Stream<Item = io::Result<AnyAuthority>> {
        stream::unfold(self, |mut socket| async move {
            loop {
                tokio::select! {
                    accepted = socket.listener.accept() => {
                        let accepted = accepted.map(|(stream, _)| AnyAuthority::new(stream));
                        return Some((accepted, socket));
                    }
                    () = sleep(CHECK_INTERVAL) => socket.listen_again(),
                }
            }
        })
    }

    fn listen_again(&mut self) {
        if identity(&self.path).is_some() {
            return;
        }
        warn!(path = %self.path.display(), "the socket was removed: listening again");
        match Self::listen(&self.path) {
            Ok(socket) => *self = socket,
            Err(error) => warn!(%error, "cannot listen again"),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.file.is_some() && identity(&self.path) == self.file {
            // It may have been removed already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Returns the path of `unix:///path`, or the path itself.
pub fn parse_endpoint(text: &str) -> Result<PathBuf> {
    let path = match text.split_once(':') {
        Some(("unix", rest)) => rest.strip_prefix("//").unwrap_or(rest),
        _ => text,
    };
    if path.starts_with('/') {
        return Ok(path.into());
    }
    Err(Error::bad_input(format!("endpoint {text:?} is not unix:///path/of/a.sock")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_socket_path() {
        for text in ["unix:///csi/csi.sock", "unix:/csi/csi.sock", "/csi/csi.sock"] {
            assert_eq!(parse_endpoint(text).unwrap(), Path::new("/csi/csi.sock"));
        }
        for text in ["tcp://host:1", "csi.sock", "", "unix://csi.sock"] {
            assert!(parse_endpoint(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn the_socket_of_a_dead_process_is_replaced_and_that_of_a_running_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/csi.sock");
        let first = Socket::listen(&path).unwrap();
        let error = Socket::listen(&path).err().unwrap().to_string();
        assert!(error.contains("another process"), "{error}");
        drop(first);
        assert!(!path.exists());
        // One that another process has replaced stays.
        let old = Socket::listen(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let new = Socket::listen(&path).unwrap();
        drop(old);
        assert!(path.exists());
        drop(new);
        // A socket file without a listener.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Socket::listen(&path).unwrap());
        std::fs::write(&path, "text").unwrap();
        assert!(Socket::listen(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
    }
}
