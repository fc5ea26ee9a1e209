//! The kernel's end of a FUSE mount: found without asking the file system, and cut when it hangs.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Whether something is mounted there. Reads the kernel's table: a stat could hang.
pub fn is_mounted(point: &Path) -> bool {
    number(point).is_some()
}

/// The number of the connection that serves what is mounted there: the minor of its device.
fn number(point: &Path) -> Option<u32> {
    let point = point.to_string_lossy();
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // What was mounted last lies on top.
    let line = table.lines().rfind(|line| line.split(' ').nth(4) == Some(&point))?;
    line.split(' ').nth(2)?.split_once(':')?.1.parse().ok()
}

/// A connection that can be ended later. Numbers are used again, but this is always the same one: once
/// it is gone, ending it does nothing.
pub struct Connection {
    abort: File,
}

impl Connection {
    /// The one that serves what is mounted there now.
    pub fn of(point: &Path) -> Option<Self> {
        let number = number(point)?;
        if fs::read_dir(CONNECTIONS).is_ok_and(|mut all| all.next().is_none()) {
            // Mounted by systemd where there is one.
            let none = None::<&str>;
            let _ = mount(none, CONNECTIONS, Some("fusectl"), MsFlags::empty(), none);
        }
        let abort = File::options().write(true).open(format!("{CONNECTIONS}/{number}/abort"));
        Some(Self { abort: abort.ok()? })
    }

    /// Ends it, whatever state its server is in: requests under way get an error, and so do later ones.
    pub fn abort(&self) {
        let _ = (&self.abort).write_all(b"1");
    }
}

/// Takes away what is mounted there, at once; whoever hangs in it is freed.
pub fn cut(point: &Path) {
    // Several may lie on top of each other.
    while is_mounted(point) {
        if let Some(connection) = Connection::of(point) {
            connection.abort();
        }
        // Not the program: it may look at the path first.
        if umount2(point, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH).is_err() {
            break;
        }
    }
}
