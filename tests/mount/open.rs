//! The flags of open(2), and files that are open while their name is removed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};
use rustix::io::Errno;

use crate::fixture::{MIB, SOMEBODY, as_user, assert_same, bytes, names, open, refused};
use crate::on_both;
use crate::support::fixture::{Client, Fixture, eventually};

on_both! {
    appending_writes_at_the_current_end,
    truncating_empties_the_file,
    exclusive_creation_has_one_winner,
    o_nofollow_refuses_a_symlink,
    opening_a_file_as_a_directory_is_refused,
    a_nameless_file_has_no_name_until_it_gets_one,
    a_nameless_file_that_gets_a_name_stays,
    a_removed_directory_stays_usable_while_open,
    direct_reads_and_writes_are_exact,
    a_read_only_handle_cannot_write,
    a_new_file_can_be_written_whatever_its_mode,
    a_removed_file_stays_while_it_is_open,
    a_replaced_file_stays_while_it_is_open,
    nothing_can_be_created_in_a_removed_directory,
    a_removed_file_cannot_be_linked,
    many_files_are_open_at_once,
}

fn appending_writes_at_the_current_end(fixture: &Fixture) {
    let mount = fixture.start();
    let mut one = OpenOptions::new().append(true).create(true).open(mount.at("f")).unwrap();
    let mut two = OpenOptions::new().append(true).open(mount.at("f")).unwrap();
    for _ in 0..3 {
        one.write_all(b"one ").unwrap();
        two.write_all(b"two ").unwrap();
    }
    assert_eq!(fs::read(mount.at("f")).unwrap(), b"one two one two one two ");
    open(mount.at("f")).set_len(4).unwrap();
    two.write_all(b"end").unwrap();
    assert_eq!(fs::read(mount.at("f")).unwrap(), b"one end");
}

fn truncating_empties_the_file(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), bytes(1, 9 * MIB)).unwrap();
    drop(File::create(mount.at("f")).unwrap());
    assert_eq!(fs::metadata(mount.at("f")).unwrap().size(), 0);
    let file = open(mount.at("f"));
    // The old content does not come back.
    file.set_len(9 * MIB).unwrap();
    assert_same(&fs::read(mount.at("f")).unwrap(), &vec![0; usize::try_from(9 * MIB).unwrap()]);
}

fn exclusive_creation_has_one_winner(fixture: &Fixture) {
    let mount = fixture.start();
    let tries = std::thread::scope(|scope| {
        let tries: Vec<_> =
            (0..8).map(|_| scope.spawn(|| File::create_new(mount.at("f")).is_ok())).collect();
        tries.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
    });
    assert_eq!(tries, 1);
}

fn o_nofollow_refuses_a_symlink(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "text").unwrap();
    symlink("f", mount.at("s")).unwrap();
    let open = |flags: OFlags| rustix::fs::open(mount.at("s"), flags, Mode::empty());
    open(OFlags::RDONLY).unwrap();
    assert_eq!(refused(open(OFlags::RDONLY | OFlags::NOFOLLOW)), Errno::LOOP);
}

fn opening_a_file_as_a_directory_is_refused(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("f"), "").unwrap();
    let open = |name: &str, flags| rustix::fs::open(mount.at(name), flags, Mode::empty());
    assert_eq!(refused(open("f", OFlags::DIRECTORY)), Errno::NOTDIR);
    assert_eq!(refused(open("d", OFlags::WRONLY)), Errno::ISDIR);
    assert_eq!(refused(fs::read(mount.at("d"))), Errno::ISDIR);
}

fn a_nameless_file_has_no_name_until_it_gets_one(fixture: &Fixture) {
    let mount = fixture.start();
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file = rustix::fs::open(mount.path(), flags, Mode::from_raw_mode(0o640)).unwrap();
    let file = File::from(file);
    assert_eq!(names(mount.path()), [""; 0]);
    file.write_all_at(b"nameless", 0).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o640);
    let mut read = [0; 8];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"nameless");
    drop(file);
    assert_eq!(names(mount.path()), [""; 0]);
}

fn a_nameless_file_that_gets_a_name_stays(fixture: &Fixture) {
    fixture.format(&["--trash-days", "0"]);
    let mount = fixture.mount(&[]);
    fs::create_dir(mount.at("d")).unwrap();
    for (n, empty_path) in [(0, false), (1, true)] {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = rustix::fs::open(mount.path(), flags, Mode::from_raw_mode(0o640)).unwrap();
        let file = File::from(file);
        file.write_all_at(b"before", 0).unwrap();
        let path = mount.at(format!("d/f{n}"));
        if empty_path {
            linkat(&file, "", CWD, &path, AtFlags::EMPTY_PATH).unwrap();
        } else {
            let link = format!("/proc/self/fd/{}", file.as_raw_fd());
            linkat(CWD, link, CWD, &path, AtFlags::SYMLINK_FOLLOW).unwrap();
        }
        assert_eq!(file.metadata().unwrap().nlink(), 1);
        file.write_all_at(b" and after", 6).unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"before and after");
    }
    let ino = fs::metadata(mount.at("d/f0")).unwrap().ino();
    // Cleaning up after the session does not take it for a removed file.
    mount.unmount();
    let mount = fixture.mount_by(Client::Go, &[]);
    assert_eq!(names(mount.at("d")), ["f0", "f1"]);
    assert_eq!(fs::read(mount.at("d/f0")).unwrap(), b"before and after");
    assert_eq!(fs::metadata(mount.at("d/f0")).unwrap().ino(), ino);
    mount.unmount();
    fixture.check();
}

fn a_removed_directory_stays_usable_while_open(fixture: &Fixture) {
    fixture.format(&["--trash-days", "0"]);
    let mount = fixture.mount(&["--attr-cache", "0"]);
    fs::create_dir(mount.at("d")).unwrap();
    let dir = File::open(mount.at("d")).unwrap();
    let ino = dir.metadata().unwrap().ino();
    fs::remove_dir(mount.at("d")).unwrap();
    let found = dir.metadata().unwrap();
    assert_eq!((found.ino(), found.nlink(), found.is_dir()), (ino, 0, true));
    assert_eq!(refused(fs::metadata(mount.at("d"))), Errno::NOENT);
}

fn direct_reads_and_writes_are_exact(fixture: &Fixture) {
    let mount = fixture.start();
    let content = bytes(2, 5 * MIB + 512);
    let direct = |write: bool| {
        OpenOptions::new()
            .read(!write)
            .write(write)
            .create(write)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(mount.at("f"))
            .unwrap()
    };
    let mut file = direct(true);
    for part in content.chunks(usize::try_from(MIB).unwrap()) {
        file.write_all(part).unwrap();
    }
    drop(file);
    assert_same(&fs::read(mount.at("f")).unwrap(), &content);
    // Writes that bypass the page cache are read from it, and vice versa.
    let (cached, mut past) = (open(mount.at("f")), direct(false));
    cached.write_all_at(b"through the cache", 4096).unwrap();
    let mut all = Vec::new();
    past.read_to_end(&mut all).unwrap();
    assert_eq!(&all[4096..4113], b"through the cache");
    direct(true).write_all_at(&[7; 4096], 8192).unwrap();
    let mut seen = [0; 4096];
    cached.read_exact_at(&mut seen, 8192).unwrap();
    assert_eq!(seen, [7; 4096]);
}

fn a_read_only_handle_cannot_write(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "text").unwrap();
    let file = File::open(mount.at("f")).unwrap();
    assert_eq!(refused(file.write_at(b"x", 0)), Errno::BADF);
    assert_eq!(refused(file.set_len(0)), Errno::INVAL);
    let file = OpenOptions::new().write(true).open(mount.at("f")).unwrap();
    assert_eq!(refused(file.read_at(&mut [0], 0)), Errno::BADF);
}

fn a_new_file_can_be_written_whatever_its_mode(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    fs::set_permissions(mount.at("d"), Permissions::from_mode(0o777)).unwrap();
    as_user(SOMEBODY, || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o000);
        let mut file = options.open(mount.at("d/f")).unwrap();
        file.write_all(b"text").unwrap();
        drop(file);
        assert_eq!(refused(File::open(mount.at("d/f"))), Errno::ACCESS);
    });
    assert_eq!(fs::read(mount.at("d/f")).unwrap(), b"text");
}

fn a_removed_file_stays_while_it_is_open(fixture: &Fixture) {
    let mount = fixture.start();
    let content = bytes(3, 6 * MIB);
    let file = open(mount.at("f"));
    file.write_all_at(&content, 0).unwrap();
    fs::remove_file(mount.at("f")).unwrap();
    assert_eq!(names(mount.path()), [""; 0]);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let mut found = vec![0; content.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_same(&found, &content);
    file.write_all_at(b"later", 100).unwrap();
    file.sync_all().unwrap();
    file.set_len(105).unwrap();
    file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    let mut end = [0; 5];
    file.read_exact_at(&mut end, 100).unwrap();
    assert_eq!((&end, file.metadata().unwrap().size()), (b"later", 105));
    // Another file of the same name is another file.
    fs::write(mount.at("f"), "new").unwrap();
    file.read_exact_at(&mut end, 100).unwrap();
    assert_eq!(&end, b"later");
    drop(file);
    assert_eq!(fs::read(mount.at("f")).unwrap(), b"new");
    drop(mount);
    // Nothing of it is left, neither as a file nor as objects.
    fixture.check();
    assert_eq!(fixture.go.dump()["Sustained"].as_array().map_or(0, Vec::len), 0);
}

fn a_replaced_file_stays_while_it_is_open(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("old"), "old").unwrap();
    fs::write(mount.at("new"), "new").unwrap();
    let mut file = File::open(mount.at("old")).unwrap();
    fs::rename(mount.at("new"), mount.at("old")).unwrap();
    let mut found = String::new();
    file.read_to_string(&mut found).unwrap();
    assert_eq!(found, "old");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read(mount.at("old")).unwrap(), b"new");
}

fn nothing_can_be_created_in_a_removed_directory(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    let dir = File::open(mount.at("d")).unwrap();
    fs::remove_dir(mount.at("d")).unwrap();
    let inside = rustix::fs::openat(&dir, "f", OFlags::CREATE | OFlags::RDWR, Mode::RWXU);
    assert_eq!(refused(inside), Errno::NOENT);
}

fn a_removed_file_cannot_be_linked(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    fs::remove_file(mount.at("f")).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = linkat(CWD, path, CWD, mount.at("g"), AtFlags::SYMLINK_FOLLOW);
    assert_eq!(refused(link), Errno::NOENT);
}

fn many_files_are_open_at_once(fixture: &Fixture) {
    let mount = fixture.start();
    let files: Vec<File> = (0..500).map(|n| open(mount.at(format!("f{n}")))).collect();
    for (n, file) in files.iter().enumerate() {
        file.write_all_at(n.to_string().as_bytes(), 0).unwrap();
    }
    for (n, file) in files.iter().enumerate() {
        let mut found = vec![0; n.to_string().len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, n.to_string().as_bytes());
    }
    drop(files);
    for n in 0..500 {
        assert_eq!(fs::read(mount.at(format!("f{n}"))).unwrap(), n.to_string().as_bytes());
    }
    // The kernel sends the releases a moment later.
    eventually("all are closed", || {
        let stats = fs::read_to_string(mount.at(".stats")).unwrap();
        let open = stats.lines().find_map(|line| line.strip_prefix("juicefs_fuse_open_handlers "));
        // The one that is reading this.
        open.unwrap().trim().parse::<f64>().unwrap() <= 1.0
    });
}
