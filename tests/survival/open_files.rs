//! What is open or locked stays so.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use nix::fcntl::{Flock, FlockArg};

use crate::kept_mount::KeptMount;
use crate::support::fixture::{Client, Fixture};
use crate::{on_both, without_resend};

on_both! {
    open_files_go_on,
    removed_files_that_are_open_keep_their_content,
    removed_files_in_the_trash_can_be_written,
    locks_stay_held,
    a_listing_goes_on,
    the_session_is_the_same_and_ends_with_the_mount,
}

without_resend! {
    open_files_go_on,
    removed_files_that_are_open_keep_their_content,
    locks_stay_held,
    a_listing_goes_on,
    the_session_is_the_same_and_ends_with_the_mount,
}

/// Runs a check after a kill, after a hand-over, and after another kill.
fn after_each(mount: &KeptMount, mut check: impl FnMut(u32)) {
    mount.kill_server();
    check(1);
    mount.replace_server();
    check(2);
    mount.kill_server();
    check(3);
}

fn open_files_go_on(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = KeptMount::start(fixture, &[]);
    let path = mount.path().join("f");
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).unwrap();
    let mut expected = String::from("begin\n");
    file.write_all(expected.as_bytes()).unwrap();
    file.sync_all().unwrap();
    after_each(&mount, |round| {
        let line = format!("round {round}\n");
        file.write_all(line.as_bytes()).unwrap();
        expected.push_str(&line);
        file.sync_all().unwrap();
        let mut found = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut found).unwrap();
        assert_eq!(found, expected);
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    });
    drop(file);
    mount.unmount();
    // Not the usage of directories: some seconds of it are lost with a process that is killed.
    fixture.check_blocks();
}

fn removed_files_that_are_open_keep_their_content(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = KeptMount::start(fixture, &[]);
    let open = |name: &str| {
        let path = mount.path().join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        file.write_all_at(b"content", 0).unwrap();
        file.sync_all().unwrap();
        file
    };
    let (before, after) = (open("before"), open("after"));
    fs::remove_file(mount.path().join("before")).unwrap();
    after_each(&mount, |round| {
        if round == 1 {
            fs::remove_file(mount.path().join("after")).unwrap();
        }
        for file in [&before, &after] {
            let mut found = [0; 7];
            file.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(&found, b"content");
            file.write_all_at(b"more", 100 * u64::from(round)).unwrap();
            file.sync_all().unwrap();
        }
    });
    drop((before, after));
    mount.unmount();
    // Nothing of them is left.
    fixture.check_blocks();
}

fn removed_files_in_the_trash_can_be_written(fixture: &Fixture) {
    fixture.format(&["--trash-days", "1"]);
    let mount = KeptMount::start(fixture, &[]);
    let path = mount.path().join("f");
    let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(b"content", 0).unwrap();
    file.sync_all().unwrap();
    fs::remove_file(&path).unwrap();
    after_each(&mount, |round| {
        file.write_all_at(b"more", 100 * u64::from(round)).unwrap();
        file.sync_all().unwrap();
    });
    drop(file);
    mount.unmount();
    fixture.check_blocks();
}

fn locks_stay_held(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = KeptMount::start(fixture, &[]);
    let other = fixture.mount_by(Client::Go, &[]);
    fs::write(mount.path().join("f"), "").unwrap();
    let lock = |path: &std::path::Path| {
        let file = File::options().read(true).write(true).open(path.join("f")).unwrap();
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)
    };
    let held = lock(mount.path()).unwrap();
    after_each(&mount, |_| {
        assert_eq!(lock(other.path()).err(), Some(nix::errno::Errno::EAGAIN));
        assert_eq!(lock(mount.path()).err(), Some(nix::errno::Errno::EAGAIN));
    });
    held.unlock().map_err(|(_, errno)| errno).unwrap();
    drop(lock(other.path()).unwrap());
    drop(other);
    mount.unmount();
}

fn a_listing_goes_on(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = KeptMount::start(fixture, &[]);
    let dir = mount.path().join("d");
    fs::create_dir(&dir).unwrap();
    for n in 0..2000 {
        File::create(dir.join(format!("{n:04}"))).unwrap();
    }
    let mut listing = fs::read_dir(&dir).unwrap();
    let mut names: Vec<String> = Vec::new();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    names.extend(listing.by_ref().take(500).map(|entry| name(entry).into_string().unwrap()));
    mount.kill_server();
    names.extend(listing.by_ref().map(|entry| name(entry).into_string().unwrap()));
    drop(listing);
    names.sort();
    assert_eq!(names, (0..2000).map(|n| format!("{n:04}")).collect::<Vec<_>>());
    mount.unmount();
}

fn the_session_is_the_same_and_ends_with_the_mount(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = KeptMount::start(fixture, &[]);
    after_each(&mount, |_| drop(fs::read_dir(mount.path()).unwrap()));
    assert_eq!(mount.sessions().len(), 1, "{}", mount.log());
    mount.unmount();
    let status = fixture.tool("status", &[]).ok();
    assert!(status.stdout.contains("\"Sessions\": []"), "{}", status.stdout);
}
