//! Short calls for preparing and inspecting a mounted tree.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::io::Errno;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// A user without privileges.
pub const SOMEBODY: u32 = 4000;

/// Returns the errno of an operation that must fail.
#[track_caller]
pub fn refused<T: Debug, E: Into<io::Error>>(result: Result<T, E>) -> Errno {
    let error: io::Error = match result {
        Ok(value) => panic!("should have been refused: {value:?}"),
        Err(error) => error.into(),
    };
    Errno::from_io_error(&error).unwrap_or_else(|| panic!("no error number: {error}"))
}

/// Runs something as another user, with no group but this one and no privileges over files.
pub fn as_user<T>(id: u32, act: impl FnOnce() -> T) -> T {
    /// Restores the old identity even if the test fails in between.
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            setfsuid(Uid::from_raw(0));
            setfsgid(Gid::from_raw(0));
        }
    }
    let _back = Back;
    setfsgid(Gid::from_raw(id));
    setfsuid(Uid::from_raw(id));
    act()
}

/// Lists a directory, sorted and without virtual files.
#[track_caller]
pub fn names(dir: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> =
        entries.map(|name| name.into_string().unwrap()).filter(|name| !is_virtual(name)).collect();
    names.sort();
    names
}

pub fn is_virtual(name: &str) -> bool {
    [".accesslog", ".stats", ".config", ".trash", ".control"].contains(&name)
}

/// Opens a file for reading and writing, and creates it if it does not exist.
#[track_caller]
pub fn open(path: impl AsRef<Path>) -> File {
    let path = path.as_ref();
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns pseudo-random bytes for a seed.
pub fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = usize::try_from(len.div_ceil(8)).unwrap();
    let mut all: Vec<u8> =
        std::iter::repeat_with(next).take(words).flat_map(u64::to_le_bytes).collect();
    all.truncate(usize::try_from(len).unwrap());
    all
}

/// Fails the test if they differ, with the offset instead of megabytes of output.
#[track_caller]
pub fn assert_same(found: &[u8], expected: &[u8]) {
    if found != expected {
        let at = found.iter().zip(expected).position(|(one, two)| one != two);
        let lengths = (found.len(), expected.len());
        panic!("contents differ at {at:?}; lengths {lengths:?}");
    }
}
