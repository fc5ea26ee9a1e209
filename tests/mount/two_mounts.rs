//! Two mounts of one volume: opening a file shows what was closed before on the other.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::fixture::{MIB, assert_same, bytes, names, open};
use crate::on_both;
use crate::support::fixture::{Client, Fixture, Mounted, eventually};

on_both! {
    files_closed_on_one_of_our_mounts_are_seen_on_the_other,
    files_closed_by_either_client_are_seen_by_the_other,
    names_created_on_one_of_our_mounts_are_seen_on_the_other,
    names_created_by_either_client_are_seen_by_the_other,
    a_file_open_elsewhere_is_read_up_to_what_was_synced,
    regression_two_of_ours_append_in_turns,
}

fn files_closed_on_one_of_our_mounts_are_seen_on_the_other(fixture: &Fixture) {
    fixture.format(&[]);
    close_to_open(&fixture.mount(&[]), &fixture.mount(&[]));
    fixture.check();
}

fn files_closed_by_either_client_are_seen_by_the_other(fixture: &Fixture) {
    fixture.format(&[]);
    close_to_open(&fixture.mount(&[]), &fixture.mount_by(Client::Go, &[]));
    fixture.check_blocks();
}

/// Both have the file in all their caches before the other changes it.
fn close_to_open(one: &Mounted, two: &Mounted) {
    for turn in 0..12 {
        let (writer, reader) = if turn % 2 == 0 { (one, two) } else { (two, one) };
        let content = bytes(turn, (turn + 1) * MIB / 2 + turn);
        match turn % 4 {
            // Recreated, shorter or longer; in place; truncated and written again.
            0 | 1 => fs::write(writer.at("f"), &content).unwrap(),
            2 => {
                let file = open(writer.at("f"));
                file.write_all_at(&content, 0).unwrap();
                file.set_len(content.len() as u64).unwrap();
            }
            _ => {
                let file = open(writer.at("f"));
                file.set_len(0).unwrap();
                file.write_all_at(&content, 0).unwrap();
            }
        }
        let file = fs::File::open(reader.at("f")).unwrap();
        assert_eq!(file.metadata().unwrap().size(), content.len() as u64, "turn {turn}");
        let mut found = vec![0; content.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_same(&found, &content);
        // Of the same length, so that only the times differ.
        let other = bytes(turn + 100, content.len() as u64);
        fs::write(writer.at("f"), &other).unwrap();
        assert_same(&fs::read(reader.at("f")).unwrap(), &other);
    }
}

fn names_created_on_one_of_our_mounts_are_seen_on_the_other(fixture: &Fixture) {
    fixture.format(&[]);
    names_come(&fixture.mount(&[]), &fixture.mount(&[]));
}

fn names_created_by_either_client_are_seen_by_the_other(fixture: &Fixture) {
    fixture.format(&[]);
    let (ours, go) = (fixture.mount(&[]), fixture.mount_by(Client::Go, &[]));
    names_come(&ours, &go);
    fs::remove_dir_all(ours.at("d")).unwrap();
    eventually("it is gone there", || !go.at("d").exists());
    names_come(&go, &ours);
}

fn names_come(one: &Mounted, two: &Mounted) {
    fs::create_dir(one.at("d")).unwrap();
    for n in 0..30 {
        fs::write(one.at(format!("d/f{n:02}")), format!("{n}")).unwrap();
    }
    // A name that was looked up in vain may be cached as missing for a moment, but no longer.
    eventually("all names come", || two.at("d").exists() && names(two.at("d")).len() == 30);
    assert_eq!(fs::read(two.at("d/f17")).unwrap(), b"17");
    fs::rename(two.at("d/f17"), two.at("d/g")).unwrap();
    fs::remove_file(two.at("d/f00")).unwrap();
    eventually("the changes come back", || {
        let found = names(one.at("d"));
        found.len() == 29 && found.contains(&"g".to_owned()) && !one.at("d/f17").exists()
    });
    assert_eq!(fs::read(one.at("d/g")).unwrap(), b"17");
}

fn a_file_open_elsewhere_is_read_up_to_what_was_synced(fixture: &Fixture) {
    fixture.format(&[]);
    let (one, two) = (fixture.mount(&[]), fixture.mount(&[]));
    let writer = open(one.at("f"));
    let mut all = Vec::new();
    for turn in 0..5 {
        let part = bytes(turn, MIB + turn);
        writer.write_all_at(&part, all.len() as u64).unwrap();
        all.extend(part);
        writer.sync_all().unwrap();
        assert_same(&fs::read(two.at("f")).unwrap(), &all);
    }
}

fn regression_two_of_ours_append_in_turns(fixture: &Fixture) {
    use std::io::Write;
    fixture.format(&[]);
    let (one, two) = (fixture.mount(&[]), fixture.mount(&[]));
    let mut expected = String::new();
    for turn in 0..20 {
        let mount = if turn % 2 == 0 { &one } else { &two };
        let mut options = fs::OpenOptions::new();
        let mut file = options.append(true).create(true).open(mount.at("log")).unwrap();
        let line = format!("line {turn}\n");
        file.write_all(line.as_bytes()).unwrap();
        expected += &line;
    }
    assert_eq!(fs::read_to_string(one.at("log")).unwrap(), expected);
    assert_eq!(fs::read_to_string(two.at("log")).unwrap(), expected);
}
