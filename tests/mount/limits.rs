//! The limits of a volume and a directory, as programs see them, and file flags.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags, statvfs};
use rustix::io::Errno;

use crate::fixture::{MIB, bytes, open, refused};
use crate::on_both;
use crate::support::fixture::{Fixture, eventually};

on_both! {
    the_size_of_the_volume_is_its_capacity,
    a_full_volume_refuses_data,
    a_volume_refuses_files_beyond_its_limit,
    a_quota_is_the_size_of_its_directory,
    without_a_capacity_the_size_is_huge,
    an_immutable_file_cannot_be_changed,
    an_append_only_file_only_grows,
    without_the_option_there_are_no_flags,
}

fn the_size_of_the_volume_is_its_capacity(fixture: &Fixture) {
    fixture.format(&["--capacity", "1", "--inodes", "1000"]);
    let mount = fixture.mount(&[]);
    let total = |path: &Path| {
        let found = statvfs(path).unwrap();
        (found.f_blocks * found.f_frsize, found.f_files)
    };
    assert_eq!(total(mount.path()), (1 << 30, 1000));
    let free = || {
        let found = statvfs(mount.path()).unwrap();
        (found.f_bavail * found.f_frsize, found.f_favail)
    };
    assert_eq!(statvfs(mount.path()).unwrap().f_namemax, 255);
    let before = free();
    fs::write(mount.at("f"), bytes(1, MIB)).unwrap();
    // Usage is updated a moment later.
    eventually("the file shows", || {
        let after = free();
        before.0 - after.0 == MIB && before.1 - after.1 == 1
    });
}

fn a_full_volume_refuses_data(fixture: &Fixture) {
    fixture.format(&["--capacity", "1"]);
    let mount = fixture.mount(&[]);
    // Allocated space counts as if it were written.
    let file = open(mount.at("f"));
    file.set_len((1 << 30) - MIB).unwrap();
    eventually("the volume is nearly full", || {
        statvfs(mount.path()).unwrap().f_bavail * 4096 <= 2 * MIB
    });
    let mut other = File::create(mount.at("g")).unwrap();
    let content = bytes(2, 4 * MIB);
    let outcome = other.write_all(&content).and_then(|()| other.sync_all());
    assert_eq!(refused(outcome), Errno::NOSPC);
    drop(other);
    fs::remove_file(mount.at("f")).unwrap();
    drop(file);
    eventually("there is room again", || fs::write(mount.at("h"), &content).is_ok());
}

fn a_volume_refuses_files_beyond_its_limit(fixture: &Fixture) {
    fixture.format(&["--inodes", "5"]);
    let mount = fixture.mount(&[]);
    let mut made = (0..20).map(|n| File::create(mount.at(format!("f{n}"))));
    let refusal = made.find_map(Result::err);
    assert_eq!(refused(refusal.map_or(Ok(()), Err)), Errno::NOSPC);
    fs::remove_file(mount.at("f0")).unwrap();
    eventually("there is room again", || File::create(mount.at("again")).is_ok());
}

fn a_quota_is_the_size_of_its_directory(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount(&["--heartbeat", "1"]);
    fs::create_dir_all(mount.at("d/sub")).unwrap();
    let set = ["--path", "/d", "--capacity", "1", "--inodes", "10"];
    fixture.go.quota("set", &set).ok();
    // A client learns of it at a heartbeat.
    eventually("the quota holds", || {
        let found = statvfs(mount.at("d/sub")).unwrap();
        found.f_blocks * found.f_frsize == 1 << 30 && found.f_files == 10
    });
    let mut made = (0..20).map(|n| File::create(mount.at(format!("d/f{n}"))));
    let refusal = made.find_map(Result::err);
    assert_eq!(refused(refusal.map_or(Ok(()), Err)), Errno::DQUOT);
    // Outside there is no such limit.
    for n in 0..20 {
        fs::write(mount.at(format!("f{n}")), "").unwrap();
    }
    let grown = open(mount.at("d/f0")).set_len(2 << 30);
    assert_eq!(refused(grown), Errno::DQUOT);
}

fn without_a_capacity_the_size_is_huge(fixture: &Fixture) {
    let mount = fixture.start();
    let found = statvfs(mount.path()).unwrap();
    assert!(found.f_bavail * found.f_frsize >= 1 << 50);
    assert!(found.f_favail >= 10 << 20);
}

fn an_immutable_file_cannot_be_changed(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount(&["--enable-ioctl"]);
    fs::write(mount.at("f"), "text").unwrap();
    let file = File::open(mount.at("f")).unwrap();
    ioctl_setflags(&file, IFlags::IMMUTABLE).unwrap();
    assert_eq!(ioctl_getflags(&file).unwrap(), IFlags::IMMUTABLE);
    let open = OpenOptions::new().write(true).open(mount.at("f"));
    let refusal = match open {
        Err(error) => refused(Err::<(), _>(error)),
        Ok(file) => refused(file.write_at(b"x", 0)),
    };
    assert_eq!(refusal, Errno::PERM);
    assert_eq!(refused(fs::remove_file(mount.at("f"))), Errno::PERM);
    assert_eq!(refused(fs::rename(mount.at("f"), mount.at("g"))), Errno::PERM);
    assert_eq!(refused(fs::hard_link(mount.at("f"), mount.at("g"))), Errno::PERM);
    ioctl_setflags(&file, IFlags::empty()).unwrap();
    fs::write(mount.at("f"), "other").unwrap();
    fs::remove_file(mount.at("f")).unwrap();
}

fn an_append_only_file_only_grows(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount(&["--enable-ioctl"]);
    fs::write(mount.at("f"), "text").unwrap();
    let file = File::open(mount.at("f")).unwrap();
    ioctl_setflags(&file, IFlags::APPEND).unwrap();
    assert_eq!(ioctl_getflags(&file).unwrap(), IFlags::APPEND);
    let mut append = OpenOptions::new().append(true).open(mount.at("f")).unwrap();
    append.write_all(b" more").unwrap();
    drop(append);
    assert_eq!(fs::read(mount.at("f")).unwrap(), b"text more");
    assert_eq!(refused(OpenOptions::new().write(true).open(mount.at("f"))), Errno::PERM);
    assert_eq!(refused(fs::remove_file(mount.at("f"))), Errno::PERM);
    ioctl_setflags(&file, IFlags::empty()).unwrap();
    fs::remove_file(mount.at("f")).unwrap();
}

fn without_the_option_there_are_no_flags(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "").unwrap();
    let file = File::open(mount.at("f")).unwrap();
    let refusal = refused(ioctl_setflags(&file, IFlags::IMMUTABLE));
    assert!([Errno::NOTTY, Errno::OPNOTSUPP, Errno::NOSYS].contains(&refusal), "{refusal}");
}
