//! Which nodes a request through `.control` may name, and what it may do with them: no more than
//! the caller could do with paths and plain system calls.

use std::time::Duration;

use bytes::Bytes;
use jfs::meta::AttrSet;
use jfs::meta::record::FileKind;
use jfs::meta::{Caller, Ino, NodeKind};

use crate::fixture::{End, Fixture, FixtureOptions, Reply, request};
use crate::support::data::name;

const REMOVE: u32 = 1002;
const LEGACY_INFO: u32 = 1003;
const FILL: u32 = 1004;
const INFO: u32 = 1005;
const CLONE: u32 = 1006;
const SUMMARY: u32 = 1007;
const COMPACT: u32 = 1008;

/// Invalid names.
const TRICKS: [&[u8]; 9] =
    [b"..", b".", b"", b"a/../..", b"../theirs", b"/", b"..\0", b"\0", b"../../theirs/f"];

/// A mounted directory, and one beside it.
struct TwoDirs {
    fixture: Fixture,
    mine: Ino,
    theirs: Ino,
    file: Ino,
}

async fn two_dirs() -> TwoDirs {
    let fixture =
        Fixture::with(FixtureOptions { subdir: "/mine", ..FixtureOptions::default() }).await;
    let mine = fixture.dir(fixture.root, "dir").await;
    fixture.file(mine, "f", b"mine").await;
    let theirs = fixture.dir(Ino::ROOT, "theirs").await;
    let file = fixture.file(theirs, "f", b"theirs").await;
    TwoDirs { fixture, mine, theirs, file }
}

impl TwoDirs {
    async fn is_whole(&self) {
        assert!(self.fixture.has(Ino::ROOT, "theirs").await, "the other directory is gone");
        assert!(self.fixture.has(self.theirs, "f").await, "the other file is gone");
        assert!(self.fixture.has(Ino::ROOT, "mine").await, "the mounted directory is gone");
        assert!(self.fixture.has(self.fixture.root, "dir").await, "a directory is gone");
        assert!(self.fixture.has(self.mine, "f").await, "a file is gone");
        assert_eq!(self.fixture.meta.entries(self.theirs, false).await.unwrap().len(), 1);
    }

    /// Inode numbers outside the mount.
    fn outside(&self) -> [Ino; 8] {
        [
            self.theirs,
            self.file,
            Ino(0),
            Ino::TRASH,
            Ino(Ino::TRASH.0 + 1),
            Ino(u64::MAX),
            Ino(999_999),
            Ino(0x7FFF_FFFF_0000_0002),
        ]
    }
}

fn remove_body(dir: Ino, name: &[u8], flags: u8) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [&dir.0.to_be_bytes()[..], &[length], name, &[flags, 4]].concat()
}

fn clone_body(src: Ino, src_dir: Ino, dst_dir: Ino, name: &[u8]) -> Vec<u8> {
    let inos = [src, src_dir, dst_dir].map(|ino| ino.0.to_be_bytes()).concat();
    let length = u8::try_from(name.len()).unwrap();
    [&inos[..], &[length], name, &[0, 0o22, 2, 4]].concat()
}

fn warmup_body(paths: &[u8], action: u8) -> Vec<u8> {
    let length = u32::try_from(paths.len()).unwrap().to_be_bytes();
    [&length[..], paths, &[0, 4, 0, action]].concat()
}

fn failed(reply: &Reply) -> bool {
    match &reply.end {
        End::Errno(errno) => *errno != 0,
        End::Data(data) => data["Failed"] == true || data["Errno"] != 0,
    }
}

#[tokio::test]
async fn a_removal_cannot_leave_the_mount_by_name() {
    let two_dirs = two_dirs().await;
    for flags in [0, 1] {
        for trick in TRICKS {
            for dir in [Ino::ROOT, two_dirs.fixture.root, two_dirs.mine] {
                let body = remove_body(dir, trick, flags);
                let reply = two_dirs.fixture.ask(REMOVE, &body).await;
                assert_eq!(reply.errno(), 22, "{:?}", trick.escape_ascii().to_string());
            }
        }
        for dir in two_dirs.outside() {
            for at in [&b"f"[..], b"dir", b"theirs", b"mine", b".."] {
                let reply = two_dirs.fixture.ask(REMOVE, &remove_body(dir, at, flags)).await;
                assert!(failed(&reply), "{dir}");
            }
        }
    }
    two_dirs.is_whole().await;
}

#[tokio::test]
async fn a_clone_cannot_leave_the_mount_by_name() {
    let two_dirs = two_dirs().await;
    let root = two_dirs.fixture.root;
    for trick in TRICKS {
        let reply =
            two_dirs.fixture.ask(CLONE, &clone_body(two_dirs.mine, root, root, trick)).await;
        let expected = if trick.is_empty() { 2 } else { 22 };
        assert_eq!(reply.errno(), expected, "{:?}", trick.escape_ascii().to_string());
    }
    for ino in two_dirs.outside() {
        for (src, src_dir, dst) in
            [(ino, root, root), (two_dirs.mine, ino, root), (two_dirs.mine, root, ino)]
        {
            let reply = two_dirs.fixture.ask(CLONE, &clone_body(src, src_dir, dst, b"copy")).await;
            assert!(failed(&reply), "{ino}");
        }
    }
    assert!(!two_dirs.fixture.has(root, "copy").await);
    two_dirs.is_whole().await;
}

#[tokio::test]
async fn an_info_cannot_leave_the_mount_by_number() {
    let two_dirs = two_dirs().await;
    for ino in two_dirs.outside() {
        for op in [INFO, SUMMARY, COMPACT] {
            let body = [&ino.0.to_be_bytes()[..], &[0, 4, 0]].concat();
            assert!(failed(&two_dirs.fixture.ask(op, &body).await), "{op} of {ino}");
        }
        let reply = two_dirs.fixture.ask(LEGACY_INFO, &ino.0.to_be_bytes()).await;
        assert_eq!(reply.errno(), 2, "{ino}");
    }
}

#[tokio::test]
async fn a_warmup_cannot_leave_the_mount_by_path() {
    let two_dirs = two_dirs().await;
    let fixture = &two_dirs.fixture;
    for (at, target) in [("up", "../theirs"), ("top", "/theirs"), ("loop", "loop")] {
        let (at, target) = (name(at), Bytes::from_static(target.as_bytes()));
        fixture.meta.symlink(&Caller::root(), fixture.root, &at, target).await.unwrap();
    }
    let by_number = format!("inode:{}", two_dirs.file);
    for path in [
        "/../theirs",
        "../../theirs/f",
        "/dir/../../theirs",
        "/up",
        "/up/f",
        "/top/f",
        "/loop",
        &by_number,
    ] {
        let reply = fixture.ask(FILL, &warmup_body(path.as_bytes(), 2)).await;
        assert_eq!(reply.data()["FileCount"], 0, "{path}");
    }
    let reply = fixture.ask(FILL, &warmup_body(b"/dir/../dir/./f", 2)).await;
    assert_eq!(reply.data()["FileCount"], 1);
}

#[tokio::test]
async fn nested_symlinks_are_limited_in_total() {
    let fixture = Fixture::new().await;
    // Each link passes twice through the one before: without a limit, 2^30 steps.
    fixture.dir(Ino::ROOT, "l0").await;
    for level in 1..30 {
        let before = format!("l{}", level - 1);
        let target = Bytes::from(format!("{before}/../{before}"));
        let at = name(&format!("l{level}"));
        fixture.meta.symlink(&Caller::root(), Ino::ROOT, &at, target).await.unwrap();
    }
    let reply = fixture.ask(FILL, &warmup_body(b"/l29", 2)).await;
    assert_eq!(reply.data()["FileCount"], 0);
}

#[tokio::test]
async fn many_bad_paths_cost_neither_memory_nor_time() {
    let fixture = Fixture::new().await;
    let paths = b"x\n".repeat(20_000);
    let reply = fixture.ask(FILL, &warmup_body(&paths, 2)).await;
    assert_eq!(reply.data()["FileCount"], 0);
    // A path longer than the kernel accepts is not even resolved.
    let reply = fixture.ask(FILL, &warmup_body(&b"a/".repeat(1 << 20), 2)).await;
    assert_eq!(reply.data()["FileCount"], 0);
}

#[tokio::test]
async fn without_search_permission_nothing_below_is_reached() {
    let fixture = Fixture::new().await;
    let closed = fixture.dir(Ino::ROOT, "closed").await;
    let open = fixture.dir(closed, "open").await;
    let file = fixture.file(open, "f", b"x").await;
    let set = |mode| AttrSet { mode: Some(mode), ..AttrSet::default() };
    let root = Caller::root();
    for (ino, mode) in [(closed, 0o700), (open, 0o777), (file, 0o666)] {
        fixture.meta.setattr(&root, ino, set(mode)).await.unwrap();
    }
    let someone = Caller::user(1000, 1000);
    let denied = async |op, body: Vec<u8>| {
        let reply = fixture.ask_as(&someone, op, &body).await;
        assert_eq!(reply.end, End::Errno(13), "{op}");
    };
    for ino in [open, file] {
        for op in [INFO, SUMMARY, COMPACT] {
            denied(op, [&ino.0.to_be_bytes()[..], &[0, 4, 0]].concat()).await;
        }
    }
    denied(REMOVE, remove_body(open, b"f", 0)).await;
    denied(CLONE, clone_body(file, open, Ino::ROOT, b"copy")).await;
    denied(CLONE, clone_body(open, closed, open, b"copy")).await;
    let path = format!("inode:{file}");
    let reply = fixture.ask_as(&someone, FILL, &warmup_body(path.as_bytes(), 2)).await;
    assert_eq!(reply.data()["FileCount"], 0);
    assert!(fixture.has(open, "f").await);

    // Search permission is enough to reach a file; its objects are only for callers that may read
    // it.
    fixture.meta.setattr(&root, closed, set(0o711)).await.unwrap();
    let body = [&file.0.to_be_bytes()[..], &[0, 0, 0]].concat();
    assert_eq!(fixture.ask_as(&someone, INFO, &body).await.data()["Failed"], false);
    fixture.meta.setattr(&root, file, set(0o600)).await.unwrap();
    let info = fixture.ask_as(&someone, INFO, &body).await;
    assert_eq!(info.data()["Failed"], true);
    assert_eq!(info.data()["Objects"], serde_json::Value::Null);
    denied(COMPACT, [&file.0.to_be_bytes()[..], &[0, 4]].concat()).await;
}

#[tokio::test]
async fn without_read_permission_a_directory_is_not_listed() {
    let fixture = Fixture::new().await;
    let top = fixture.dir(Ino::ROOT, "top").await;
    let below = fixture.dir(top, "below").await;
    fixture.file(below, "f", b"x").await;
    let set = AttrSet { mode: Some(0o711), ..AttrSet::default() };
    fixture.meta.setattr(&Caller::root(), below, set).await.unwrap();
    let someone = Caller::user(1000, 1000);
    for ino in [top, below] {
        let body = [&ino.0.to_be_bytes()[..], &[1, 0, 0]].concat();
        for strict in [0, 1] {
            let body = [&body[..10], &[strict]].concat();
            let info = fixture.ask_as(&someone, INFO, &body).await;
            assert_eq!(info.data()["Failed"], true, "{ino}");
            assert_eq!(info.data()["Reason"], "permission denied");
            let body = [&ino.0.to_be_bytes()[..], &[3, 10, strict]].concat();
            assert_eq!(fixture.ask_as(&someone, SUMMARY, &body).await.data()["Errno"], 13);
        }
    }
    assert_eq!(fixture.ask(INFO, &top.0.to_be_bytes()).await.data()["Failed"], false);
}

#[tokio::test]
async fn a_clone_by_another_user_belongs_to_that_user() {
    let fixture = Fixture::new().await;
    let (top, place) = (fixture.dir(Ino::ROOT, "top").await, fixture.dir(Ino::ROOT, "place").await);
    let file = fixture.file(top, "f", b"x").await;
    let set = |mode| AttrSet { mode: Some(mode), ..AttrSet::default() };
    fixture.meta.setattr(&Caller::root(), file, set(0o4755)).await.unwrap();
    fixture.meta.setattr(&Caller::root(), place, set(0o777)).await.unwrap();
    let someone = Caller::user(1000, 1000);
    // Keeps owners and modes, as far as permitted.
    let body = clone_body(top, Ino::ROOT, place, b"copy");
    assert_eq!(fixture.ask_as(&someone, CLONE, &body).await.errno(), 0);
    let (copy, attr) = fixture.meta.lookup(&Caller::root(), place, &name("copy")).await.unwrap();
    assert_eq!((attr.uid, attr.gid), (1000, 1000));
    let (_, attr) = fixture.meta.lookup(&Caller::root(), copy, &name("f")).await.unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode), (1000, 1000, 0o755));

    let device = NodeKind { kind: FileKind::BlockDevice, rdev: 0x801 };
    let at = name("device");
    fixture.meta.mknod(&Caller::root(), top, &at, device, 0o666, 0).await.unwrap();
    let body = clone_body(top, Ino::ROOT, place, b"second");
    assert_eq!(fixture.ask_as(&someone, CLONE, &body).await.errno(), 1);
    assert!(!fixture.has(place, "second").await);
}

#[tokio::test]
async fn wrong_lengths_are_refused_and_the_handle_stays_usable() {
    let fixture = Fixture::new().await;
    let handle = fixture.open(".control");
    let huge = [&FILL.to_be_bytes()[..], &u32::MAX.to_be_bytes()].concat();
    assert!(handle.write(0, &huge).is_err());
    let mut off = 0;
    for (op, body) in [
        (REMOVE, &b"\0\0\0\0\0\0\0\x01\xffshort"[..]),
        (FILL, b"\xff\xff\xff\xff/a\0\x01\0"),
        (FILL, b"\x7f\xff\xff\xff"),
        (CLONE, b"\0\0\0\0\0\0\0\x01\0\0"),
        (INFO, b""),
        (COMPACT, b"\0\0\0\0\0\0\0\x01"),
        (0, b""),
        (u32::MAX, b"whatever"),
    ] {
        let sent = request(op, body);
        handle.write(0, &sent).unwrap();
        off += sent.len() as u64;
        let end = async {
            loop {
                let bytes = handle.read(off, 1).await.unwrap();
                if !bytes.is_empty() {
                    return bytes[0];
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert_eq!(tokio::time::timeout(Duration::from_secs(30), end).await.unwrap(), 22, "{op}");
        off += 1;
    }
}

#[tokio::test]
async fn a_deep_tree_is_summed_up_warmed_and_removed() {
    let fixture =
        Fixture::with(FixtureOptions { subdir: "/mine", ..FixtureOptions::default() }).await;
    let top = fixture.dir(fixture.root, "top").await;
    let mut dir = top;
    for _ in 0..1500 {
        dir = fixture.dir(dir, "d").await;
    }
    let file = fixture.file(dir, "f", b"x").await;
    let info = fixture.ask(INFO, &file.0.to_be_bytes()).await;
    let path = format!("/top{}/f", "/d".repeat(1500));
    assert_eq!(info.data()["Paths"][0], path);
    let body = [&top.0.to_be_bytes()[..], &[255, 255, 1]].concat();
    assert_eq!(fixture.ask(SUMMARY, &body).await.data()["Tree"]["Dirs"], 1501);
    assert_eq!(fixture.ask(FILL, &warmup_body(b"/top", 2)).await.data()["FileCount"], 1);
    let body = [&top.0.to_be_bytes()[..], &[0, 4]].concat();
    assert_eq!(fixture.ask(COMPACT, &body).await.errno(), 0);
    let body = clone_body(top, fixture.root, fixture.root, b"copy");
    assert_eq!(fixture.ask(CLONE, &body).await.errno(), 0);
    for at in ["top", "copy"] {
        let body = remove_body(Ino::ROOT, at.as_bytes(), 1);
        assert_eq!(fixture.ask(REMOVE, &body).await.errno(), 0);
    }
    assert!(fixture.meta.entries(fixture.root, false).await.unwrap().is_empty());
}
