//! The kernel's mount table, as this process sees it.
//!
//! The kernel returns it in several reads, and a change between two of them can hide a mount that
//! existed all the time. So it is read until two reads agree.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Enough for most tables in one read.
const USUAL: usize = 64 << 10;
const TRIES: usize = 10;

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    pub id: u64,
    /// `major:minor`.
    pub device: String,
    pub point: PathBuf,
    /// Whether mounts on it propagate to its peers.
    pub is_shared: bool,
    /// The type, such as `fuse.juicefs`.
    pub kind: String,
    pub source: String,
}

impl MountEntry {
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.")
    }

    fn parse(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ');
        let id = left.next()?.parse().ok()?;
        let device = left.nth(1)?.to_owned();
        let point = PathBuf::from(OsString::from_vec(unescape(left.nth(1)?)));
        let is_shared = left.skip(1).any(|field| field.starts_with("shared:"));
        let mut right = right.split(' ');
        let kind = right.next()?.to_owned();
        let source = String::from_utf8_lossy(&unescape(right.next()?)).into_owned();
        Some(Self { id, device, point, is_shared, kind, source })
    }
}

/// Returns the topmost mount at exactly this path. Reads only the table: the path itself may hang.
pub fn mounted_at(point: &Path) -> Option<MountEntry> {
    let table = table().ok()?;
    on_top(&String::from_utf8_lossy(&table), point)
}

/// Returns all mounts at exactly this path, topmost last.
pub fn stacked_at(point: &Path) -> Vec<MountEntry> {
    let table = table().unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    table.lines().filter_map(MountEntry::parse).filter(|mounted| mounted.point == point).collect()
}

/// Returns the mount points below a directory, the latest first.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = table().unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let points = table.lines().rev().filter_map(MountEntry::parse).map(|mounted| mounted.point);
    points.filter(|point| point != dir && point.starts_with(dir)).collect()
}

fn table() -> io::Result<Vec<u8>> {
    settled(|| File::open("/proc/self/mountinfo"))
}

/// Reads until two reads agree. If they never do, returns the last.
fn settled<R: Read>(mut open: impl FnMut() -> io::Result<R>) -> io::Result<Vec<u8>> {
    let mut read = || {
        let mut table = Vec::with_capacity(USUAL);
        open()?.read_to_end(&mut table)?;
        Ok::<_, io::Error>(table)
    };
    let mut last = read()?;
    for _ in 0..TRIES {
        let next = read()?;
        if next == last {
            break;
        }
        last = next;
    }
    Ok(last)
}

fn on_top(table: &str, point: &Path) -> Option<MountEntry> {
    // The kernel lists mounts in the order of creation.
    table.lines().rev().filter_map(MountEntry::parse).find(|mounted| mounted.point == point)
}

/// Decodes blanks, tabs, newlines and backslashes, which are written as three octal digits.
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
    fn the_last_mount_at_a_path_is_on_top() {
        let top = on_top(TABLE, Path::new("/mnt/a b")).unwrap();
        assert_eq!((top.id, top.device.as_str(), top.kind.as_str()), (41, "0:51", "tmpfs"));
    }

    /// A file of which every read returns a few bytes, and some are interrupted.
    struct Short<'a>(&'a [u8], usize);

    impl Read for Short<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(3) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let few = (self.1 % 7 + 1).min(into.len());
            self.0.read(&mut into[..few])
        }
    }

    #[test]
    fn regression_a_table_in_several_reads_is_read_whole() {
        let table = settled(|| Ok(Short(TABLE.as_bytes(), 0))).unwrap();
        assert_eq!(String::from_utf8(table).unwrap(), TABLE);
    }

    #[test]
    fn regression_a_mount_that_one_read_missed_is_found() {
        let torn = TABLE.replace("42 1 0:52 / /mnt/c", "");
        let mut tables = [TABLE, &torn].into_iter();
        let table = settled(|| Ok(Short(tables.next().unwrap_or(TABLE).as_bytes(), 0))).unwrap();
        assert!(on_top(&String::from_utf8(table).unwrap(), Path::new("/mnt/c")).is_some());
    }

    #[test]
    fn optional_fields_are_skipped() {
        let fuse = on_top(TABLE, Path::new("/mnt/c")).unwrap();
        assert!(fuse.is_fuse());
        assert_eq!(fuse.source, "sshfs");
        assert!(!fuse.is_shared);
        assert!(on_top(TABLE, Path::new("/proc")).unwrap().is_shared);
    }

    #[test]
    fn a_path_below_a_mount_is_not_a_mount() {
        assert_eq!(on_top(TABLE, Path::new("/mnt/c/d")), None);
        assert_eq!(on_top(TABLE, Path::new("/mnt")), None);
    }

    #[test]
    fn octal_escapes_are_decoded_and_others_kept() {
        assert_eq!(unescape("a\\040\\134b\\x\\"), b"a \\b\\x\\");
    }
}
