//! How much room a disk has left.

use std::io;
use std::path::Path;

/// Bytes and inodes of a file system. Some have no fixed number of inodes and say 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub bytes: u64,
    pub free_bytes: u64,
    pub inodes: u64,
    pub free_inodes: u64,
}

/// Where the cache learns it; tests bring their own.
pub trait Space: Send + Sync {
    fn room(&self, dir: &Path) -> io::Result<Room>;
}

/// The file system's own answer.
pub struct Statvfs;

impl Space for Statvfs {
    fn room(&self, dir: &Path) -> io::Result<Room> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(Room {
            bytes: stat.f_blocks * stat.f_frsize,
            free_bytes: stat.f_bavail * stat.f_frsize,
            inodes: stat.f_files,
            free_inodes: stat.f_ffree,
        })
    }
}

impl Room {
    /// Bytes and inodes that must be given up so that `ratio` of them is free.
    pub fn missing(&self, ratio: f32) -> (u64, u64) {
        let missing =
            |total: u64, free: u64| ((total as f64 * f64::from(ratio)) as u64).saturating_sub(free);
        (missing(self.bytes, self.free_bytes), missing(self.inodes, self.free_inodes))
    }

    pub fn is_short(&self, ratio: f32) -> bool {
        self.missing(ratio) != (0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_missing_in_bytes_or_in_inodes() {
        let room = Room { bytes: 1000, free_bytes: 300, inodes: 100, free_inodes: 30 };
        assert_eq!(room.missing(0.25), (0, 0));
        assert_eq!(room.missing(0.5), (200, 20));
        assert!(!room.is_short(0.25) && room.is_short(0.5));
        assert!(Room { free_inodes: 1, ..room }.is_short(0.25));
        assert!(!Room { inodes: 0, free_inodes: 0, ..room }.is_short(0.25));
    }

    #[test]
    fn the_file_system_answers() {
        let folder = tempfile::tempdir().unwrap();
        let room = Statvfs.room(folder.path()).unwrap();
        assert!(room.bytes > 0 && room.free_bytes <= room.bytes);
        assert!(Statvfs.room(&folder.path().join("missing")).is_err());
    }
}
