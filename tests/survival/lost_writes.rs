//! Data that was written and not stored when the server died is reported as lost, never silently.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;

use crate::appender::{Appended, Appender};
use crate::kept_mount::KeptMount;
use crate::support::fixture::Fixture;
use crate::{on_both, without_resend};

on_both! {
    a_lost_write_is_reported_to_everyone_who_has_the_file_open,
    a_hand_over_loses_nothing,
    every_acknowledged_line_is_there_once,
}

without_resend! {
    a_lost_write_is_reported_to_everyone_who_has_the_file_open,
    a_hand_over_loses_nothing,
    every_acknowledged_line_is_there_once,
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

fn a_lost_write_is_reported_to_everyone_who_has_the_file_open(fixture: &Fixture) {
    const EIO: Option<i32> = Some(Errno::EIO as i32);
    fixture.format(&[]);
    let mount = KeptMount::start(fixture, &[]);
    let path = mount.path().join("f");
    fs::write(&path, "stored").unwrap();
    let other = mount.path().join("other");
    fs::write(&other, "stored").unwrap();
    let clean = OpenOptions::new().read(true).write(true).open(&other).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"lost", 0).unwrap();
    mount.kill_server();
    assert_eq!(errno(file.write_all_at(b"later", 100)), EIO, "{}", mount.log());
    assert_eq!(errno(file.sync_all()), EIO);
    // A file without lost data works.
    clean.write_all_at(b"later", 0).unwrap();
    clean.sync_all().unwrap();
    // Even after another crash.
    mount.kill_server();
    assert_eq!(errno(file.sync_all()), EIO);
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"stored");
    fs::write(&path, "again").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"again");
    drop(clean);
    mount.unmount();
    fixture.check_blocks();
}

fn a_hand_over_loses_nothing(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = KeptMount::start(fixture, &[]);
    let path = mount.path().join("f");
    let mut file = fs::File::create(&path).unwrap();
    let mut expected = Vec::new();
    for round in 0..6_u8 {
        let part = vec![round; 700_000];
        file.write_all(&part).unwrap();
        expected.extend(part);
        mount.replace_server();
    }
    let mut found = Vec::new();
    fs::File::open(&path).unwrap().read_to_end(&mut found).unwrap();
    assert!(found == expected);
    drop(file);
    mount.unmount();
    fixture.check();
}

fn every_acknowledged_line_is_there_once(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = KeptMount::start(fixture, &[]);
    let path = mount.path().join("log");
    let appender = Appender::start(&path, &fixture.folder().join("appended"));
    mount.disturb(16, 3);
    let Some(Appended { lines, errors }) = appender.finish() else {
        panic!("the program failed:\n{}", mount.log());
    };
    let expected: Vec<String> = (0..lines).map(|line| line.to_string()).collect();
    let found = fs::read_to_string(&path).unwrap();
    assert_eq!(found.lines().collect::<Vec<_>>(), expected, "after {errors} errors");
    assert!(lines > 16);
    mount.unmount();
    // Objects of writes that were lost may be left over.
    fixture.go.run("fsck", &[]).ok();
}
