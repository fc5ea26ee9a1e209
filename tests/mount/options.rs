//! The effects of mount options.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use rustix::io::Errno;

use crate::fixture::{SOMEBODY, as_user, names, open, refused};
use crate::on_both;
use crate::support::fixture::{Fixture, Mounted, eventually};

on_both! {
    a_read_only_mount_refuses_every_change,
    a_sub_directory_can_be_mounted,
    root_can_be_squashed,
    everybody_can_be_squashed,
    a_umask_replaces_that_of_the_caller,
    removed_files_are_in_the_trash,
    only_root_empties_the_trash,
    virtual_files_are_listed_unless_hidden,
    virtual_files_cannot_be_changed,
    access_times_are_not_updated_by_default,
    access_times_are_updated_on_request,
    the_kernel_sees_the_usual_mount,
    a_signal_ends_the_mount_without_data_loss,
    writes_in_the_kernels_cache_are_kept,
    the_kernel_may_cache_listings,
    attribute_caching_can_be_disabled,
}

fn a_read_only_mount_refuses_every_change(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("f"), "text").unwrap();
    drop(mount);
    for option in [&["--read-only"][..], &["-o", "ro"]] {
        let mount = fixture.mount(option);
        assert_eq!(fs::read(mount.at("f")).unwrap(), b"text");
        assert_eq!(names(mount.path()), ["d", "f"]);
        assert_eq!(refused(fs::write(mount.at("f"), "")), Errno::ROFS);
        assert_eq!(refused(fs::create_dir(mount.at("e"))), Errno::ROFS);
        assert_eq!(refused(fs::remove_file(mount.at("f"))), Errno::ROFS);
        assert_eq!(refused(fs::remove_dir(mount.at("d"))), Errno::ROFS);
        assert_eq!(refused(fs::rename(mount.at("f"), mount.at("g"))), Errno::ROFS);
        let chmod = fs::set_permissions(mount.at("f"), Permissions::from_mode(0o600));
        assert_eq!(refused(chmod), Errno::ROFS);
    }
}

fn a_sub_directory_can_be_mounted(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir_all(mount.at("a/b/c")).unwrap();
    fs::write(mount.at("a/b/f"), "text").unwrap();
    fs::write(mount.at("outside"), "").unwrap();
    let sub = fixture.mount(&["--subdir", "/a/b"]);
    assert_eq!(names(sub.path()), ["c", "f"]);
    assert_eq!(fs::metadata(sub.path()).unwrap().ino(), 1);
    assert_eq!(fs::read(sub.at("f")).unwrap(), b"text");
    fs::write(sub.at("g"), "new").unwrap();
    fs::rename(sub.at("f"), sub.at("c/f")).unwrap();
    assert_eq!(fs::read(mount.at("a/b/g")).unwrap(), b"new");
    assert_eq!(names(mount.at("a/b/c")), ["f"]);
    assert_eq!(fs::metadata(sub.at("c/..")).unwrap().ino(), 1);
}

fn root_can_be_squashed(fixture: &Fixture) {
    let mount = fixture.start();
    fs::set_permissions(mount.path(), Permissions::from_mode(0o777)).unwrap();
    fs::write(mount.at("secret"), "").unwrap();
    fs::set_permissions(mount.at("secret"), Permissions::from_mode(0o600)).unwrap();
    drop(mount);
    let mount = fixture.mount(&["--root-squash", "4001:4002"]);
    fs::write(mount.at("f"), "").unwrap();
    as_user(SOMEBODY, || fs::write(mount.at("g"), "").unwrap());
    let owner = |name: &str| {
        let found = fs::metadata(mount.at(name)).unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!(owner("f"), (4001, 4002));
    assert_eq!(owner("g"), (SOMEBODY, SOMEBODY));
    // Operations that need root's privileges are refused.
    let given = refused(chown(mount.at("g"), Some(1), None));
    assert!([Errno::PERM, Errno::ACCESS].contains(&given), "{given}");
}

fn everybody_can_be_squashed(fixture: &Fixture) {
    let mount = fixture.start();
    fs::set_permissions(mount.path(), Permissions::from_mode(0o777)).unwrap();
    drop(mount);
    let mount = fixture.mount(&["--all-squash", "4001:4002"]);
    fs::write(mount.at("f"), "").unwrap();
    as_user(SOMEBODY, || fs::create_dir(mount.at("d")).unwrap());
    // Through this mount everything seems to be owned by the caller, so read the owner another way.
    let other = fixture.mount(&[]);
    for name in ["f", "d"] {
        let found = fs::metadata(other.at(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (4001, 4002), "{name}");
    }
}

fn a_umask_replaces_that_of_the_caller(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount(&["--umask", "077"]);
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("f"), "").unwrap();
    let mode = |name: &str| fs::metadata(mount.at(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("d"), mode("f")), (0o700, 0o600));
}

fn removed_files_are_in_the_trash(fixture: &Fixture) {
    fixture.format(&["--trash-days", "1"]);
    let mount = fixture.mount(&[]);
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("d/f"), "text").unwrap();
    fs::remove_file(mount.at("d/f")).unwrap();
    let hours = names(mount.at(".trash"));
    assert_eq!(hours.len(), 1, "{hours:?}");
    let hour = mount.at(".trash").join(&hours[0]);
    let lie = names(&hour);
    assert!(lie.len() == 1 && lie[0].ends_with("-f"), "{lie:?}");
    assert_eq!(fs::read(hour.join(&lie[0])).unwrap(), b"text");
    // Restored to its place, and then deleted for good.
    fs::rename(hour.join(&lie[0]), mount.at("d/back")).unwrap();
    assert_eq!(fs::read(mount.at("d/back")).unwrap(), b"text");
    fs::remove_file(mount.at("d/back")).unwrap();
    let lie = names(&hour);
    fs::remove_file(hour.join(&lie[0])).unwrap();
    assert_eq!(names(&hour), [""; 0]);
    assert_eq!(refused(fs::write(mount.at(".trash/f"), "")), Errno::PERM);
    assert_eq!(refused(fs::rename(mount.at("d"), hour.join("d"))), Errno::PERM);
}

fn only_root_empties_the_trash(fixture: &Fixture) {
    fixture.format(&["--trash-days", "1"]);
    let mount = fixture.mount(&[]);
    fs::set_permissions(mount.path(), Permissions::from_mode(0o777)).unwrap();
    as_user(SOMEBODY, || fs::write(mount.at("f"), "text").unwrap());
    as_user(SOMEBODY, || fs::remove_file(mount.at("f")).unwrap());
    let hour = mount.at(".trash").join(&names(mount.at(".trash"))[0]);
    let lies = hour.join(&names(&hour)[0]);
    as_user(SOMEBODY, || {
        for refusal in
            [refused(fs::remove_file(&lies)), refused(fs::rename(&lies, mount.at("mine")))]
        {
            assert!([Errno::PERM, Errno::ACCESS].contains(&refusal), "{refusal}");
        }
    });
    assert_eq!(fs::read(lies).unwrap(), b"text");
}

fn virtual_files_are_listed_unless_hidden(fixture: &Fixture) {
    fixture.format(&["--trash-days", "1"]);
    let all = |mount: &Mounted| {
        let entries = fs::read_dir(mount.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let mount = fixture.mount(&[]);
    assert_eq!(all(&mount), [".accesslog", ".config", ".stats", ".trash"]);
    drop(mount);
    let mount = fixture.mount(&["--hide-internal"]);
    assert_eq!(all(&mount), [""; 0]);
    // They can be opened by name.
    assert!(fs::read_to_string(mount.at(".config")).unwrap().contains("\"Name\": \"volume\""));
    assert!(fs::read_to_string(mount.at(".stats")).unwrap().contains("juicefs_uptime"));
}

fn virtual_files_cannot_be_changed(fixture: &Fixture) {
    let mount = fixture.start();
    for name in [".stats", ".config", ".accesslog", ".control"] {
        let removed = refused(fs::remove_file(mount.at(name)));
        assert!([Errno::PERM, Errno::ACCESS].contains(&removed), "{name}: {removed}");
        let moved = refused(fs::rename(mount.at(name), mount.at("x")));
        assert!([Errno::PERM, Errno::ACCESS].contains(&moved), "{name}: {moved}");
    }
    fs::write(mount.at("f"), "").unwrap();
    let over = refused(fs::rename(mount.at("f"), mount.at(".stats")));
    assert!([Errno::PERM, Errno::ACCESS].contains(&over), "{over}");
    assert_eq!(names(mount.path()), ["f"]);
}

fn access_times_are_not_updated_by_default(fixture: &Fixture) {
    let mount = fixture.start();
    assert_eq!(atime_after_a_read(&mount), 1000);
}

fn access_times_are_updated_on_request(fixture: &Fixture) {
    fixture.format(&[]);
    for mode in ["relatime", "strictatime"] {
        let mount = fixture.mount(&["--atime-mode", mode]);
        eventually("the read shows", || atime_after_a_read(&mount) > 1000);
    }
}

/// Returns the atime after a read of a file that was changed later than it was read.
fn atime_after_a_read(mount: &Mounted) -> i64 {
    fs::write(mount.at("f"), "text").unwrap();
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps { last_access: time(1000), last_modification: time(2000) };
    utimensat(CWD, mount.at("f"), &times, AtFlags::empty()).unwrap();
    fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
    assert_eq!(fs::read(mount.at("f")).unwrap(), b"text");
    // Not from the kernel's attribute cache, which expires after a second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    fs::metadata(mount.at("f")).unwrap().atime()
}

fn the_kernel_sees_the_usual_mount(fixture: &Fixture) {
    let mount = fixture.start();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let point = mount.path().to_str().unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(1) == Some(point)).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words[0], "JuiceFS:volume");
    assert_eq!(words[2], "fuse.juicefs");
    let options: Vec<&str> = words[3].split(',').collect();
    for option in ["rw", "nosuid", "nodev", "user_id=0", "default_permissions", "allow_other"] {
        assert!(options.contains(&option), "{option} is missing: {line}");
    }
}

fn a_signal_ends_the_mount_without_data_loss(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    file.write_all_at(b"not yet stored", 0).unwrap();
    // Still open, and never synced.
    mount.terminate();
    drop(file);
    let mount = fixture.mount(&[]);
    assert_eq!(fs::read(mount.at("f")).unwrap(), b"not yet stored");
    drop(mount);
    assert_eq!(fixture.go.status()["Sessions"].as_array().map_or(0, Vec::len), 0);
}

fn writes_in_the_kernels_cache_are_kept(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount(&["-o", "writeback_cache"]);
    let file = open(mount.at("f"));
    for n in 0..1000_u64 {
        file.write_all_at(&n.to_le_bytes(), n * 8).unwrap();
    }
    let time = Timespec { tv_sec: 5000, tv_nsec: 6 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, mount.at("f"), &times, AtFlags::empty()).unwrap();
    drop(file);
    let found = fs::metadata(mount.at("f")).unwrap();
    assert_eq!((found.size(), found.mtime(), found.mtime_nsec()), (8000, 5000, 6));
    let other = fixture.mount(&[]);
    let expected: Vec<u8> = (0..1000_u64).flat_map(u64::to_le_bytes).collect();
    assert_eq!(fs::read(other.at("f")).unwrap(), expected);
    let found = fs::metadata(other.at("f")).unwrap();
    assert_eq!((found.size(), found.mtime(), found.mtime_nsec()), (8000, 5000, 6));
}

fn the_kernel_may_cache_listings(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount(&["--readdir-cache"]);
    fs::create_dir(mount.at("d")).unwrap();
    for n in 0..20 {
        fs::write(mount.at(format!("d/f{n:02}")), "").unwrap();
        assert_eq!(names(mount.at("d")).len(), n + 1);
    }
    fs::remove_file(mount.at("d/f03")).unwrap();
    fs::rename(mount.at("d/f04"), mount.at("d/g")).unwrap();
    let found = names(mount.at("d"));
    assert_eq!(found.len(), 19);
    assert!(found.contains(&"g".to_owned()) && !found.contains(&"f04".to_owned()));
}

fn attribute_caching_can_be_disabled(fixture: &Fixture) {
    fixture.format(&[]);
    let none = ["--attr-cache", "0", "--entry-cache", "0", "--dir-entry-cache", "0"];
    let (one, two) = (fixture.mount(&none), fixture.mount(&none));
    for n in 0..20_u32 {
        fs::write(one.at("f"), vec![0; n as usize]).unwrap();
        fs::set_permissions(one.at("f"), Permissions::from_mode(0o600 + n)).unwrap();
        let found = fs::metadata(two.at("f")).unwrap();
        assert_eq!((found.size(), found.mode() & 0o777), (u64::from(n), 0o600 + n));
        fs::rename(one.at("f"), one.at("g")).unwrap();
        assert_eq!(refused(fs::metadata(two.at("f"))), Errno::NOENT);
        fs::rename(two.at("g"), two.at("f")).unwrap();
    }
}
