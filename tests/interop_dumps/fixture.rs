//! A volume with something of everything, and dumps to compare.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::XattrFlags;
use serde_json::Value;

use crate::support::command::{Finished, run};
use crate::support::fixture::{Fixture, PATIENCE, ours};
use crate::support::juicefs::juicefs;

pub const MIB: u64 = 1 << 20;

/// Formats a volume and fills it: links, holes, shared slices, ACLs, xattrs, odd names, quotas and
/// trash.
pub fn fill(fixture: &Fixture) {
    fixture.format(&["--enable-acl", "--trash-days", "1"]);
    let mount = fixture.mount(&[]);
    let top = mount.at("");
    fs::create_dir_all(top.join("d/below/deeper")).unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    fs::write(top.join("d/small"), "some bytes").unwrap();
    fs::write(top.join("d/none"), "").unwrap();
    for number in 0..250 {
        fs::write(top.join(format!("d/below/{number}")), vec![7; number]).unwrap();
    }
    let large = File::create(top.join("d/large")).unwrap();
    large.write_all_at(&vec![1; 100_000], 0).unwrap();
    large.write_all_at(&vec![2; 100_000], 50_000).unwrap();
    large.write_all_at(&[3; 1000], 200 * MIB).unwrap();
    large.sync_all().unwrap();
    drop(large);
    fs::hard_link(top.join("d/small"), top.join("d/again")).unwrap();
    fs::hard_link(top.join("d/small"), top.join("empty/elsewhere")).unwrap();
    // Not with `%41`, which the Go client turns into a letter in binary dumps.
    symlink("../a target 100% \"x\"", top.join("d/link")).unwrap();
    for name in [&b"a b"[..], b"100%", b"\"quoted\\", b"\xff\xfe", "日本<&>".as_bytes(), b"\n"] {
        fs::write(top.join("empty").join(OsStr::from_bytes(name)), name).unwrap();
    }
    xattr(&top.join("d/small"), "user.one", b"<1> %\xff\0");
    xattr(&top.join("d/small"), "user.two", b"2");
    xattr(&top.join("d"), "user.dir", b"d");
    acl(&top.join("d/large"), "system.posix_acl_access");
    acl(&top.join("d/below"), "system.posix_acl_default");
    fs::set_permissions(top.join("empty"), fs::Permissions::from_mode(0o1750)).unwrap();
    chown(top.join("d/none"), Some(1001), Some(1002)).unwrap();
    let mut fifo = Command::new("mkfifo");
    fifo.arg(top.join("d/fifo"));
    run(fifo, PATIENCE).ok();
    fs::create_dir(top.join("gone")).unwrap();
    fs::write(top.join("gone/file"), "removed").unwrap();
    fs::remove_dir_all(top.join("gone")).unwrap();
    let (from, to) = (top.join("d/large"), top.join("d/clone"));
    tool(&["clone", from.to_str().unwrap(), to.to_str().unwrap()]).ok();
    mount.unmount();
    for target in
        [&["--path", "/d"][..], &["--path", "/d/below"], &["--uid", "1001"], &["--gid", "1002"]]
    {
        let limits = ["--capacity", "5", "--inodes", "1000"];
        tool(&[&["quota", "set", fixture.url()], target, &limits].concat()).ok();
    }
}

fn xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// Sets a rule for user 1001 besides the classes.
fn acl(path: &Path, name: &str) {
    let mut raw = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [
        (1u16, 6u16, u32::MAX),
        (2, 4, 1001),
        (4, 4, u32::MAX),
        (16, 6, u32::MAX),
        (32, 4, u32::MAX),
    ] {
        raw.extend(tag.to_le_bytes());
        raw.extend(perm.to_le_bytes());
        raw.extend(id.to_le_bytes());
    }
    xattr(path, name, &raw);
}

#[track_caller]
pub fn tool(arguments: &[&str]) -> Finished {
    let mut command = ours();
    command.args(arguments);
    run(command, PATIENCE)
}

/// Dumps with either client to a file, and returns the text. The Go client logs to stdout too.
#[track_caller]
pub fn dump_by(ours: bool, url: &str, options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.json");
    dump_to(ours, url, &path, options);
    fs::read_to_string(path).unwrap()
}

/// Dumps with either client to a file.
#[track_caller]
pub fn dump_to(ours: bool, url: &str, path: &Path, options: &[&str]) {
    let arguments = [&["dump", url, path.to_str().unwrap()], options].concat();
    if ours {
        tool(&arguments).ok()
    } else {
        juicefs(&arguments).ok()
    };
}

/// Loads with either client.
#[track_caller]
pub fn load_by(ours: bool, url: &str, file: &Path, options: &[&str]) -> Finished {
    let arguments = [&["load", url, file.to_str().unwrap()], options].concat();
    if ours { tool(&arguments) } else { juicefs(&arguments) }
}

/// A dump without what a load changes: the Go client counts ids anew from the tree, and forgets
/// sessions.
pub fn without_counters(dump: &str) -> Value {
    let mut value: Value = serde_json::from_str(dump).unwrap();
    let counters = value["Counters"].as_object_mut().unwrap();
    for id in ["nextInodes", "nextChunk", "nextSession"] {
        counters.remove(id).unwrap();
    }
    value
}
