//! Names: creating, finding, renaming and removing files.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use rustix::fs::{AtFlags, CWD, FileType, Mode, RenameFlags, linkat, mknodat, renameat_with};
use rustix::io::Errno;

use crate::fixture::{SOMEBODY, as_user, names, open, refused};
use crate::on_both;
use crate::support::fixture::Fixture;

on_both! {
    created_files_are_found_and_removed_ones_are_not,
    names_are_bytes_of_up_to_255,
    a_directory_counts_its_subdirectories,
    a_full_directory_cannot_be_removed,
    unlink_and_rmdir_check_the_type,
    symlinks_keep_their_target,
    a_link_is_the_same_file,
    special_files_keep_kind_and_device,
    a_rename_replaces_files,
    a_rename_replaces_only_empty_directories,
    a_rename_of_a_file_to_itself_does_nothing,
    a_directory_cannot_move_below_itself,
    rename_noreplace_needs_a_free_name,
    two_names_can_be_exchanged,
    rename_with_a_whiteout_is_refused,
    a_sticky_directory_protects_its_files,
    a_setgid_directory_passes_on_its_group,
    the_umask_of_the_process_applies,
    dot_and_dot_dot_resolve_correctly,
}

fn created_files_are_found_and_removed_ones_are_not(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("d/f"), "text").unwrap();
    assert_eq!(refused(fs::create_dir(mount.at("d"))), Errno::EXIST);
    assert_eq!(refused(File::create_new(mount.at("d/f"))), Errno::EXIST);
    assert_eq!(refused(fs::metadata(mount.at("d/g"))), Errno::NOENT);
    assert_eq!(refused(fs::metadata(mount.at("d/f/g"))), Errno::NOTDIR);
    assert_eq!(names(mount.at("d")), ["f"]);
    fs::remove_file(mount.at("d/f")).unwrap();
    assert_eq!(refused(fs::metadata(mount.at("d/f"))), Errno::NOENT);
    assert_eq!(refused(fs::remove_file(mount.at("d/f"))), Errno::NOENT);
    fs::remove_dir(mount.at("d")).unwrap();
    assert_eq!(refused(fs::metadata(mount.at("d"))), Errno::NOENT);
}

fn names_are_bytes_of_up_to_255(fixture: &Fixture) {
    use std::os::unix::ffi::OsStrExt;
    let mount = fixture.start();
    let long = "n".repeat(255);
    fs::write(mount.at(&long), "x").unwrap();
    assert_eq!(fs::read(mount.at(&long)).unwrap(), b"x");
    assert_eq!(refused(File::create(mount.at("n".repeat(256)))), Errno::NAMETOOLONG);
    assert_eq!(refused(fs::metadata(mount.at("n".repeat(256)))), Errno::NAMETOOLONG);
    let odd = std::ffi::OsStr::from_bytes(b"\xff\n\\\"\x01 %41");
    fs::write(mount.at(odd), "y").unwrap();
    assert!(fs::read_dir(mount.path()).unwrap().any(|entry| entry.unwrap().file_name() == odd));
    fs::rename(mount.at(odd), mount.at("\u{e9}")).unwrap();
    assert_eq!(fs::read(mount.at("\u{e9}")).unwrap(), b"y");
}

fn a_directory_counts_its_subdirectories(fixture: &Fixture) {
    let mount = fixture.start();
    let links = |path: &str| fs::metadata(mount.at(path)).unwrap().nlink();
    fs::create_dir_all(mount.at("d/one")).unwrap();
    fs::create_dir(mount.at("d/two")).unwrap();
    fs::create_dir(mount.at("e")).unwrap();
    fs::write(mount.at("d/f"), "").unwrap();
    assert_eq!((links("d"), links("e")), (4, 2));
    fs::rename(mount.at("d/two"), mount.at("e/two")).unwrap();
    assert_eq!((links("d"), links("e")), (3, 3));
    fs::remove_dir(mount.at("e/two")).unwrap();
    assert_eq!((links("d"), links("e")), (3, 2));
}

fn a_full_directory_cannot_be_removed(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir_all(mount.at("d/sub")).unwrap();
    assert_eq!(refused(fs::remove_dir(mount.at("d"))), Errno::NOTEMPTY);
    fs::remove_dir(mount.at("d/sub")).unwrap();
    fs::remove_dir(mount.at("d")).unwrap();
}

fn unlink_and_rmdir_check_the_type(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("f"), "").unwrap();
    assert_eq!(refused(fs::remove_file(mount.at("d"))), Errno::ISDIR);
    assert_eq!(refused(fs::remove_dir(mount.at("f"))), Errno::NOTDIR);
    assert_eq!(refused(rustix::fs::rmdir(mount.at("d/."))), Errno::INVAL);
}

fn symlinks_keep_their_target(fixture: &Fixture) {
    let mount = fixture.start();
    let long = "t/".repeat(2047);
    for (name, target) in [("short", "f"), ("dangling", "no/such"), ("long", long.as_str())] {
        symlink(target, mount.at(name)).unwrap();
        assert_eq!(fs::read_link(mount.at(name)).unwrap().to_str(), Some(target));
        assert_eq!(fs::symlink_metadata(mount.at(name)).unwrap().size(), target.len() as u64);
    }
    fs::write(mount.at("f"), "through").unwrap();
    assert_eq!(fs::read(mount.at("short")).unwrap(), b"through");
    assert_eq!(refused(fs::read(mount.at("dangling"))), Errno::NOENT);
    symlink("loop", mount.at("loop")).unwrap();
    assert_eq!(refused(fs::read(mount.at("loop"))), Errno::LOOP);
}

fn a_link_is_the_same_file(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("f"), "one").unwrap();
    fs::hard_link(mount.at("f"), mount.at("d/g")).unwrap();
    let (one, two) = (fs::metadata(mount.at("f")).unwrap(), fs::metadata(mount.at("d/g")).unwrap());
    assert_eq!((one.ino(), one.nlink()), (two.ino(), 2));
    fs::write(mount.at("d/g"), "other").unwrap();
    assert_eq!(fs::read(mount.at("f")).unwrap(), b"other");
    fs::remove_file(mount.at("f")).unwrap();
    assert_eq!(fs::read(mount.at("d/g")).unwrap(), b"other");
    assert_eq!(fs::metadata(mount.at("d/g")).unwrap().nlink(), 1);
    assert_eq!(refused(fs::hard_link(mount.at("d"), mount.at("e"))), Errno::PERM);
    symlink("d/g", mount.at("s")).unwrap();
    linkat(CWD, mount.at("s"), CWD, mount.at("t"), AtFlags::empty()).unwrap();
    assert!(fs::symlink_metadata(mount.at("t")).unwrap().is_symlink());
}

fn special_files_keep_kind_and_device(fixture: &Fixture) {
    let mount = fixture.start();
    let mode = Mode::from_raw_mode(0o640);
    let device = rustix::fs::makedev(300, 70000);
    let make = |name: &str, kind, device| mknodat(CWD, mount.at(name), kind, mode, device).unwrap();
    make("fifo", FileType::Fifo, 0);
    make("socket", FileType::Socket, 0);
    make("char", FileType::CharacterDevice, device);
    make("block", FileType::BlockDevice, device);
    make("plain", FileType::RegularFile, 0);
    let look = |name: &str| fs::symlink_metadata(mount.at(name)).unwrap();
    assert!(look("fifo").file_type().is_fifo());
    assert!(look("socket").file_type().is_socket());
    assert!(look("char").file_type().is_char_device());
    assert!(look("block").file_type().is_block_device());
    assert!(look("plain").is_file());
    assert_eq!((look("char").rdev(), look("block").rdev()), (device, device));
    assert_eq!(look("fifo").mode() & 0o7777, 0o640);
    assert_eq!(
        as_user(SOMEBODY, || {
            let char = FileType::CharacterDevice;
            refused(mknodat(CWD, mount.at("mine"), char, mode, device))
        }),
        Errno::PERM
    );
}

fn a_rename_replaces_files(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("f"), "new").unwrap();
    fs::write(mount.at("d/g"), "old").unwrap();
    let ino = fs::metadata(mount.at("f")).unwrap().ino();
    fs::rename(mount.at("f"), mount.at("d/g")).unwrap();
    assert_eq!(fs::read(mount.at("d/g")).unwrap(), b"new");
    assert_eq!(fs::metadata(mount.at("d/g")).unwrap().ino(), ino);
    assert_eq!(refused(fs::metadata(mount.at("f"))), Errno::NOENT);
    assert_eq!(refused(fs::rename(mount.at("f"), mount.at("h"))), Errno::NOENT);
}

fn a_rename_replaces_only_empty_directories(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir_all(mount.at("from/sub")).unwrap();
    fs::create_dir_all(mount.at("full/sub")).unwrap();
    fs::create_dir(mount.at("empty")).unwrap();
    fs::write(mount.at("f"), "").unwrap();
    let rename = |from: &str, to: &str| fs::rename(mount.at(from), mount.at(to));
    assert_eq!(refused(rename("from", "full")), Errno::NOTEMPTY);
    assert_eq!(refused(rename("from", "f")), Errno::NOTDIR);
    assert_eq!(refused(rename("f", "empty")), Errno::ISDIR);
    rename("from", "empty").unwrap();
    assert_eq!(names(mount.at("empty")), ["sub"]);
    assert_eq!(names(mount.path()), ["empty", "f", "full"]);
}

fn a_rename_of_a_file_to_itself_does_nothing(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "text").unwrap();
    fs::hard_link(mount.at("f"), mount.at("g")).unwrap();
    fs::rename(mount.at("f"), mount.at("f")).unwrap();
    // Both names stay, as POSIX demands.
    fs::rename(mount.at("f"), mount.at("g")).unwrap();
    assert_eq!(names(mount.path()), ["f", "g"]);
}

fn a_directory_cannot_move_below_itself(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir_all(mount.at("d/e/f")).unwrap();
    let refused = refused(fs::rename(mount.at("d"), mount.at("d/e/f/d")));
    assert_eq!(refused, Errno::INVAL);
    assert_eq!(names(mount.at("d/e")), ["f"]);
}

fn rename_noreplace_needs_a_free_name(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "f").unwrap();
    fs::write(mount.at("g"), "g").unwrap();
    let rename = |from: &str, to: &str| {
        renameat_with(CWD, mount.at(from), CWD, mount.at(to), RenameFlags::NOREPLACE)
    };
    assert_eq!(refused(rename("f", "g")), Errno::EXIST);
    rename("f", "h").unwrap();
    assert_eq!(names(mount.path()), ["g", "h"]);
}

fn two_names_can_be_exchanged(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir_all(mount.at("d/sub")).unwrap();
    fs::create_dir(mount.at("e")).unwrap();
    fs::write(mount.at("e/f"), "text").unwrap();
    let exchange = |from: &str, to: &str| {
        renameat_with(CWD, mount.at(from), CWD, mount.at(to), RenameFlags::EXCHANGE)
    };
    exchange("d/sub", "e/f").unwrap();
    assert_eq!(fs::read(mount.at("d/sub")).unwrap(), b"text");
    assert!(fs::metadata(mount.at("e/f")).unwrap().is_dir());
    let links = |path: &str| fs::metadata(mount.at(path)).unwrap().nlink();
    assert_eq!((links("d"), links("e")), (2, 3));
    assert_eq!(refused(exchange("d/sub", "none")), Errno::NOENT);
}

fn rename_with_a_whiteout_is_refused(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "text").unwrap();
    let rename = renameat_with(CWD, mount.at("f"), CWD, mount.at("g"), RenameFlags::WHITEOUT);
    assert_eq!(refused(rename), Errno::OPNOTSUPP);
    assert_eq!(names(mount.path()), ["f"]);
}

fn a_sticky_directory_protects_its_files(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    rustix::fs::chmod(mount.at("d"), Mode::from_raw_mode(0o1777)).unwrap();
    as_user(SOMEBODY, || fs::write(mount.at("d/theirs"), "").unwrap());
    as_user(SOMEBODY + 1, || {
        assert_eq!(refused(fs::remove_file(mount.at("d/theirs"))), Errno::PERM);
        let rename = fs::rename(mount.at("d/theirs"), mount.at("d/mine"));
        assert_eq!(refused(rename), Errno::PERM);
    });
    as_user(SOMEBODY, || fs::remove_file(mount.at("d/theirs")).unwrap());
}

fn a_setgid_directory_passes_on_its_group(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    std::os::unix::fs::chown(mount.at("d"), Some(0), Some(77)).unwrap();
    rustix::fs::chmod(mount.at("d"), Mode::from_raw_mode(0o2777)).unwrap();
    as_user(SOMEBODY, || {
        fs::write(mount.at("d/f"), "").unwrap();
        fs::create_dir(mount.at("d/sub")).unwrap();
    });
    let (file, dir) =
        (fs::metadata(mount.at("d/f")).unwrap(), fs::metadata(mount.at("d/sub")).unwrap());
    assert_eq!((file.uid(), file.gid()), (SOMEBODY, 77));
    assert_eq!((dir.uid(), dir.gid()), (SOMEBODY, 77));
    assert_eq!(dir.mode() & 0o2000, 0o2000);
}

fn the_umask_of_the_process_applies(fixture: &Fixture) {
    let mount = fixture.start();
    // In its own process: the umask is that of all threads.
    let script = "umask 027; cd \"$1\"; mkdir d; : >f; mkfifo p";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, "sh"]).arg(mount.path());
    crate::support::command::run(command, crate::support::fixture::PATIENCE).ok();
    let mode = |name: &str| fs::metadata(mount.at(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("d"), mode("f"), mode("p")), (0o750, 0o640, 0o640));
}

fn dot_and_dot_dot_resolve_correctly(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir_all(mount.at("d/e")).unwrap();
    let ino = |path: &str| fs::metadata(mount.at(path)).unwrap().ino();
    assert_eq!(ino("d/e/.."), ino("d"));
    assert_eq!(ino("d/e/../.."), 1);
    let outside = fs::metadata(fixture.folder()).unwrap().ino();
    assert_eq!(ino(".."), outside);
    let within = open(mount.at("d/e/../f"));
    drop(within);
    assert_eq!(names(mount.at("d")), ["e", "f"]);
}
