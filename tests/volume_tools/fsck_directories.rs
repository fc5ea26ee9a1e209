//! The metadata of directories, checked and repaired.

use std::fs;

use jfs::meta::Ino;
use jfs::meta::engine::Change;
use jfs::meta::record::{Attr, Counter, DirStat};

use crate::damage::Metadata;
use crate::numbers::{BOTH, Tool};
use crate::on_both;
use crate::support::fixture::{Client, Fixture, with};

on_both! {
    a_wrong_link_count_is_repaired_alike,
    wrong_usage_is_repaired_alike,
    the_usage_of_the_volume_is_repaired_alike,
    a_broken_parent_is_found_and_repaired,
    nothing_is_changed_without_repair,
}

const TREE: [&str; 3] = ["--path", "/", "-r"];
const USAGE: [&str; 4] = ["--path", "/", "-r", "--sync-dir-stat"];

fn fill(fixture: &Fixture) -> Metadata {
    fixture.format(&[]);
    for client in [Client::Ours, Client::Go] {
        let mount = fixture.mount_by(client, &[]);
        let top = mount.at(if client == Client::Ours { "ours" } else { "go" });
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::create_dir(top.join("a/d")).unwrap();
        fs::write(top.join("a/file"), "content").unwrap();
        fs::write(top.join("a/b/file"), vec![1; 5000]).unwrap();
        mount.unmount();
    }
    Metadata::of(fixture)
}

/// Damages the volume; both must fail. One repairs it, then both must succeed. Does so with each
/// of them as the one; returns what `state` reads after each repair.
#[track_caller]
fn repaired_alike<T: PartialEq + std::fmt::Debug>(
    fixture: &Fixture,
    options: &[&str],
    damage: impl Fn(),
    state: impl Fn() -> T,
) {
    let states = BOTH.map(|repairer| {
        damage();
        for tool in BOTH {
            tool.run(fixture, "fsck", options).refused();
        }
        repairer.run(fixture, "fsck", &[options, &["--repair"]].concat()).ok();
        for tool in BOTH {
            tool.run(fixture, "fsck", options).ok();
        }
        state()
    });
    assert_eq!(states[0], states[1], "ours on the left");
}

fn a_wrong_link_count_is_repaired_alike(fixture: &Fixture) {
    let metadata = fill(fixture);
    let dirs = ["/ours/a", "/go/a/b", "/go"].map(|path| metadata.ino(path));
    repaired_alike(
        fixture,
        &TREE,
        || dirs.iter().for_each(|ino| metadata.change_attr(*ino, |attr| attr.nlink = 77)),
        || dirs.map(|ino| metadata.attr(ino)),
    );
    assert_eq!(dirs.map(|ino| metadata.attr(ino).unwrap().nlink), [4, 3, 3]);
}

fn wrong_usage_is_repaired_alike(fixture: &Fixture) {
    let metadata = fill(fixture);
    let (one, two) = (metadata.ino("/ours/a/b"), metadata.ino("/go/a"));
    let right = [one, two].map(|ino| metadata.dir_stat(ino));
    repaired_alike(
        fixture,
        &USAGE,
        || {
            metadata.put_dir_stat(one, DirStat { length: 9, space: 4096, inodes: 9 });
            metadata.commit(&[Change::RemoveDirStat(two)]);
            // The Go client fails on a missing record unless it repairs.
            metadata.put_dir_stat(two, DirStat { length: 1, space: -4096, inodes: 1 });
        },
        || [one, two].map(|ino| metadata.dir_stat(ino)),
    );
    assert_eq!([one, two].map(|ino| metadata.dir_stat(ino)), right);
}

fn the_usage_of_the_volume_is_repaired_alike(fixture: &Fixture) {
    let metadata = fill(fixture);
    let counters = || [Counter::UsedSpace, Counter::TotalInodes].map(|one| metadata.counter(one));
    let right = counters();
    for tool in BOTH {
        metadata.add_counter(Counter::UsedSpace, 1 << 30);
        metadata.add_counter(Counter::TotalInodes, -3);
        tool.run(fixture, "fsck", &[&USAGE[..], &["--repair"]].concat()).ok();
        assert_eq!(counters(), right, "{tool:?}");
    }
}

/// The Go client does not look at parents.
fn a_broken_parent_is_found_and_repaired(fixture: &Fixture) {
    let metadata = fill(fixture);
    let (dir, file) = (metadata.ino("/go/a/b"), metadata.ino("/ours/a/file"));
    let right = [dir, file].map(|ino| metadata.attr(ino));
    metadata.change_attr(dir, |attr| attr.parent = Ino(9999));
    metadata.change_attr(file, |attr| attr.parent = metadata.ino("/go"));
    let found = Tool::Ours.run(fixture, "fsck", &TREE).refused();
    for path in ["/go/a/b (inode", "/ours/a/file (inode"] {
        assert!(found.stdout.contains(path), "{found}");
    }
    Tool::Ours.run(fixture, "fsck", &[&TREE[..], &["--repair"]].concat()).ok();
    assert_eq!([dir, file].map(|ino| metadata.attr(ino)), right);
    for tool in BOTH {
        tool.run(fixture, "fsck", &USAGE).ok();
    }
}

fn nothing_is_changed_without_repair(fixture: &Fixture) {
    let metadata = fill(fixture);
    let dir = metadata.ino("/ours/a");
    metadata.change_attr(dir, |attr| attr.nlink = 77);
    metadata.put_dir_stat(dir, DirStat { length: 9, space: 4096, inodes: 9 });
    let before = (metadata.attr(dir), metadata.dir_stat(dir));
    Tool::Ours.run(fixture, "fsck", &USAGE).refused();
    assert_eq!((metadata.attr(dir), metadata.dir_stat(dir)), before);
    let refused = Tool::Ours.run(fixture, "fsck", &["--repair"]).refused();
    assert!(refused.stderr.contains("--path"), "{refused}");
    let refused = Tool::Ours.run(fixture, "fsck", &["--path", "a"]).refused();
    assert!(refused.stderr.contains("absolute"), "{refused}");
    let refused = Tool::Ours.run(fixture, "fsck", &["--path", "/none"]).refused();
    assert!(refused.stderr.contains("cannot check /none"), "{refused}");
}

fn a_missing_attr_is_rebuilt_alike(fixture: &Fixture) {
    let metadata = fill(fixture);
    let dir = metadata.ino("/ours/a/b");
    let timeless = |attr: Attr| Attr {
        atime: jfs::meta::Timestamp::default(),
        mtime: jfs::meta::Timestamp::default(),
        ctime: jfs::meta::Timestamp::default(),
        ..attr
    };
    repaired_alike(
        fixture,
        &["--path", "/ours/a/b", "--repair-dir-mode", "0750"],
        || metadata.commit(&[Change::RemoveAttr(dir)]),
        || metadata.attr(dir).map(timeless),
    );
    let attr = metadata.attr(dir).unwrap();
    assert_eq!((attr.mode, attr.nlink, attr.parent), (0o750, 3, metadata.ino("/ours/a")));
}

#[test]
fn a_missing_attr_is_rebuilt_alike_on_redis() {
    with(Fixture::redis, a_missing_attr_is_rebuilt_alike);
}

#[test]
fn a_missing_attr_is_rebuilt_alike_on_tikv() {
    with(Fixture::tikv, a_missing_attr_is_rebuilt_alike);
}

/// The Go client does not see such a directory on SQL.
#[test]
fn a_missing_attr_is_rebuilt_on_sqlite() {
    with(Fixture::sqlite, |fixture| {
        let metadata = fill(fixture);
        let dir = metadata.ino("/ours/a/b");
        metadata.commit(&[Change::RemoveAttr(dir)]);
        Tool::Ours.run(fixture, "fsck", &TREE).refused();
        Tool::Ours.run(fixture, "fsck", &[&TREE[..], &["--repair"]].concat()).ok();
        for tool in BOTH {
            tool.run(fixture, "fsck", &USAGE).ok();
        }
        assert_eq!(metadata.attr(dir).unwrap().nlink, 3);
    });
}
