//! Leaked objects, and data that waits for deletion.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use jfs::meta::engine::Change;
use jfs::meta::{Ino, Name};

use crate::damage::Metadata;
use crate::numbers::{BOTH, Tool, same_fsck, same_gc};
use crate::on_both;
use crate::scene::{bytes, leak, make_old, objects, write_by_both};
use crate::support::fixture::{Client, Fixture, with};

on_both! {
    leaked_objects_are_found_and_deleted_alike,
    young_objects_and_foreign_names_are_left_alone,
    files_that_wait_for_deletion_are_cleaned_alike,
    slices_that_wait_for_deletion_are_cleaned_alike,
    replaced_slices_are_counted_alike_and_kept,
    chunks_are_compacted_alike,
    a_slice_in_use_without_references_is_reported_and_kept,
    a_chunk_without_a_file_is_deleted,
}

#[test]
fn leaked_objects_are_found_on_tikv() {
    with(Fixture::tikv, leaked_objects_are_found_and_deleted_alike);
}

fn leaked_objects_are_found_and_deleted_alike(fixture: &Fixture) {
    fixture.format(&[]);
    write_by_both(fixture);
    let kept = objects(fixture);
    for deleter in BOTH {
        let id = Metadata::of(fixture).slices(Metadata::of(fixture).ino("/go/large"))[0].id.0;
        leak(fixture, 777_777, 100);
        leak(fixture, 123_456_789, 4 << 20);
        // The id of a slice in use, and no block of it.
        leak(fixture, id, 99);
        let found = same_gc(fixture);
        assert_eq!((found.count("leaked"), found.count("valid")), (3, kept.len() as u64));
        deleter.gc(fixture, &["--delete"]);
        assert_eq!(objects(fixture), kept, "{deleter:?}");
        assert_eq!(same_gc(fixture).count("leaked"), 0);
        assert!(same_fsck(fixture, &[]).is_clean);
    }
}

fn young_objects_and_foreign_names_are_left_alone(fixture: &Fixture) {
    fixture.format(&[]);
    write_by_both(fixture);
    let old = leak(fixture, 777_777, 100);
    let young = leak(fixture, 777_778, 100);
    File::options()
        .write(true)
        .open(&young)
        .unwrap()
        .set_modified(std::time::SystemTime::now())
        .unwrap();
    let foreign = old.with_file_name("notes.txt");
    fs::write(&foreign, "x").unwrap();
    make_old(&foreign);
    let found = Tool::Ours.run(fixture, "gc", &["--delete", "--json"]).ok();
    let report: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(report["LeakedObjects"]["Count"], 1);
    assert_eq!((old.exists(), young.exists(), foreign.exists()), (false, true, true));
}

fn files_that_wait_for_deletion_are_cleaned_alike(fixture: &Fixture) {
    fixture.format(&[]);
    for cleaner in BOTH {
        let mount = fixture.mount_by(Client::Go, &[]);
        for number in 0..5 {
            fs::write(mount.at(format!("f{number}")), bytes(number, 3000)).unwrap();
        }
        mount.unmount();
        // As a client leaves it that dies right after it removed them.
        let metadata = Metadata::of(fixture);
        for number in 0..5 {
            let (name, ino) = (format!("f{number}"), metadata.ino(&format!("/f{number}")));
            metadata.commit(&[
                Change::RemoveAttr(ino),
                Change::RemoveEntry(Ino::ROOT, Name::new(&name).unwrap()),
                Change::PutDeletedFile { ino, length: 3000, at: 1_700_000_000 },
            ]);
        }
        assert_eq!(metadata.left_behind(), (0, 5));
        assert_eq!(same_gc(fixture).count("valid"), 5);
        assert_eq!(Tool::Ours.gc(fixture, &[]).count("delfiles"), 0);
        let cleaned = cleaner.gc(fixture, &["--delete"]);
        assert_eq!(cleaned.count("delfiles"), 5, "{cleaner:?}");
        assert_eq!(metadata.left_behind(), (0, 0), "{cleaner:?}");
        // The Go client may not wait for the last objects.
        cleaner.gc(fixture, &["--delete"]);
        assert_eq!(objects(fixture), Vec::<PathBuf>::new(), "{cleaner:?}");
        assert_eq!(same_gc(fixture).count("objects"), 0);
    }
}

fn slices_that_wait_for_deletion_are_cleaned_alike(fixture: &Fixture) {
    fixture.format(&[]);
    for cleaner in BOTH {
        // Leaves the deletion of objects to others.
        let mount = fixture.mount_by(Client::Go, &["--max-deletes", "0"]);
        for number in 0..5 {
            fs::write(mount.at(format!("f{number}")), bytes(number, 3000)).unwrap();
            fs::remove_file(mount.at(format!("f{number}"))).unwrap();
        }
        mount.unmount();
        assert_eq!(same_gc(fixture).count("pending delete"), 5);
        for _ in 0..2 {
            cleaner.gc(fixture, &["--delete"]);
        }
        assert_eq!(objects(fixture), Vec::<PathBuf>::new(), "{cleaner:?}");
        assert_eq!(same_gc(fixture).count("objects"), 0);
    }
}

/// Writes a file in many slices.
fn fragmented(fixture: &Fixture, name: &str) {
    let mount = fixture.mount_by(Client::Go, &[]);
    let file = File::create(mount.at(name)).unwrap();
    for number in 0..4 {
        file.write_all_at(&bytes(number, 3000), number as u64 * 3000).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    mount.unmount();
}

fn replaced_slices_are_counted_alike_and_kept(fixture: &Fixture) {
    fixture.format(&["--trash-days", "1"]);
    for compacter in BOTH {
        let name = format!("{compacter:?}");
        fragmented(fixture, &name);
        compacter.gc(fixture, &["--compact"]);
        let found = same_gc(fixture);
        assert_eq!(found.count("leaked"), 0, "{found:?}");
        assert!(found.count("compacted") >= 4, "{found:?}");
        // Their day is not over.
        let before = objects(fixture);
        Tool::Ours.gc(fixture, &["--delete"]);
        assert_eq!(objects(fixture), before);
        assert!(same_fsck(fixture, &[]).is_clean);
    }
}

fn chunks_are_compacted_alike(fixture: &Fixture) {
    fixture.format(&[]);
    for compacter in BOTH {
        let name = format!("{compacter:?}");
        fragmented(fixture, &name);
        let metadata = Metadata::of(fixture);
        let ino = metadata.ino(&format!("/{name}"));
        assert!(metadata.slices(ino).len() >= 4);
        compacter.gc(fixture, &["--compact", "--delete"]);
        assert_eq!(metadata.slices(ino).len(), 1, "{compacter:?}");
        let mount = fixture.mount_by(Client::Ours, &[]);
        let expected: Vec<u8> = (0..4).flat_map(|number| bytes(number, 3000)).collect();
        assert!(fs::read(mount.at(&name)).unwrap() == expected);
        mount.unmount();
        assert!(same_fsck(fixture, &[]).is_clean);
    }
    Tool::Ours.gc(fixture, &["--delete"]);
    assert_eq!(same_gc(fixture).count("objects"), 2);
}

/// The Go client would delete the objects.
fn a_slice_in_use_without_references_is_reported_and_kept(fixture: &Fixture) {
    fixture.format(&[]);
    write_by_both(fixture);
    let metadata = Metadata::of(fixture);
    let slice = metadata.slices(metadata.ino("/go/below/2"))[0];
    metadata.commit(&[Change::AddSliceRef { slice, by: -1 }]);
    let found = Tool::Ours.run(fixture, "fsck", &[]).refused();
    let expected = format!("slice {} of 102 bytes is in use without references", slice.id);
    assert!(found.stdout.contains(&expected), "{found}");
    let before = objects(fixture);
    for path in &before {
        make_old(path);
    }
    let kept = Tool::Ours.run(fixture, "gc", &["--delete"]).ok();
    assert!(kept.stdout.contains("1 slices in use without references are kept"), "{kept}");
    assert_eq!(objects(fixture), before);
}

fn a_chunk_without_a_file_is_deleted(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount_by(Client::Ours, &[]);
    fs::write(mount.at("kept"), bytes(1, 100)).unwrap();
    fs::write(mount.at("lost"), bytes(2, 100)).unwrap();
    mount.unmount();
    let metadata = Metadata::of(fixture);
    let ino = metadata.ino("/lost");
    let name = Name::new("lost").unwrap();
    metadata.commit(&[Change::RemoveAttr(ino), Change::RemoveEntry(Ino::ROOT, name)]);
    let found = Tool::Ours.run(fixture, "gc", &[]).ok();
    assert!(found.stdout.contains("1 chunks without a file"), "{found}");
    assert_eq!(metadata.slices(ino).len(), 1);
    Tool::Ours.gc(fixture, &["--delete"]);
    assert_eq!((metadata.slices(ino).len(), objects(fixture).len()), (0, 1));
    assert_eq!(same_gc(fixture).count("valid"), 1);
}
