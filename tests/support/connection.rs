//! FUSE connections of the kernel: found without accessing the file system, and aborted if it hangs.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Returns whether something is mounted there. Reads the mount table: a stat could hang.
pub fn is_mounted(point: &Path) -> bool {
    number(point).is_some()
}

/// Returns the number of the connection that serves the mount: the minor number of its device.
fn number(point: &Path) -> Option<u32> {
    let point = point.to_string_lossy();
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // The last mount is the topmost.
    let line = table.lines().rfind(|line| line.split(' ').nth(4) == Some(&point))?;
    line.split(' ').nth(2)?.split_once(':')?.1.parse().ok()
}

/// A connection that can be aborted later. Numbers are reused, but the open file always refers to the
/// same connection: once that is gone, aborting does nothing.
pub struct Connection {
    abort: File,
}

impl Connection {
    /// Returns the connection that serves the mount.
    pub fn of(point: &Path) -> Option<Self> {
        let number = number(point)?;
        if fs::read_dir(CONNECTIONS).is_ok_and(|mut all| all.next().is_none()) {
            // systemd mounts it, if there is one.
            let none = None::<&str>;
            let _ = mount(none, CONNECTIONS, Some("fusectl"), MsFlags::empty(), none);
        }
        let abort = File::options().write(true).open(format!("{CONNECTIONS}/{number}/abort"));
        Some(Self { abort: abort.ok()? })
    }

    /// Aborts the connection, whatever state its server is in: pending and later requests fail.
    pub fn abort(&self) {
        let _ = (&self.abort).write_all(b"1");
    }
}

/// Unmounts whatever is mounted there at once; processes that hang in it are released.
pub fn cut(point: &Path) {
    // Several mounts may be stacked.
    while is_mounted(point) {
        if let Some(connection) = Connection::of(point) {
            connection.abort();
        }
        // Not umount(8), which may stat the path first.
        if umount2(point, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH).is_err() {
            break;
        }
    }
}
