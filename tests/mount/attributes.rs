//! Attributes: who may change them, and what changes them implicitly.

use std::fs::{self, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};
use rustix::io::Errno;

use crate::fixture::{KIB, SOMEBODY, as_user, open, refused};
use crate::on_both;
use crate::support::fixture::{Client, Fixture};

on_both! {
    only_the_owner_changes_the_mode,
    only_root_changes_the_owner,
    changing_the_owner_clears_setuid_and_setgid,
    writing_clears_setuid_and_setgid,
    times_are_kept_to_the_nanosecond,
    times_before_1970_are_kept_to_the_second,
    setting_the_same_length_updates_the_times,
    a_group_member_keeps_setgid_without_group_execute,
    times_can_be_left_alone_or_set_to_now,
    only_the_owner_sets_times,
    a_change_of_content_updates_the_times,
    a_change_of_a_name_updates_the_times,
    length_and_blocks_match_the_content,
    access_follows_the_mode,
    a_change_through_a_handle_is_a_change_of_the_file,
}

fn only_the_owner_changes_the_mode(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "").unwrap();
    let chmod = |mode| fs::set_permissions(mount.at("f"), Permissions::from_mode(mode));
    let mode = || fs::metadata(mount.at("f")).unwrap().mode() & 0o7777;
    for bits in [0o000, 0o4755, 0o2750, 0o1777, 0o7777, 0o644] {
        chmod(bits).unwrap();
        assert_eq!(mode(), bits);
    }
    assert_eq!(as_user(SOMEBODY, || refused(chmod(0o777))), Errno::PERM);
    chown(mount.at("f"), Some(SOMEBODY), Some(77)).unwrap();
    // A user outside the file's group cannot set setgid on it.
    as_user(SOMEBODY, || chmod(0o2755).unwrap());
    assert_eq!(mode(), 0o755);
}

fn only_root_changes_the_owner(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "").unwrap();
    std::os::unix::fs::symlink("f", mount.at("s")).unwrap();
    chown(mount.at("f"), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let found = fs::metadata(mount.at("f")).unwrap();
    assert_eq!((found.uid(), found.gid()), (SOMEBODY, SOMEBODY));
    as_user(SOMEBODY, || {
        assert_eq!(refused(chown(mount.at("f"), Some(0), None)), Errno::PERM);
        assert_eq!(refused(chown(mount.at("f"), None, Some(0))), Errno::PERM);
        // To its current group, which they belong to: no change, so it is allowed.
        chown(mount.at("f"), None, Some(SOMEBODY)).unwrap();
    });
    lchown(mount.at("s"), Some(7), Some(8)).unwrap();
    let link = fs::symlink_metadata(mount.at("s")).unwrap();
    assert_eq!((link.uid(), link.gid()), (7, 8));
    assert_eq!(fs::metadata(mount.at("f")).unwrap().uid(), SOMEBODY);
}

fn changing_the_owner_clears_setuid_and_setgid(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "").unwrap();
    chown(mount.at("f"), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    fs::set_permissions(mount.at("f"), Permissions::from_mode(0o6755)).unwrap();
    as_user(SOMEBODY, || chown(mount.at("f"), None, Some(SOMEBODY)).unwrap());
    assert_eq!(fs::metadata(mount.at("f")).unwrap().mode() & 0o7777, 0o755);
}

fn writing_clears_setuid_and_setgid(fixture: &Fixture) {
    let mount = fixture.start();
    for act in ["write", "truncate"] {
        fs::write(mount.at("f"), "text").unwrap();
        fs::set_permissions(mount.at("f"), Permissions::from_mode(0o6777)).unwrap();
        as_user(SOMEBODY, || {
            let file = fs::OpenOptions::new().write(true).open(mount.at("f")).unwrap();
            match act {
                "write" => file.write_all_at(b"x", 0).unwrap(),
                _ => file.set_len(1).unwrap(),
            }
        });
        assert_eq!(fs::metadata(mount.at("f")).unwrap().mode() & 0o7777, 0o777, "{act}");
    }
}

fn times_are_kept_to_the_nanosecond(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "").unwrap();
    let early = UNIX_EPOCH + Duration::new(1, 1);
    let late = UNIX_EPOCH + Duration::new(5_000_000_000, 999_999_999);
    for (atime, mtime) in [(early, late), (late, early)] {
        let times = FileTimes::new().set_accessed(atime).set_modified(mtime);
        open(mount.at("f")).set_times(times).unwrap();
        let found = fs::metadata(mount.at("f")).unwrap();
        assert_eq!((found.accessed().unwrap(), found.modified().unwrap()), (atime, mtime));
    }
    let symlink_times = Timestamps { last_access: time(3, 4), last_modification: time(5, 6) };
    std::os::unix::fs::symlink("f", mount.at("s")).unwrap();
    utimensat(CWD, mount.at("s"), &symlink_times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    let link = fs::symlink_metadata(mount.at("s")).unwrap();
    assert_eq!((link.mtime(), link.mtime_nsec()), (5, 6));
}

fn times_before_1970_are_kept_to_the_second(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount(&[]);
    fs::write(mount.at("f"), "").unwrap();
    let times = Timestamps { last_access: time(-1, 0), last_modification: time(-86_400, 5) };
    utimensat(CWD, mount.at("f"), &times, AtFlags::empty()).unwrap();
    mount.unmount();
    for client in [Client::tested(), Client::Go] {
        let mount = fixture.mount_by(client, &[]);
        let found = fs::metadata(mount.at("f")).unwrap();
        assert_eq!((found.atime(), found.atime_nsec()), (-1, 0));
        assert_eq!((found.mtime(), found.mtime_nsec()), (-86_400, 0));
        mount.unmount();
    }
}

fn setting_the_same_length_updates_the_times(fixture: &Fixture) {
    let mount = fixture.start();
    let path = mount.at("f");
    let old = UNIX_EPOCH + Duration::from_secs(1);
    for content in ["", "text"] {
        fs::write(&path, content).unwrap();
        let truncate = |file: &fs::File| file.set_len(content.len() as u64).unwrap();
        let reopen = |_: &fs::File| drop(fs::File::create(&path).unwrap());
        let acts: [&dyn Fn(&fs::File); 2] = [&truncate, &reopen];
        for act in acts {
            let file = open(&path);
            file.set_times(FileTimes::new().set_modified(old)).unwrap();
            let before = fs::metadata(&path).unwrap();
            act(&file);
            let after = fs::metadata(&path).unwrap();
            assert!(after.modified().unwrap() > old, "{content:?}");
            let ctime = |it: &fs::Metadata| (it.ctime(), it.ctime_nsec());
            assert!(ctime(&after) > ctime(&before), "{content:?}");
        }
    }
}

fn a_group_member_keeps_setgid_without_group_execute(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "").unwrap();
    chown(mount.at("f"), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    for (before, after) in [(0o6644, 0o2644), (0o2654, 0o654)] {
        fs::set_permissions(mount.at("f"), Permissions::from_mode(before)).unwrap();
        as_user(SOMEBODY, || chown(mount.at("f"), None, Some(SOMEBODY)).unwrap());
        assert_eq!(fs::metadata(mount.at("f")).unwrap().mode() & 0o7777, after);
    }
}

fn times_can_be_left_alone_or_set_to_now(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "").unwrap();
    let set = |last_access, last_modification| {
        let times = Timestamps { last_access, last_modification };
        utimensat(CWD, mount.at("f"), &times, AtFlags::empty()).unwrap();
        let found = fs::metadata(mount.at("f")).unwrap();
        (found.atime(), found.mtime())
    };
    let (omit, now) = (special(UTIME_OMIT), special(UTIME_NOW));
    assert_eq!(set(time(10, 0), time(20, 0)), (10, 20));
    assert_eq!(set(omit, time(30, 0)), (10, 30));
    assert_eq!(set(time(40, 0), omit), (40, 30));
    assert_eq!(set(omit, omit), (40, 30));
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    let (atime, mtime) = set(now, omit);
    assert!(atime >= before && mtime == 30);
    let (_, mtime) = set(omit, now);
    assert!(mtime >= before);
}

fn only_the_owner_sets_times(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "").unwrap();
    fs::set_permissions(mount.at("f"), Permissions::from_mode(0o666)).unwrap();
    let set = |last_access, last_modification| {
        let times = Timestamps { last_access, last_modification };
        utimensat(CWD, mount.at("f"), &times, AtFlags::empty())
    };
    as_user(SOMEBODY, || {
        assert_eq!(refused(set(time(1, 0), time(1, 0))), Errno::PERM);
        // Write permission allows setting times to now.
        set(special(UTIME_NOW), special(UTIME_NOW)).unwrap();
    });
    fs::set_permissions(mount.at("f"), Permissions::from_mode(0o644)).unwrap();
    let now = as_user(SOMEBODY, || refused(set(special(UTIME_NOW), special(UTIME_NOW))));
    assert_eq!(now, Errno::ACCESS);
}

fn a_change_of_content_updates_the_times(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "text").unwrap();
    let back = || {
        let times = Timestamps { last_access: time(1, 0), last_modification: time(1, 0) };
        utimensat(CWD, mount.at("f"), &times, AtFlags::empty()).unwrap();
    };
    let mtime = || fs::metadata(mount.at("f")).unwrap().mtime();
    back();
    let file = open(mount.at("f"));
    assert_eq!(mtime(), 1);
    file.write_all_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    assert!(mtime() > 1, "after a write");
    back();
    file.set_len(2).unwrap();
    assert!(mtime() > 1, "after a cut");
    back();
    // Explicit times hold, though the file was written before and is closed after.
    file.write_all_at(b"y", 0).unwrap();
    back();
    drop(file);
    assert_eq!(mtime(), 1);
}

fn a_change_of_a_name_updates_the_times(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("f"), "").unwrap();
    let back = || {
        let times = Timestamps { last_access: time(1, 0), last_modification: time(1, 0) };
        utimensat(CWD, mount.at("d"), &times, AtFlags::empty()).unwrap();
    };
    let mtime = || fs::metadata(mount.at("d")).unwrap().mtime();
    for act in ["create", "mkdir", "link", "rename in", "rename out", "unlink", "rmdir"] {
        back();
        match act {
            "create" => fs::write(mount.at("d/new"), "").unwrap(),
            "mkdir" => fs::create_dir(mount.at("d/sub")).unwrap(),
            "link" => fs::hard_link(mount.at("f"), mount.at("d/link")).unwrap(),
            "rename in" => fs::rename(mount.at("f"), mount.at("d/f")).unwrap(),
            "rename out" => fs::rename(mount.at("d/f"), mount.at("f")).unwrap(),
            "unlink" => fs::remove_file(mount.at("d/new")).unwrap(),
            _ => fs::remove_dir(mount.at("d/sub")).unwrap(),
        }
        assert!(mtime() > 1, "after {act}");
    }
}

fn length_and_blocks_match_the_content(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    for (at, length) in [(0, 1), (5000, 5001), (300 * KIB, 300 * KIB + 1)] {
        file.write_all_at(b"x", at).unwrap();
        let found = fs::metadata(mount.at("f")).unwrap();
        assert_eq!((found.size(), found.blocks()), (length, length.div_ceil(512)));
    }
    file.set_len(10).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 10);
    assert_eq!(fs::metadata(mount.at("f")).unwrap().size(), 10);
    file.set_len(1 << 40).unwrap();
    assert_eq!(fs::metadata(mount.at("f")).unwrap().size(), 1 << 40);
}

fn access_follows_the_mode(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("d/f"), "text").unwrap();
    let chmod = |path: &str, mode| {
        fs::set_permissions(mount.at(path), Permissions::from_mode(mode)).unwrap();
    };
    chmod("d/f", 0o600);
    assert_eq!(as_user(SOMEBODY, || refused(fs::read(mount.at("d/f")))), Errno::ACCESS);
    chmod("d/f", 0o604);
    as_user(SOMEBODY, || {
        assert_eq!(fs::read(mount.at("d/f")).unwrap(), b"text");
        assert_eq!(refused(fs::write(mount.at("d/f"), "")), Errno::ACCESS);
        assert_eq!(refused(fs::write(mount.at("d/g"), "")), Errno::ACCESS);
    });
    chmod("d", 0o700);
    as_user(SOMEBODY, || {
        assert_eq!(refused(fs::read(mount.at("d/f"))), Errno::ACCESS);
        assert_eq!(refused(fs::read_dir(mount.at("d")).map(|_| ())), Errno::ACCESS);
    });
}

fn a_change_through_a_handle_is_a_change_of_the_file(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::fchown(&file, Some(5), Some(6)).unwrap();
    fs::rename(mount.at("f"), mount.at("g")).unwrap();
    file.set_len(3).unwrap();
    let found = fs::metadata(mount.at("g")).unwrap();
    let seen = (found.mode() & 0o7777, found.uid(), found.gid(), found.size());
    assert_eq!(seen, (0o600, 5, 6, 3));
}

fn time(sec: i64, nsec: i64) -> Timespec {
    Timespec { tv_sec: sec, tv_nsec: nsec }
}

fn special(what: i64) -> Timespec {
    time(0, what)
}
