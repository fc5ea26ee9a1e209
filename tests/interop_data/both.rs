//! Both clients on one volume at the same time.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::edits::{Case, Edit, cases};
use super::ours::Ours;
use super::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use super::shape::{Shape, shapes};
use super::support::command::{poll, run};
use super::support::juicefs::{Volume, command};
use super::support::redis::RedisServer;
use super::support::timeout::within;

/// For the volumes of one test, on a busy machine.
const LIMIT: Duration = Duration::from_mins(8);
/// For one command.
const COMMAND: Duration = Duration::from_mins(1);

macro_rules! on_shapes {
    ($($name:ident: $compression:literal, $cipher:expr;)*) => {
        $(#[test]
        fn $name() {
            within(LIMIT, || {
                for (turn, shape) in shapes($compression, $cipher).into_iter().enumerate() {
                    each_reads_what_the_other_wrote(shape, turn);
                }
            });
        })*
    };
}

on_shapes! {
    plain_blocks: "none", None;
    plain_blocks_with_aes: "none", Some("aes256gcm-rsa");
    plain_blocks_with_chacha: "none", Some("chacha20-rsa");
    lz4_blocks: "lz4", None;
    lz4_blocks_with_aes: "lz4", Some("aes256gcm-rsa");
    lz4_blocks_with_chacha: "lz4", Some("chacha20-rsa");
    zstd_blocks: "zstd", None;
    zstd_blocks_with_aes: "zstd", Some("aes256gcm-rsa");
    zstd_blocks_with_chacha: "zstd", Some("chacha20-rsa");
}

/// Formatted by either, mounted by the Go client while ours has it open.
fn each_reads_what_the_other_wrote(shape: Shape, turn: usize) {
    let folder = TempDir::new().unwrap();
    let url = match turn % 2 {
        0 => RedisServer::shared().fresh_url(),
        _ => format!("sqlite3://{}/meta.db", folder.path().display()),
    };
    format(&url, shape, folder.path(), turn);
    let go = Volume::existing(&url);
    let runtime = Runtime::new().unwrap();
    let ours = runtime.block_on(Ours::open(&url));
    let mount = go.mount(&[]);
    let files = cases(shape.block);
    for case in &files {
        make(&mount.path().join(format!("theirs-{case:?}")), case);
        runtime.block_on(ours.make(&format!("ours-{case:?}"), case));
    }
    for case in &files {
        let expected = case.expected();
        let theirs = runtime.block_on(ours.read(&format!("theirs-{case:?}")));
        same(&theirs, &expected, &format!("{shape:?}: their {case:?} by us"));
        let own = runtime.block_on(ours.read(&format!("ours-{case:?}")));
        same(&own, &expected, &format!("{shape:?}: our {case:?} by us"));
        let path = mount.path().join(format!("ours-{case:?}"));
        let theirs = read_by_go(&path, &expected, shape);
        same(&theirs, &expected, &format!("{shape:?}: our {case:?} by them"));
    }
    for case in files.iter().skip(1).step_by(2) {
        runtime.block_on(ours.remove(&format!("theirs-{case:?}")));
        fs::remove_file(mount.path().join(format!("ours-{case:?}"))).unwrap();
    }
    // Both may be compacting what was just read; a client that ends in the middle leaves objects.
    runtime.block_on(ours.idle());
    poll(COMMAND, || leftovers(&url).is_none());
    mount.unmount();
    runtime.block_on(ours.close());
    go.fsck();
    assert_eq!(leftovers(&url), None, "{shape:?}");
}

/// What `gc` finds that should not be there, young objects included.
fn leftovers(url: &str) -> Option<String> {
    let mut gc = command(&["gc", url]);
    gc.env("JFS_GC_SKIPPEDTIME", "0");
    let gc = run(gc, COMMAND).ok();
    let said = format!("{}{}", gc.stdout, gc.stderr);
    let nothing = ["0 pending delete (", " 0 leaked (", " 0 delslices (", " 0 delfiles ("];
    (!nothing.iter().all(|part| said.contains(part))).then_some(said)
}

/// What the Go client reads of our file. On a volume with zstd, some bytes right behind a fragment are
/// wrong now and then, also in files of its own; another look is right. What we wrote wrong would be
/// wrong at every look.
fn read_by_go(path: &Path, expected: &[u8], shape: Shape) -> Vec<u8> {
    let looks = if shape.compression == "zstd" { 20 } else { 1 };
    let mut found = Vec::new();
    for _ in 0..looks {
        let mut options = OpenOptions::new();
        // Past the page cache, which keeps what was wrong.
        let mut file = options.read(true).custom_flags(OFlag::O_DIRECT.bits()).open(path).unwrap();
        found.clear();
        file.read_to_end(&mut found).unwrap();
        if found == expected {
            break;
        }
    }
    found
}

#[track_caller]
fn same(found: &[u8], expected: &[u8], what: &str) {
    if found == expected {
        return;
    }
    let (length, wanted) = (found.len(), expected.len());
    let differ: Vec<usize> =
        (0..length.min(wanted)).filter(|at| found[*at] != expected[*at]).collect();
    let (first, last, count) = (differ.first(), differ.last(), differ.len());
    panic!("{what}: {length} bytes of {wanted}, {count} differ from {first:?} to {last:?}");
}

/// The Go client formats every other volume.
fn format(url: &str, shape: Shape, folder: &Path, turn: usize) {
    let mut program = if turn < 2 { command(&[]) } else { jfs_mount() };
    program.args(["format", url, "volume"]);
    // Names that begin with a hash are made for stores like S3.
    if shape.hash_prefix {
        static SERVER: OnceLock<S3Server> = OnceLock::new();
        let server = SERVER.get_or_init(S3Server::start);
        let name = format!("b{}", uuid::Uuid::new_v4().simple());
        let bucket = if shape.shards > 1 {
            (0..shape.shards).for_each(|shard| drop(server.bucket(&format!("{name}-{shard}"))));
            server.address(&format!("{name}-%d"))
        } else {
            server.bucket(&name)
        };
        program.args(["--storage", "s3", "--bucket", &bucket, "--access-key", ACCESS_KEY]);
        program.env("SECRET_KEY", SECRET_KEY);
    } else {
        let shard = if shape.shards > 1 { "-%d" } else { "" };
        let bucket = format!("{}/bucket{shard}", folder.display());
        program.args(["--storage", "file", "--bucket", &bucket]);
    }
    program.args(shape.options(&key()));
    run(program, COMMAND).ok();
}

fn jfs_mount() -> std::process::Command {
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_jfs-mount"));
    program.env("AWS_EC2_METADATA_DISABLED", "true");
    program
}

fn key() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/object/wrappers/encrypt/golden/pkcs1.pem")
}

/// Makes a file by its edits, through a mount.
fn make(path: &Path, case: &Case) {
    let file = File::create(path).unwrap();
    for (index, edit) in case.edits.iter().enumerate() {
        match *edit {
            Edit::Write { at, .. } => file.write_all_at(&case.bytes(index), at).unwrap(),
            Edit::Resize(length) => file.set_len(length).unwrap(),
            Edit::Punch { at, len } => {
                let mode =
                    FallocateFlags::FALLOC_FL_KEEP_SIZE | FallocateFlags::FALLOC_FL_PUNCH_HOLE;
                fallocate(&file, mode, at.cast_signed(), len.cast_signed()).unwrap();
            }
            Edit::Sync => file.sync_all().unwrap(),
        }
    }
    file.sync_all().unwrap();
}
