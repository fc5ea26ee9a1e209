//! The kernel's table of mounts, as this process sees it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    pub id: u64,
    /// `major:minor`.
    pub device: String,
    pub point: PathBuf,
    /// The type, such as `fuse.juicefs`.
    pub kind: String,
    pub source: String,
}

impl Mounted {
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.")
    }

    fn parse(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ');
        let id = left.next()?.parse().ok()?;
        let device = left.nth(1)?.to_owned();
        let point = PathBuf::from(OsString::from_vec(unescape(left.nth(1)?)));
        let mut right = right.split(' ');
        let kind = right.next()?.to_owned();
        let source = String::from_utf8_lossy(&unescape(right.next()?)).into_owned();
        Some(Self { id, device, point, kind, source })
    }
}

/// What is mounted at exactly this place, on top of anything else there. Looks at the table only:
/// the place itself may not answer.
pub fn mounted_at(point: &Path) -> Option<Mounted> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    on_top(&String::from_utf8_lossy(&table), point)
}

/// Where something is mounted below a directory, the last one first.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let points = table.lines().rev().filter_map(Mounted::parse).map(|mounted| mounted.point);
    points.filter(|point| point != dir && point.starts_with(dir)).collect()
}

fn on_top(table: &str, point: &Path) -> Option<Mounted> {
    // The kernel lists mounts in the order they were made.
    table.lines().rev().filter_map(Mounted::parse).find(|mounted| mounted.point == point)
}

/// Blanks, tabs, newlines and backslashes are written as three octal digits.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal =
            (*first == b'\\').then(|| after.first_chunk::<3>().copied().and_then(octal)).flatten();
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    bytes
}

fn octal(digits: [u8; 3]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw
40 1 0:50 / /mnt/a\\040b rw,nosuid,nodev - fuse.juicefs JuiceFS:my\\040vol rw,user_id=0
41 40 0:51 / /mnt/a\\040b rw - tmpfs tmpfs rw
42 1 0:52 / /mnt/c rw master:1 propagate_from:2 - fuse sshfs rw";

    #[test]
    fn the_last_mount_of_a_place_is_on_top() {
        let top = on_top(TABLE, Path::new("/mnt/a b")).unwrap();
        assert_eq!((top.id, top.device.as_str(), top.kind.as_str()), (41, "0:51", "tmpfs"));
    }

    #[test]
    fn optional_fields_are_skipped() {
        let fuse = on_top(TABLE, Path::new("/mnt/c")).unwrap();
        assert!(fuse.is_fuse());
        assert_eq!(fuse.source, "sshfs");
    }

    #[test]
    fn a_place_below_a_mount_is_no_mount() {
        assert_eq!(on_top(TABLE, Path::new("/mnt/c/d")), None);
        assert_eq!(on_top(TABLE, Path::new("/mnt")), None);
    }

    #[test]
    fn octal_escapes_are_undone_and_others_kept() {
        assert_eq!(unescape("a\\040\\134b\\x\\"), b"a \\b\\x\\");
    }
}
