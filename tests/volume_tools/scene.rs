//! A volume that both clients have written, and its objects.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::support::fixture::{Client, Fixture};

pub const MIB: usize = 1 << 20;

/// Bytes that do not repeat soon and compress well enough.
pub fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at / 7) ^ seed ^ (at >> 9)).to_le_bytes()[0]).collect()
}

/// Writes the same kinds of files by both clients: small, large, overwritten, sparse and shared ones.
pub fn write_by_both(fixture: &Fixture) {
    for client in [Client::Ours, Client::Go] {
        let mount = fixture.mount_by(client, &[]);
        let top = mount.at(if client == Client::Ours { "ours" } else { "go" });
        fs::create_dir_all(top.join("below/deeper")).unwrap();
        for number in 0..10 {
            fs::write(top.join(format!("below/{number}")), bytes(number, 100 + number)).unwrap();
        }
        fs::write(top.join("large"), bytes(1, 9 * MIB + 5)).unwrap();
        let file = File::options().write(true).open(top.join("large")).unwrap();
        for at in [MIB, 5 * MIB - 10, 7 * MIB] {
            file.write_all_at(&bytes(at, 5000), at as u64).unwrap();
            file.sync_all().unwrap();
        }
        drop(file);
        let sparse = File::create(top.join("sparse")).unwrap();
        sparse.write_all_at(b"end", 70 * MIB as u64).unwrap();
        drop(sparse);
        fs::hard_link(top.join("below/1"), top.join("linked")).unwrap();
        mount.unmount();
    }
}

/// The files of all blocks.
pub fn objects(fixture: &Fixture) -> Vec<PathBuf> {
    let mut all = Vec::new();
    collect(&fixture.bucket().join("volume/chunks"), &mut all);
    all.sort();
    all
}

fn collect(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, all);
        } else {
            all.push(path);
        }
    }
}

/// The object of a block, by its name.
#[track_caller]
pub fn object(fixture: &Fixture, name: &str) -> PathBuf {
    let all = objects(fixture);
    all.iter()
        .find(|path| path.ends_with(name))
        .unwrap_or_else(|| panic!("{name}: {all:?}"))
        .clone()
}

/// Makes an object look two hours old, so that `gc` looks at it.
pub fn make_old(path: &Path) {
    let old = SystemTime::now() - Duration::from_hours(2);
    File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
}

/// Stores an old object that no slice has.
pub fn leak(fixture: &Fixture, slice: u64, len: usize) -> PathBuf {
    let folder =
        fixture.bucket().join(format!("volume/chunks/{}/{}", slice / 1_000_000, slice / 1000));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{slice}_0_{len}"));
    fs::write(&path, vec![7; len]).unwrap();
    make_old(&path);
    path
}
