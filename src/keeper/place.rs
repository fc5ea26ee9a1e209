//! Where the keeper of a mount on a host listens.
//!
//! `/run/jfs/keepers/NAME-HASH.sock` for root, and the same below `$XDG_RUNTIME_DIR`, or else in a folder
//! of the user below `/tmp`, for others. `NAME` is the last part of the mount point, for people; `HASH`
//! is that of its whole path, since the path of a socket must be short. So whoever knows the mount point
//! finds the keeper, without a record that could be outdated. The hash never changes, so that a new
//! version finds an old keeper.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of the mount point's name that the socket's name shows.
const MAX_SHOWN: usize = 24;
/// Symbolic links that are followed.
const MAX_LINKS: usize = 40;

/// Returns the socket of the keeper of a mount point, for the user of this process.
pub fn socket_of(mount_point: &Path) -> io::Result<PathBuf> {
    Ok(socket_in(&folder(), &absolute(mount_point)?))
}

/// Returns the folder of all keepers' sockets of the user of this process.
pub fn folder() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return PathBuf::from("/run/jfs/keepers");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(folder) if folder.is_absolute() => folder.join("jfs/keepers"),
        _ => PathBuf::from(format!("/tmp/jfs-keepers-{}", user.as_raw())),
    }
}

/// Returns the path of a mount point without symbolic links. It asks no mount there for anything, since
/// one without a server would never answer.
pub fn absolute(mount_point: &Path) -> io::Result<PathBuf> {
    let mut path = std::path::absolute(mount_point)?;
    for _ in 0..MAX_LINKS {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
        let resolved = parent.canonicalize()?.join(name);
        // Reading the link of a directory fails without a request to its file system.
        match std::fs::read_link(&resolved) {
            Ok(link) => path = resolved.parent().unwrap_or(&resolved).join(link),
            Err(_) if name == ".." => return resolved.canonicalize(),
            Err(_) => return Ok(resolved),
        }
    }
    Err(io::Error::other(format!("{}: too many symbolic links", mount_point.display())))
}

fn socket_in(folder: &Path, mount_point: &Path) -> PathBuf {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let name = mount_point.file_name().unwrap_or_default().as_bytes();
    let shown: Vec<u8> = name.iter().copied().filter(plain).take(MAX_SHOWN).collect();
    let shown = String::from_utf8_lossy(&shown);
    folder.join(format!("{shown}-{:016x}.sock", hash(mount_point.as_os_str().as_bytes())))
}

/// FNV-1a of 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_mount_point_never_changes() {
        let socket = |point: &str| socket_in(Path::new("/run"), Path::new(point));
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(socket("/a/data"), socket("/a/data"));
        assert_ne!(socket("/a/data"), socket("/b/data"));
        let long = socket(&format!("/mnt/{}", "é x".repeat(200)));
        assert!(long.as_os_str().len() < 60, "{}", long.display());
    }

    #[test]
    fn symbolic_links_lead_to_the_same_socket() {
        let folder = tempfile::tempdir().unwrap();
        let point = folder.path().join("point");
        std::fs::create_dir(&point).unwrap();
        std::os::unix::fs::symlink(&point, folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink("link", folder.path().join("again")).unwrap();
        let wanted = socket_of(&point).unwrap();
        for other in ["link", "again", "point/", "point/../point", "./point/."] {
            assert_eq!(socket_of(&folder.path().join(other)).unwrap(), wanted, "{other}");
        }
        std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
        socket_of(&folder.path().join("loop")).unwrap_err();
    }
}
