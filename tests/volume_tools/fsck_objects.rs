//! Objects against metadata.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::damage::Metadata;
use crate::numbers::{Fsck, Tool, same_fsck, same_gc};
use crate::on_both;
use crate::scene::{bytes, object, objects, write_by_both};
use crate::support::fixture::{Client, Fixture, with};

on_both! {
    a_volume_of_both_clients_is_clean_for_both,
    a_missing_object_breaks_the_same_file_for_both,
    a_missing_object_that_two_files_share_breaks_both,
    a_short_object_is_found,
    a_flipped_byte_is_found_by_a_deep_check,
    slices_in_several_passes_give_the_same_result,
}

#[test]
fn a_volume_in_tikv_is_checked_as_well() {
    with(Fixture::tikv, |fixture| {
        a_volume_of_both_clients_is_clean_for_both(fixture);
        fs::remove_file(objects(fixture).pop().unwrap()).unwrap();
        assert_eq!(same_fsck(fixture, &[]).broken.len(), 1);
    });
}

fn a_volume_of_both_clients_is_clean_for_both(fixture: &Fixture) {
    fixture.format(&["--trash-days", "1"]);
    write_by_both(fixture);
    let all = same_fsck(fixture, &[]);
    assert!(all.is_clean);
    assert_eq!(all.found.0, objects(fixture).len() as u64);
    let found = same_gc(fixture);
    assert_eq!((found.count("objects"), found.count("leaked")), (all.found.0, 0));
    assert!(same_fsck(fixture, &["--path", "/", "-r", "--sync-dir-stat"]).is_clean);
    assert!(same_fsck(fixture, &["--path", "/ours/below", "-r"]).is_clean);
}

fn a_missing_object_breaks_the_same_file_for_both(fixture: &Fixture) {
    const BLOCK: u64 = 64 << 10;
    fixture.format(&["--block-size", "64"]);
    for (client, name) in [(Client::Ours, "ours"), (Client::Go, "go")] {
        let mount = fixture.mount_by(client, &[]);
        // One request, so one slice of two blocks; then two more, over parts of the second block.
        fs::write(mount.at(name), bytes(1, 128 << 10)).unwrap();
        let file = File::options().write(true).open(mount.at(name)).unwrap();
        for at in [BLOCK + 100, 2 * BLOCK - 200] {
            file.write_all_at(&bytes(2, 50), at).unwrap();
            file.sync_all().unwrap();
        }
        drop(file);
        mount.unmount();
    }
    let metadata = Metadata::of(fixture);
    let ino = metadata.ino("/go");
    let slice = metadata.slices(ino)[0];
    assert_eq!(u64::from(slice.size), 2 * BLOCK);
    fs::remove_file(object(fixture, &format!("{}_1_{BLOCK}", slice.id))).unwrap();
    for options in [&[][..], &["--path", "/", "-r"], &["--path", "/go"]] {
        let found = same_fsck(fixture, options);
        assert!(!found.is_clean, "{options:?}");
        assert_eq!((found.lost, found.broken), ((1, BLOCK), vec![ino.0]), "{options:?}");
    }
    assert!(same_fsck(fixture, &["--path", "/ours"]).is_clean);
    let json = Tool::Ours.run(fixture, "fsck", &["--json"]).refused().stdout;
    let report: Value = serde_json::from_str(&json).unwrap();
    let file = &report["BrokenFiles"][0];
    assert_eq!(file["Path"], "/go");
    let number = |value: &Value| value.as_u64().unwrap();
    let ranges = file["Lost"].as_array().unwrap().iter();
    let lost: Vec<(u64, u64)> =
        ranges.map(|range| (number(&range["Offset"]), number(&range["Length"]))).collect();
    let between = BLOCK - 200 - 150;
    assert_eq!(lost, [(BLOCK, 100), (BLOCK + 150, between), (2 * BLOCK - 150, 150)]);
}

fn a_missing_object_that_two_files_share_breaks_both(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount_by(Client::Ours, &[]);
    fs::write(mount.at("one"), bytes(1, 5000)).unwrap();
    let mut clone = crate::support::fixture::ours();
    clone.arg("clone").arg(mount.at("one")).arg(mount.at("two"));
    crate::support::command::run(clone, crate::support::fixture::PATIENCE).ok();
    mount.unmount();
    fs::remove_file(objects(fixture).pop().unwrap()).unwrap();
    let found = same_fsck(fixture, &[]);
    assert_eq!((found.lost, found.broken.len()), ((2, 10_000), 2));
}

fn a_short_object_is_found(fixture: &Fixture) {
    fixture.format(&[]);
    write_by_both(fixture);
    let metadata = Metadata::of(fixture);
    let ino = metadata.ino("/ours/below/3");
    let slice = metadata.slices(ino)[0];
    let path = object(fixture, &format!("{}_0_103", slice.id));
    fs::write(&path, b"short").unwrap();
    for options in [&[][..], &["--path", "/ours", "-r"]] {
        let found = Tool::Ours.run(fixture, "fsck", options).refused();
        assert!(found.stdout.contains("has the wrong size of 5 bytes"), "{found}");
        assert_eq!(Fsck::of(&found).broken, [ino.0]);
        assert!(found.stdout.contains("(lost bytes 0-102)"), "{found}");
    }
}

fn a_flipped_byte_is_found_by_a_deep_check(fixture: &Fixture) {
    fixture.format(&["--compress", "lz4"]);
    write_by_both(fixture);
    Tool::Ours.run(fixture, "fsck", &["--deep"]).ok();
    let metadata = Metadata::of(fixture);
    let ino = metadata.ino("/go/below/5");
    let path = object(fixture, &format!("{}_0_105", metadata.slices(ino)[0].id));
    let mut body = fs::read(&path).unwrap();
    // The number of bytes that follow.
    body[0] ^= 0x70;
    fs::write(&path, body).unwrap();
    assert!(same_fsck(fixture, &[]).is_clean);
    for options in [&["--deep"][..], &["--deep", "--path", "/", "-r"]] {
        let found = Tool::Ours.run(fixture, "fsck", options).refused();
        assert_eq!(Fsck::of(&found).broken, [ino.0], "{found}");
        assert!(found.stdout.contains("is damaged"), "{found}");
    }
}

fn slices_in_several_passes_give_the_same_result(fixture: &Fixture) {
    fixture.format(&["--trash-days", "1"]);
    write_by_both(fixture);
    fs::remove_file(objects(fixture).pop().unwrap()).unwrap();
    let [one, many] = [&[][..], &["--max-slices", "10"]]
        .map(|options| Fsck::of(&Tool::Ours.run(fixture, "fsck", options).refused()));
    assert_eq!(one, many);
    let [one, many] = [&[][..], &["--max-slices", "10"]].map(|o| Tool::Ours.gc(fixture, o));
    assert_eq!(one, many);
}
