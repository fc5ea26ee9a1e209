//! Root in the pod of one volume cannot affect another volume of the same file system through
//! `.control`, and other users in the pod can do no more than by system calls.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use crate::csi::{Node, Publication};
use crate::support::timeout::{MOUNTED, within};

const REMOVE: u32 = 1002;
const LEGACY_INFO: u32 = 1003;
const FILL: u32 = 1004;
const INFO: u32 = 1005;
const CLONE: u32 = 1006;
const SUMMARY: u32 = 1007;
const COMPACT: u32 = 1008;

/// Two volumes of one file system, each with a file in a directory.
struct Tenants {
    node: Node,
    mine: Publication,
    theirs: Publication,
}

impl Tenants {
    fn new() -> Self {
        let node = Node::start();
        let (mine, theirs) =
            (node.publication("pvc-1", "mine"), node.publication("pvc-2", "theirs"));
        for pv in [&mine, &theirs] {
            node.publish(pv).unwrap();
            fs::create_dir(pv.target.join("dir")).unwrap();
            fs::write(pv.target.join("dir/file"), "bytes of a file").unwrap();
        }
        Self { node, mine, theirs }
    }

    #[track_caller]
    fn assert_intact(&self) {
        for pv in [&self.mine, &self.theirs] {
            let read = fs::read_to_string(pv.target.join("dir/file"));
            assert_eq!(read.unwrap(), "bytes of a file", "{}", self.node.log());
            let names = fs::read_dir(&pv.target).unwrap().map(|entry| entry.unwrap().file_name());
            let own = names.filter(|name| !name.to_string_lossy().starts_with('.')).count();
            assert_eq!(own, 1);
        }
    }
}

/// Sends a request through `.control` of a mount, and returns the response after the progress
/// frames.
fn call(mount: &Path, op: u32, body: &[u8]) -> Vec<u8> {
    let dir = File::open(mount).unwrap();
    call_in(&dir, op, body)
}

/// Repeats a request that was interrupted: a program that another test starts inherits the handle
/// until it calls exec, and closing that copy interrupts the request.
fn call_in(dir: &File, op: u32, body: &[u8]) -> Vec<u8> {
    const EINTR: [u8; 1] = [4];
    loop {
        let response = call_once(dir, op, body);
        // The reply to an info request has the error in its JSON.
        let is_interrupted_info = response.windows(11).any(|part| part == b"interrupted");
        if response != EINTR && !is_interrupted_info {
            return response;
        }
    }
}

fn call_once(dir: &File, op: u32, body: &[u8]) -> Vec<u8> {
    let control = openat(dir.as_fd(), ".control", OFlag::O_RDWR, Mode::empty()).unwrap();
    let control = File::from(control);
    let length = u32::try_from(body.len()).unwrap();
    let request = [&op.to_be_bytes()[..], &length.to_be_bytes(), body].concat();
    assert_eq!(control.write_at(&request, 0).unwrap(), request.len());
    let (mut off, mut response) = (request.len() as u64, Vec::new());
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mut bytes = [0; 4096];
        let count = control.read_at(&mut bytes, off).unwrap();
        off += count as u64;
        response.extend_from_slice(&bytes[..count]);
        while response.first() == Some(&0xFE) && response.len() >= 17 {
            response.drain(..17);
        }
        if !response.is_empty() && response[0] != 0xFE && count == 0 {
            return response;
        }
        assert!(Instant::now() < deadline, "no response to {op}");
        if count == 0 {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn remove(dir: u64, name: &[u8], skip_trash: u8) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [&dir.to_be_bytes()[..], &[length], name, &[skip_trash, 8]].concat()
}

fn clone(src: u64, src_dir: u64, dst: u64, name: &[u8]) -> Vec<u8> {
    let numbers = [src, src_dir, dst].map(u64::to_be_bytes).concat();
    let length = u8::try_from(name.len()).unwrap();
    [&numbers[..], &[length], name, &[0, 0, 2, 4]].concat()
}

fn fill(path: &str) -> Vec<u8> {
    let length = u32::try_from(path.len()).unwrap().to_be_bytes();
    [&length[..], path.as_bytes(), &[0, 4, 0, 2]].concat()
}

fn ino(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn no_name_and_no_inode_leads_root_of_one_volume_to_another() {
    within(MOUNTED, || {
        let tenants = Tenants::new();
        let (mine, theirs) = (&tenants.mine.target, &tenants.theirs.target);
        let (own, other) = (ino(&mine.join("dir")), ino(&theirs.join("dir")));
        let file = ino(&theirs.join("dir/file"));
        let refused = |op, body: &[u8]| {
            let response = call(mine, op, body);
            assert!(response[0] != 0 && response[0] != 0xFF, "{op} {body:?}: {response:?}");
        };
        let tricks: [&[u8]; 8] =
            [b"..", b".", b"", b"a/../..", b"../pvc-2", b"/", b"..\0", b"../../pvc-2/dir"];
        for name in tricks {
            for skip_trash in [0, 1] {
                refused(REMOVE, &remove(1, name, skip_trash));
                refused(REMOVE, &remove(own, name, skip_trash));
            }
            refused(CLONE, &clone(own, 1, 1, name));
        }
        // The root of the other volume is one of the first inodes.
        let trash = 0x7FFF_FFFF_1000_0000;
        let numbers = (2..8).filter(|number| *number != own);
        for number in numbers.chain([other, file, 0, trash, trash + 1, u64::MAX]) {
            if call(mine, INFO, &number.to_be_bytes())[0] == 0xFF {
                assert!(number != other && number != file, "{number} is known in another volume");
                continue;
            }
            for name in [&b"dir"[..], b"file", b"pvc-2"] {
                refused(REMOVE, &remove(number, name, 1));
            }
            refused(CLONE, &clone(number, 1, 1, b"copy"));
            refused(CLONE, &clone(own, 1, number, b"copy"));
            for op in [SUMMARY, COMPACT, LEGACY_INFO] {
                refused(op, &[&number.to_be_bytes()[..], &[0, 4, 0]].concat());
            }
        }
        std::os::unix::fs::symlink("../pvc-2/dir", mine.join("dir/up")).unwrap();
        for path in ["/../pvc-2/dir/file", "../../pvc-2", "/dir/up/file", &format!("inode:{file}")]
        {
            let response = call(mine, FILL, &fill(path));
            let text = String::from_utf8_lossy(&response).into_owned();
            assert!(text.contains("\"FileCount\":0"), "{path}: {text}");
        }
        fs::remove_file(mine.join("dir/up")).unwrap();
        tenants.assert_intact();
    });
}

#[test]
fn another_user_of_a_volume_can_do_what_system_calls_allow() {
    within(MOUNTED, || {
        let tenants = Tenants::new();
        let mine = &tenants.mine.target;
        fs::set_permissions(mine.join("dir"), fs::Permissions::from_mode(0o700)).unwrap();
        let (dir, file) = (ino(&mine.join("dir")), ino(&mine.join("dir/file")));
        let mount = File::open(mine).unwrap();
        let responses = thread::spawn(move || -> io::Result<Vec<(u32, Vec<u8>)>> {
            // Of this thread alone.
            setfsgid(Gid::from_raw(1000));
            setfsuid(Uid::from_raw(1000));
            assert!(openat(mount.as_fd(), "dir/file", OFlag::O_RDONLY, Mode::empty()).is_err());
            let number = |ino: u64| [&ino.to_be_bytes()[..], &[0, 4, 0]].concat();
            let asked = [
                (REMOVE, remove(dir, b"file", 0)),
                (CLONE, clone(file, dir, 1, b"copy")),
                (INFO, number(file)),
                (SUMMARY, number(file)),
                (COMPACT, number(file)),
                (COMPACT, number(dir)),
            ];
            Ok(asked.map(|(op, body)| (op, call_in(&mount, op, &body))).into())
        });
        for (op, response) in responses.join().unwrap().unwrap() {
            assert_eq!(response, [13], "{op}: {}", String::from_utf8_lossy(&response));
        }
        tenants.assert_intact();
    });
}

#[test]
fn a_deep_tree_of_one_volume_is_processed_while_others_are_served() {
    within(MOUNTED, || {
        let tenants = Tenants::new();
        let mine = &tenants.mine.target;
        let top = mine.join("deep");
        fs::create_dir(&top).unwrap();
        let mut at = File::open(&top).unwrap();
        for _ in 0..1200 {
            nix::sys::stat::mkdirat(at.as_fd(), "d", Mode::from_bits_truncate(0o755)).unwrap();
            at = File::from(openat(at.as_fd(), "d", OFlag::O_RDONLY, Mode::empty()).unwrap());
        }
        let bottom = at.metadata().unwrap().ino();
        let top = ino(&top);
        let response = call(mine, INFO, &bottom.to_be_bytes());
        let shown = String::from_utf8_lossy(&response);
        assert!(shown.contains("\"Failed\":false"), "{shown}");
        let number = [&top.to_be_bytes()[..], &[0, 4]].concat();
        assert_eq!(call(mine, COMPACT, &number), [0]);
        assert_eq!(call(mine, FILL, &fill("/deep"))[0], 0xFF);
        assert_eq!(
            call(mine, SUMMARY, &[&top.to_be_bytes()[..], &[255, 255, 0]].concat())[0],
            0xFF
        );
        assert_eq!(call(mine, CLONE, &clone(top, 1, 1, b"copy")), [0]);
        drop(at);
        for name in [&b"deep"[..], b"copy"] {
            assert_eq!(call(mine, REMOVE, &remove(1, name, 1)), [0]);
        }
        tenants.assert_intact();
    });
}
