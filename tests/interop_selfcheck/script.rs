//! The script that runs on the volumes, and its variations.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_WRLCK, SEEK_SET, flock};

use super::support::command::run;

/// Runs one of every operation whose result does not depend on timing. Each file is written by one
/// call, since a slow machine could end a slice between two.
pub fn script(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::create_dir_all(at("dir/sub/deep")).unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("dir/small"), "hello").unwrap();
    fs::write(at("dir/large"), vec![7; 100_000]).unwrap();

    // Overwritten in the middle, truncated, and extended again.
    let file = OpenOptions::new().write(true).open(at("dir/large")).unwrap();
    file.write_at(b"patch", 50_000).unwrap();
    file.sync_all().unwrap();
    file.set_len(60_000).unwrap();
    file.set_len(80_000).unwrap();
    drop(file);

    // Two chunks, mostly hole.
    let mut sparse = File::create(at("sparse")).unwrap();
    sparse.seek(SeekFrom::Start((64 << 20) + 10)).unwrap();
    sparse.write_all(b"end").unwrap();
    drop(sparse);

    fs::hard_link(at("dir/small"), at("dir/sub/linked")).unwrap();
    symlink("dir/small", at("short")).unwrap();
    mkfifo(&at("pipe"));
    fs::set_permissions(at("dir/sub"), Permissions::from_mode(0o2750)).unwrap();
    chown(at("dir/large"), Some(1000), Some(2000)).unwrap();
    let past = UNIX_EPOCH + Duration::from_nanos(1_000_000_000_123_456_789);
    let times = fs::FileTimes::new().set_accessed(past).set_modified(past);
    File::open(at("dir/small")).unwrap().set_times(times).unwrap();

    fs::write(at("dir/gone"), "trash me").unwrap();
    fs::remove_file(at("dir/gone")).unwrap();
    fs::create_dir(at("dir/gone-dir")).unwrap();
    fs::remove_dir(at("dir/gone-dir")).unwrap();
    fs::write(at("dir/new"), "moved over").unwrap();
    fs::write(at("dir/old"), "replaced").unwrap();
    fs::rename(at("dir/new"), at("dir/old")).unwrap();
    fs::rename(at("dir/sub/deep"), at("moved")).unwrap();
}

fn mkfifo(path: &Path) {
    let mut command = Command::new("mkfifo");
    command.arg(path);
    run(command, Duration::from_secs(10)).ok();
}

/// Leaves a removed file open and others locked, as a client that dies would.
pub fn hold(root: &Path) -> Vec<File> {
    let file = |name: &str| {
        fs::write(root.join(name), "content").unwrap();
        OpenOptions::new().read(true).write(true).open(root.join(name)).unwrap()
    };
    let open = file("limited/open");
    fs::remove_file(root.join("limited/open")).unwrap();
    let whole = file("limited/flock");
    whole.lock().unwrap();
    let shared = file("limited/flock-shared");
    shared.lock_shared().unwrap();
    let range = file("limited/range");
    lock_range(&range, 10, 20);
    lock_range(&range, 40, 5);
    vec![open, whole, shared, range]
}

/// Takes a POSIX write lock.
fn lock_range(file: &File, start: i64, len: i64) {
    let lock = flock {
        l_type: F_WRLCK.try_into().unwrap(),
        l_whence: SEEK_SET.try_into().unwrap(),
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_SETLK(&lock)).unwrap();
}

/// A variation of the script: what it is, the change, and a word that the difference must contain.
pub type Variation = (&'static str, fn(&Path), &'static str);

pub const VARIATIONS: &[Variation] = &[
    (
        "another mode",
        |root| fs::set_permissions(root.join("empty"), Permissions::from_mode(0o600)).unwrap(),
        "mode",
    ),
    ("another owner", |root| chown(root.join("empty"), Some(7), None).unwrap(), "uid"),
    (
        "one more byte",
        |root| {
            let mut file = OpenOptions::new().append(true).open(root.join("dir/old")).unwrap();
            file.write_all(b"!").unwrap();
        },
        "length",
    ),
    (
        "other bytes over the same range",
        |root| {
            let file = OpenOptions::new().write(true).open(root.join("dir/old")).unwrap();
            file.write_at(b"M", 0).unwrap();
        },
        "slice",
    ),
    (
        "another link",
        |root| fs::hard_link(root.join("dir/small"), root.join("third")).unwrap(),
        "third",
    ),
    (
        "another target",
        |root| {
            fs::remove_file(root.join("short")).unwrap();
            symlink("dir/large", root.join("short")).unwrap();
        },
        "dir/large",
    ),
    ("another name", |root| fs::rename(root.join("moved"), root.join("moved2")).unwrap(), "moved2"),
    (
        "another file in the trash",
        |root| {
            fs::write(root.join("brief"), "").unwrap();
            fs::remove_file(root.join("brief")).unwrap();
        },
        "brief",
    ),
];
