//! Our mount and the Go client's work on one volume at the same time: in the end they agree, and
//! the tools find no errors.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};
use rustix::io::Errno;

use crate::fixture::{KIB, assert_same, bytes, is_virtual, open};
use crate::support::fixture::{Client, Fixture, Mounted};
use crate::support::timeout::within;

const LIMIT: Duration = Duration::from_mins(8);
/// How long both work.
const WORK: Duration = Duration::from_mins(2);

#[test]
fn both_clients_agree_after_random_work_on_redis() {
    within(LIMIT, || work_together(&Fixture::redis()));
}

#[test]
fn both_clients_agree_after_random_work_on_sqlite() {
    within(LIMIT, || work_together(&Fixture::sqlite()));
}

#[test]
fn both_clients_agree_after_random_work_on_tikv() {
    within(LIMIT, || work_together(&Fixture::tikv()));
}

#[test]
fn both_clients_agree_after_random_work_on_tikv_in_several_regions() {
    within(LIMIT, || work_together(&Fixture::split_tikv()));
}

fn work_together(fixture: &Fixture) {
    fixture.format(&["--trash-days", "0"]);
    let (ours, go) = (fixture.mount(&[]), fixture.mount_by(Client::Go, &[]));
    let end = Instant::now() + WORK;
    fs::create_dir(ours.at("shared")).unwrap();
    thread::scope(|scope| {
        let (ours, go) = (&ours, &go);
        // Both at once in the same directories. Only one thread each: when two threads write to one
        // file, the Go client sometimes hangs for minutes in a flush.
        let here = if ours.is_ours() { 3 } else { 1 };
        for seed in 0..here {
            scope.spawn(move || mix(ours.path(), seed, end));
        }
        scope.spawn(move || mix(go.path(), 100, end));
        // Separate names, used through both mounts in turns.
        for seed in 0..2 {
            scope.spawn(move || pass_on([ours, go], seed, end));
        }
    });
    drop((ours, go));
    let (ours, go) = (fixture.mount(&[]), fixture.mount_by(Client::Go, &[]));
    let (seen, theirs) = (tree(&ours), tree(&go));
    assert!(seen.len() > 20, "hardly anything was made: {}", seen.len());
    for (path, found) in &seen {
        assert_eq!(Some(found), theirs.get(path), "{path}");
    }
    assert_eq!(seen.len(), theirs.len());
    drop((ours, go));
    fixture.check_blocks();
}

/// Makes random changes in a tree that others change at the same time. The outcome is unknown, but
/// every operation must complete, and errors must make sense.
fn mix(point: &Path, seed: u64, end: Instant) {
    let mut random = SmallRng::seed_from_u64(seed);
    while Instant::now() < end {
        let kind = if random.random_range(0..3) == 0 { MAYBE_DIRS } else { NEVER_DIRS };
        let (one, two) = (pick(point, &kind, &mut random), pick(point, &kind, &mut random));
        let (at, len) = (random.random_range(0..200 * KIB), random.random_range(1..50 * KIB));
        let outcome = match random.random_range(0..14) {
            0..4 => fs::write(&one, bytes(at, len)),
            4 => fs::File::open(&one).and_then(|file| file.read_at(&mut [0; 4096], at)).map(drop),
            5 => in_place(&one, |file| file.write_all_at(&bytes(at, len), at)),
            6 => in_place(&one, |file| file.set_len(at)),
            7 => in_place(&one, |file| {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(fallocate(file, punch, at, len)?)
            }),
            8 => fs::remove_file(&one),
            9 if kind == MAYBE_DIRS => fs::create_dir(&one).or_else(|_| fs::remove_dir(&two)),
            10 if kind == NEVER_DIRS || one.parent() == two.parent() => {
                let exchange = random.random_range(0..3) == 0;
                let flags = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
                renameat_with(CWD, &one, CWD, &two, flags).map_err(io::Error::from)
            }
            11 => fs::hard_link(&one, &two),
            12 => symlink("target", &one),
            _ => fs::set_permissions(&one, Permissions::from_mode(0o600 + u32::from(len > 9000))),
        };
        if let Err(error) = outcome {
            let errno = Errno::from_io_error(&error).unwrap_or_else(|| panic!("{error}"));
            // A file that another client has removed is gone for those that have it open: as with
            // NFS.
            let sensible = [
                Errno::NOENT,
                Errno::EXIST,
                Errno::ISDIR,
                Errno::NOTDIR,
                Errno::NOTEMPTY,
                Errno::INVAL,
                Errno::PERM,
                Errno::LOOP,
                Errno::STALE,
                Errno::BADF,
                Errno::IO,
            ];
            assert!(sensible.contains(&errno), "{}: {error}", one.display());
        }
    }
}

/// Numbers of names that may be directories. These are never renamed: the Go client caches the
/// parent of each directory and does not notice renames by others. If its cached parents form a
/// cycle, its quota check never ends, and neither does the request.
const MAYBE_DIRS: Range<u32> = 0..8;
const NEVER_DIRS: Range<u32> = 8..25;

fn pick(point: &Path, kind: &Range<u32>, random: &mut SmallRng) -> PathBuf {
    let dir = ["shared", "shared/n3", "shared/n5"][random.random_range(0..3)];
    point.join(dir).join(format!("n{}", random.random_range(kind.clone())))
}

fn in_place(path: &Path, act: impl Fn(&fs::File) -> io::Result<()>) -> io::Result<()> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    act(&file)?;
    file.sync_all()
}

/// Separate files: changes that are closed through either mount are seen through ours.
fn pass_on(mounts: [&Mounted; 2], seed: u64, end: Instant) {
    let mut random = SmallRng::seed_from_u64(1000 + seed);
    let name = format!("own{seed}");
    let mut expected = Vec::new();
    fs::write(mounts[0].at(&name), "").unwrap();
    let mut turn = 0;
    while Instant::now() < end {
        turn += 1;
        let file = open(mounts[turn % 2].at(&name));
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..=expected.len() as u64);
            let part = bytes(random.random(), random.random_range(1..80 * KIB));
            let start = usize::try_from(at).unwrap();
            if random.random_range(0..6) == 0 {
                file.set_len(at).unwrap();
                expected.truncate(start);
            } else {
                file.write_all_at(&part, at).unwrap();
                expected.resize(expected.len().max(start + part.len()), 0);
                expected[start..start + part.len()].copy_from_slice(&part);
            }
        }
        (&file).flush().unwrap();
        drop(file);
        // The Go client sometimes shows the previous content.
        assert_same(&fs::read(mounts[0].at(&name)).unwrap(), &expected);
    }
}

/// Returns every path with everything that both clients must agree on.
fn tree(mount: &Mounted) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![mount.path().to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if is_virtual(entry.file_name().to_str().unwrap()) {
                continue;
            }
            let (path, seen) = (entry.path(), entry.metadata().unwrap());
            let content = match seen.file_type() {
                kind if kind.is_dir() => {
                    left.push(path.clone());
                    String::new()
                }
                kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
                _ => sum(&fs::read(&path).unwrap()),
            };
            let size = if seen.is_dir() { 0 } else { seen.size() };
            let times = (seen.mtime(), seen.mtime_nsec(), seen.ctime(), seen.ctime_nsec());
            let about = (seen.ino(), seen.mode(), seen.nlink(), size, times);
            let name = path.strip_prefix(mount.path()).unwrap().to_str().unwrap().to_owned();
            found.insert(name, format!("{about:?} {content}"));
        }
    }
    found
}

fn sum(content: &[u8]) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("{:x}", hasher.finish())
}
