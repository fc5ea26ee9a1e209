//! What a request through `.control` may name, and what it may do there: no more than a path and the
//! plain system calls would let its caller do.

use std::time::Duration;

use bytes::Bytes;
use jfs::meta::record::FileKind;
use jfs::meta::{AttrSet, Caller, Ino, NodeKind};

use crate::scene::{Choice, End, Reply, Scene, request};
use crate::support::data::name;

const REMOVE: u32 = 1002;
const LEGACY_INFO: u32 = 1003;
const FILL: u32 = 1004;
const INFO: u32 = 1005;
const CLONE: u32 = 1006;
const SUMMARY: u32 = 1007;
const COMPACT: u32 = 1008;

/// Names that are none.
const TRICKS: [&[u8]; 9] =
    [b"..", b".", b"", b"a/../..", b"../theirs", b"/", b"..\0", b"\0", b"../../theirs/f"];

/// A directory that is mounted, and one beside it.
struct Beside {
    scene: Scene,
    mine: Ino,
    theirs: Ino,
    file: Ino,
}

async fn beside() -> Beside {
    let scene = Scene::with(Choice { subdir: "/mine", ..Choice::default() }).await;
    let mine = scene.dir(scene.root, "dir").await;
    scene.file(mine, "f", b"mine").await;
    let theirs = scene.dir(Ino::ROOT, "theirs").await;
    let file = scene.file(theirs, "f", b"theirs").await;
    Beside { scene, mine, theirs, file }
}

impl Beside {
    async fn is_whole(&self) {
        assert!(self.scene.has(Ino::ROOT, "theirs").await, "the other directory is gone");
        assert!(self.scene.has(self.theirs, "f").await, "the other file is gone");
        assert!(self.scene.has(Ino::ROOT, "mine").await, "the mounted directory is gone");
        assert!(self.scene.has(self.scene.root, "dir").await, "a directory is gone");
        assert!(self.scene.has(self.mine, "f").await, "a file is gone");
        assert_eq!(self.scene.meta.entries(self.theirs, false).await.unwrap().len(), 1);
    }

    /// Numbers of nodes that cannot be seen from the mount.
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

fn fill_body(paths: &[u8], action: u8) -> Vec<u8> {
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
async fn no_name_leads_a_removal_out_of_the_mount() {
    let beside = beside().await;
    for flags in [0, 1] {
        for trick in TRICKS {
            for dir in [Ino::ROOT, beside.scene.root, beside.mine] {
                let body = remove_body(dir, trick, flags);
                let reply = beside.scene.ask(REMOVE, &body).await;
                assert_eq!(reply.errno(), 22, "{:?}", trick.escape_ascii().to_string());
            }
        }
        for dir in beside.outside() {
            for at in [&b"f"[..], b"dir", b"theirs", b"mine", b".."] {
                let reply = beside.scene.ask(REMOVE, &remove_body(dir, at, flags)).await;
                assert!(failed(&reply), "{dir}");
            }
        }
    }
    beside.is_whole().await;
}

#[tokio::test]
async fn no_name_leads_a_clone_out_of_the_mount() {
    let beside = beside().await;
    let root = beside.scene.root;
    for trick in TRICKS {
        let reply = beside.scene.ask(CLONE, &clone_body(beside.mine, root, root, trick)).await;
        let expected = if trick.is_empty() { 2 } else { 22 };
        assert_eq!(reply.errno(), expected, "{:?}", trick.escape_ascii().to_string());
    }
    for ino in beside.outside() {
        for (src, src_dir, dst) in
            [(ino, root, root), (beside.mine, ino, root), (beside.mine, root, ino)]
        {
            let reply = beside.scene.ask(CLONE, &clone_body(src, src_dir, dst, b"copy")).await;
            assert!(failed(&reply), "{ino}");
        }
    }
    assert!(!beside.scene.has(root, "copy").await);
    beside.is_whole().await;
}

#[tokio::test]
async fn no_number_leads_a_question_out_of_the_mount() {
    let beside = beside().await;
    for ino in beside.outside() {
        for op in [INFO, SUMMARY, COMPACT] {
            let body = [&ino.0.to_be_bytes()[..], &[0, 4, 0]].concat();
            assert!(failed(&beside.scene.ask(op, &body).await), "{op} of {ino}");
        }
        let reply = beside.scene.ask(LEGACY_INFO, &ino.0.to_be_bytes()).await;
        assert_eq!(reply.errno(), 2, "{ino}");
    }
}

#[tokio::test]
async fn no_path_leads_out_of_the_mount() {
    let beside = beside().await;
    let scene = &beside.scene;
    for (at, target) in [("up", "../theirs"), ("top", "/theirs"), ("loop", "loop")] {
        let (at, target) = (name(at), Bytes::from_static(target.as_bytes()));
        scene.meta.symlink(&Caller::root(), scene.root, &at, target).await.unwrap();
    }
    let by_number = format!("inode:{}", beside.file);
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
        let reply = scene.ask(FILL, &fill_body(path.as_bytes(), 2)).await;
        assert_eq!(reply.data()["FileCount"], 0, "{path}");
    }
    let reply = scene.ask(FILL, &fill_body(b"/dir/../dir/./f", 2)).await;
    assert_eq!(reply.data()["FileCount"], 1);
}

#[tokio::test]
async fn symlinks_through_symlinks_are_followed_a_few_times_in_all() {
    let scene = Scene::new().await;
    // Each leads twice through the one before: without a limit, 2^30 ways.
    scene.dir(Ino::ROOT, "l0").await;
    for level in 1..30 {
        let before = format!("l{}", level - 1);
        let target = Bytes::from(format!("{before}/../{before}"));
        let at = name(&format!("l{level}"));
        scene.meta.symlink(&Caller::root(), Ino::ROOT, &at, target).await.unwrap();
    }
    let reply = scene.ask(FILL, &fill_body(b"/l29", 2)).await;
    assert_eq!(reply.data()["FileCount"], 0);
}

#[tokio::test]
async fn many_bad_paths_cost_neither_memory_nor_time() {
    let scene = Scene::new().await;
    let paths = b"x\n".repeat(20_000);
    let reply = scene.ask(FILL, &fill_body(&paths, 2)).await;
    assert_eq!(reply.data()["FileCount"], 0);
    // A path longer than any that the kernel takes is not even walked.
    let reply = scene.ask(FILL, &fill_body(&b"a/".repeat(1 << 20), 2)).await;
    assert_eq!(reply.data()["FileCount"], 0);
}

#[tokio::test]
async fn who_may_not_search_a_directory_reaches_nothing_below() {
    let scene = Scene::new().await;
    let closed = scene.dir(Ino::ROOT, "closed").await;
    let open = scene.dir(closed, "open").await;
    let file = scene.file(open, "f", b"x").await;
    let set = |mode| AttrSet { mode: Some(mode), ..AttrSet::default() };
    let root = Caller::root();
    for (ino, mode) in [(closed, 0o700), (open, 0o777), (file, 0o666)] {
        scene.meta.setattr(&root, ino, set(mode)).await.unwrap();
    }
    let someone = Caller::user(1000, 1000);
    let denied = async |op, body: Vec<u8>| {
        let reply = scene.ask_as(&someone, op, &body).await;
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
    let reply = scene.ask_as(&someone, FILL, &fill_body(path.as_bytes(), 2)).await;
    assert_eq!(reply.data()["FileCount"], 0);
    assert!(scene.has(open, "f").await);

    // Searching is enough to come to it; what it is made of is for those who may read it.
    scene.meta.setattr(&root, closed, set(0o711)).await.unwrap();
    let body = [&file.0.to_be_bytes()[..], &[0, 0, 0]].concat();
    assert_eq!(scene.ask_as(&someone, INFO, &body).await.data()["Failed"], false);
    scene.meta.setattr(&root, file, set(0o600)).await.unwrap();
    let told = scene.ask_as(&someone, INFO, &body).await;
    assert_eq!(told.data()["Failed"], true);
    assert_eq!(told.data()["Objects"], serde_json::Value::Null);
    denied(COMPACT, [&file.0.to_be_bytes()[..], &[0, 4]].concat()).await;
}

#[tokio::test]
async fn who_may_not_list_a_directory_is_not_told_what_is_in_it() {
    let scene = Scene::new().await;
    let top = scene.dir(Ino::ROOT, "top").await;
    let below = scene.dir(top, "below").await;
    scene.file(below, "f", b"x").await;
    let set = AttrSet { mode: Some(0o711), ..AttrSet::default() };
    scene.meta.setattr(&Caller::root(), below, set).await.unwrap();
    let someone = Caller::user(1000, 1000);
    for ino in [top, below] {
        let body = [&ino.0.to_be_bytes()[..], &[1, 0, 0]].concat();
        for strict in [0, 1] {
            let body = [&body[..10], &[strict]].concat();
            let told = scene.ask_as(&someone, INFO, &body).await;
            assert_eq!(told.data()["Failed"], true, "{ino}");
            assert_eq!(told.data()["Reason"], "permission denied");
            let body = [&ino.0.to_be_bytes()[..], &[3, 10, strict]].concat();
            assert_eq!(scene.ask_as(&someone, SUMMARY, &body).await.data()["Errno"], 13);
        }
    }
    assert_eq!(scene.ask(INFO, &top.0.to_be_bytes()).await.data()["Failed"], false);
}

#[tokio::test]
async fn a_clone_by_another_user_is_that_users_own() {
    let scene = Scene::new().await;
    let (top, place) = (scene.dir(Ino::ROOT, "top").await, scene.dir(Ino::ROOT, "place").await);
    let file = scene.file(top, "f", b"x").await;
    let set = |mode| AttrSet { mode: Some(mode), ..AttrSet::default() };
    scene.meta.setattr(&Caller::root(), file, set(0o4755)).await.unwrap();
    scene.meta.setattr(&Caller::root(), place, set(0o777)).await.unwrap();
    let someone = Caller::user(1000, 1000);
    // With owners and modes kept, as far as one may.
    let body = clone_body(top, Ino::ROOT, place, b"copy");
    assert_eq!(scene.ask_as(&someone, CLONE, &body).await.errno(), 0);
    let (copy, attr) = scene.meta.lookup(&Caller::root(), place, &name("copy")).await.unwrap();
    assert_eq!((attr.uid, attr.gid), (1000, 1000));
    let (_, attr) = scene.meta.lookup(&Caller::root(), copy, &name("f")).await.unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode), (1000, 1000, 0o755));

    let device = NodeKind { kind: FileKind::BlockDevice, rdev: 0x801 };
    let at = name("device");
    scene.meta.mknod(&Caller::root(), top, &at, device, 0o666, 0).await.unwrap();
    let body = clone_body(top, Ino::ROOT, place, b"second");
    assert_eq!(scene.ask_as(&someone, CLONE, &body).await.errno(), 1);
    assert!(!scene.has(place, "second").await);
}

#[tokio::test]
async fn lengths_that_lie_are_refused_and_the_handle_lives() {
    let scene = Scene::new().await;
    let handle = scene.open(".control");
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
async fn a_deep_tree_is_summed_filled_and_removed_by_request() {
    let scene = Scene::with(Choice { subdir: "/mine", ..Choice::default() }).await;
    let top = scene.dir(scene.root, "top").await;
    let mut dir = top;
    for _ in 0..1500 {
        dir = scene.dir(dir, "d").await;
    }
    let file = scene.file(dir, "f", b"x").await;
    let told = scene.ask(INFO, &file.0.to_be_bytes()).await;
    let path = format!("/top{}/f", "/d".repeat(1500));
    assert_eq!(told.data()["Paths"][0], path);
    let body = [&top.0.to_be_bytes()[..], &[255, 255, 1]].concat();
    assert_eq!(scene.ask(SUMMARY, &body).await.data()["Tree"]["Dirs"], 1501);
    assert_eq!(scene.ask(FILL, &fill_body(b"/top", 2)).await.data()["FileCount"], 1);
    let body = [&top.0.to_be_bytes()[..], &[0, 4]].concat();
    assert_eq!(scene.ask(COMPACT, &body).await.errno(), 0);
    let body = clone_body(top, scene.root, scene.root, b"copy");
    assert_eq!(scene.ask(CLONE, &body).await.errno(), 0);
    for at in ["top", "copy"] {
        let body = remove_body(Ino::ROOT, at.as_bytes(), 1);
        assert_eq!(scene.ask(REMOVE, &body).await.errno(), 0);
    }
    assert!(scene.meta.entries(scene.root, false).await.unwrap().is_empty());
}
