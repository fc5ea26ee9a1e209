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
use super::our_client::OurClient;
use super::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use super::support::command::{poll, run};
use super::support::juicefs::{Volume, command};
use super::support::redis::RedisServer;
use super::support::timeout::within;
use super::volume_format::{VolumeFormat, formats_with};

/// Time limit of one test, on a busy machine.
const LIMIT: Duration = Duration::from_mins(8);
/// Time limit of one command.
const COMMAND_LIMIT: Duration = Duration::from_mins(1);

macro_rules! on_formats {
    ($($name:ident: $compression:literal, $cipher:expr;)*) => {
        $(#[test]
        fn $name() {
            within(LIMIT, || {
                for (turn, format) in formats_with($compression, $cipher).into_iter().enumerate() {
                    each_reads_what_the_other_wrote(format, turn);
                }
            });
        })*
    };
}

on_formats! {
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

/// Runs one volume: formatted by either client, mounted by the Go client while ours has it open.
fn each_reads_what_the_other_wrote(format: VolumeFormat, turn: usize) {
    let folder = TempDir::new().unwrap();
    let url = match turn % 2 {
        0 => RedisServer::shared().fresh_url(),
        _ => format!("sqlite3://{}/meta.db", folder.path().display()),
    };
    format_volume(&url, format, folder.path(), turn);
    let go = Volume::existing(&url);
    let runtime = Runtime::new().unwrap();
    let ours = runtime.block_on(OurClient::open(&url));
    let mount = go.mount(&[]);
    let files = cases(format.block);
    for case in &files {
        write_file(&mount.path().join(format!("theirs-{case:?}")), case);
        runtime.block_on(ours.write_file(&format!("ours-{case:?}"), case));
    }
    for case in &files {
        let expected = case.expected();
        let theirs = runtime.block_on(ours.read(&format!("theirs-{case:?}")));
        assert_same_bytes(&theirs, &expected, &format!("{format:?}: their {case:?} by us"));
        let own = runtime.block_on(ours.read(&format!("ours-{case:?}")));
        assert_same_bytes(&own, &expected, &format!("{format:?}: our {case:?} by us"));
        let path = mount.path().join(format!("ours-{case:?}"));
        let theirs = read_by_go(&path, &expected, format);
        assert_same_bytes(&theirs, &expected, &format!("{format:?}: our {case:?} by them"));
    }
    for case in files.iter().skip(1).step_by(2) {
        runtime.block_on(ours.remove(&format!("theirs-{case:?}")));
        fs::remove_file(mount.path().join(format!("ours-{case:?}"))).unwrap();
    }
    // Both may be compacting what was just read; a client that stops in the middle leaves objects.
    runtime.block_on(ours.idle());
    poll(COMMAND_LIMIT, || leftovers(&url).is_none());
    mount.unmount();
    runtime.block_on(ours.close());
    go.fsck();
    assert_eq!(leftovers(&url), None, "{format:?}");
}

/// Returns the output of `gc` if it finds leftovers, young objects included.
fn leftovers(url: &str) -> Option<String> {
    let mut gc = command(&["gc", url]);
    gc.env("JFS_GC_SKIPPEDTIME", "0");
    let gc = run(gc, COMMAND_LIMIT).ok();
    let output = format!("{}{}", gc.stdout, gc.stderr);
    let nothing = ["0 pending delete (", " 0 leaked (", " 0 delslices (", " 0 delfiles ("];
    (!nothing.iter().all(|part| output.contains(part))).then_some(output)
}

/// Reads our file with the Go client. With zstd it sometimes returns wrong bytes right after a fragment,
/// also in its own files, and the right ones when it reads again. An error of ours would be there at
/// every attempt.
fn read_by_go(path: &Path, expected: &[u8], format: VolumeFormat) -> Vec<u8> {
    let attempts = if format.compression == "zstd" { 20 } else { 1 };
    let mut found = Vec::new();
    for _ in 0..attempts {
        let mut options = OpenOptions::new();
        // O_DIRECT, since the page cache would keep the wrong bytes.
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
fn assert_same_bytes(found: &[u8], expected: &[u8], what: &str) {
    if found == expected {
        return;
    }
    let (length, wanted) = (found.len(), expected.len());
    let differ: Vec<usize> =
        (0..length.min(wanted)).filter(|at| found[*at] != expected[*at]).collect();
    let (first, last, count) = (differ.first(), differ.last(), differ.len());
    panic!("{what}: {length} bytes of {wanted}, {count} differ from {first:?} to {last:?}");
}

/// Formats the volume: half of the formats with the Go client, half with ours.
fn format_volume(url: &str, format: VolumeFormat, folder: &Path, turn: usize) {
    let mut program = if turn < 2 { command(&[]) } else { jfs_mount() };
    program.args(["format", url, "volume"]);
    // Hashed prefixes are meant for stores like S3.
    if format.hash_prefix {
        static SERVER: OnceLock<S3Server> = OnceLock::new();
        let server = SERVER.get_or_init(S3Server::start);
        let name = format!("b{}", uuid::Uuid::new_v4().simple());
        let bucket = if format.shards > 1 {
            (0..format.shards).for_each(|shard| drop(server.bucket(&format!("{name}-{shard}"))));
            server.address(&format!("{name}-%d"))
        } else {
            server.bucket(&name)
        };
        program.args(["--storage", "s3", "--bucket", &bucket, "--access-key", ACCESS_KEY]);
        program.env("SECRET_KEY", SECRET_KEY);
    } else {
        let shard = if format.shards > 1 { "-%d" } else { "" };
        let bucket = format!("{}/bucket{shard}", folder.display());
        program.args(["--storage", "file", "--bucket", &bucket]);
    }
    program.args(format.options(&key()));
    run(program, COMMAND_LIMIT).ok();
}

fn jfs_mount() -> std::process::Command {
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_jfs-mount"));
    program.env("AWS_EC2_METADATA_DISABLED", "true");
    program
}

fn key() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/object/wrappers/encrypt/golden/pkcs1.pem")
}

/// Applies the edits of a case to a file on a mount.
fn write_file(path: &Path, case: &Case) {
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
