//! The free space of a disk.

use std::io;
use std::path::Path;

/// Bytes and inodes of a file system. Some have no fixed number of inodes and report 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    pub bytes: u64,
    pub free_bytes: u64,
    pub inodes: u64,
    pub free_inodes: u64,
}

/// Bytes and inodes that a disk lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shortage {
    pub bytes: u64,
    pub inodes: u64,
}

/// A source of [`DiskSpace`]. Tests bring their own.
pub trait SpaceSource: Send + Sync {
    fn disk_space(&self, dir: &Path) -> io::Result<DiskSpace>;
}

/// The space that the file system reports.
pub struct Statvfs;

impl SpaceSource for Statvfs {
    fn disk_space(&self, dir: &Path) -> io::Result<DiskSpace> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(DiskSpace {
            bytes: stat.f_blocks * stat.f_frsize,
            free_bytes: stat.f_bavail * stat.f_frsize,
            inodes: stat.f_files,
            free_inodes: stat.f_ffree,
        })
    }
}

/// Returns `ratio` of `whole`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a ratio is between 0 and 1, so the result is at most `whole`"
)]
pub fn fraction(whole: u64, ratio: f32) -> u64 {
    (whole as f64 * f64::from(ratio)) as u64
}

impl DiskSpace {
    /// Returns what must be freed so that `ratio` of the bytes and of the inodes is free.
    pub fn shortage(&self, ratio: f32) -> Shortage {
        let missing = |total: u64, free: u64| fraction(total, ratio).saturating_sub(free);
        Shortage {
            bytes: missing(self.bytes, self.free_bytes),
            inodes: missing(self.inodes, self.free_inodes),
        }
    }

    pub fn is_short(&self, ratio: f32) -> bool {
        !self.shortage(ratio).is_none()
    }
}

impl Shortage {
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_short_in_bytes_or_in_inodes() {
        let space = DiskSpace { bytes: 1000, free_bytes: 300, inodes: 100, free_inodes: 30 };
        assert_eq!(space.shortage(0.25), Shortage::default());
        assert_eq!(space.shortage(0.5), Shortage { bytes: 200, inodes: 20 });
        assert!(!space.is_short(0.25) && space.is_short(0.5));
        assert!(DiskSpace { free_inodes: 1, ..space }.is_short(0.25));
        assert!(!DiskSpace { inodes: 0, free_inodes: 0, ..space }.is_short(0.25));
    }

    #[test]
    fn the_file_system_reports_its_space() {
        let folder = tempfile::tempdir().unwrap();
        let space = Statvfs.disk_space(folder.path()).unwrap();
        assert!(space.bytes > 0 && space.free_bytes <= space.bytes);
        assert!(Statvfs.disk_space(&folder.path().join("missing")).is_err());
    }
}
