//! The socket that clients connect to.
//!
//! Only its owner reaches it: the folder has mode 0700 and the socket 0600, and the server checks who
//! connects. A lock on a file next to the socket makes sure that one keeper listens there; the socket
//! that a dead one left is replaced.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

#[derive(Debug)]
pub struct Listener {
    pub socket: OwnedFd,
    pub lock: OwnedFd,
    pub path: PathBuf,
}

impl Listener {
    /// Listens at a path. Fails if another keeper does.
    pub fn new(path: &Path) -> io::Result<Self> {
        let shown = path.display();
        let address = address(path)?;
        private_folder(path)?;
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => {
                return Err(io::Error::other(format!("{shown} exists and is not a socket")));
            }
            Ok(_) if connect_to(path).is_ok() => {
                return Err(io::Error::other(format!("another process listens at {shown}")));
            }
            Ok(_) => fs::remove_file(path)?,
            Err(_) => {}
        }
        let socket = seqpacket(SocketFlags::NONBLOCK)?;
        bind(&socket, &address)
            .map_err(|error| io::Error::other(format!("{shown}: cannot bind: {error}")))?;
        // Nobody can connect before it listens.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listen(&socket, BACKLOG)?;
        Ok(Self { socket, lock: lock.into(), path: path.to_owned() })
    }

    /// Returns a connection that waits, if one does.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Ok(Some(socket)),
            Err(error) => match io::Error::from(error) {
                gone if gone.kind() == io::ErrorKind::ConnectionAborted => Ok(None),
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Removes the socket and its lock, at the end.
    pub fn remove(&self) {
        // In this order: who gets the lock next finds no socket.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(lock_path(&self.path));
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Connects to a keeper.
pub fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let socket = seqpacket(SocketFlags::empty())?;
    connect(&socket, &address(path)?)?;
    Ok(socket)
}

fn seqpacket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|_| {
        let text = format!("{}: too long for the path of a socket", path.display());
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

/// Creates the folder of the socket, or closes it to others.
fn private_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket needs a folder"));
    };
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("folder {}: {error}", folder.display()))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(named)?;
    let there = fs::metadata(folder).map_err(named)?;
    if there.uid() != rustix::process::geteuid().as_raw() {
        return Err(named(io::Error::other("belongs to another user")));
    }
    if there.mode() & 0o7777 != 0o700 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(named)?;
    }
    Ok(())
}

fn lock_path(path: &Path) -> PathBuf {
    path.with_added_extension("lock")
}

fn lock(path: &Path) -> io::Result<File> {
    let place = lock_path(path);
    loop {
        let file =
            OpenOptions::new().create(true).append(true).mode(0o600).open(&place).map_err(|e| {
                io::Error::new(e.kind(), format!("{}: cannot be opened: {e}", place.display()))
            })?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            io::Error::other(format!("another keeper listens at {}", path.display()))
        })?;
        // Another keeper may have removed the file at its end, just before.
        let ours = file.metadata()?;
        match fs::metadata(&place) {
            Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => return Ok(file),
            _ => {}
        }
    }
}
