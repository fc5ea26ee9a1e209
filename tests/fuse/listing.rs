//! Directories with many entries.

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::Ordering;

use jfs::fuse::{InitOptions, PlusMode};

use crate::fixture::Fixture;
use crate::timeout::{MOUNTED, within};

fn list_all(plus: PlusMode) -> (Fixture, usize) {
    let fixture = Fixture::with_init(&InitOptions { plus, ..InitOptions::default() });
    let names: HashSet<String> = (0..10_000).map(|n| format!("entry-{n:05}")).collect();
    for name in &names {
        fixture.file(name, name.as_bytes());
    }
    let listed: Vec<String> = fs::read_dir(fixture.point())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(listed.len(), names.len());
    assert!(listed.into_iter().collect::<HashSet<_>>() == names);
    let plus = fixture.fs.seen.plus.load(Ordering::SeqCst);
    (fixture, plus)
}

#[test]
fn ten_thousand_entries_are_listed_once_each() {
    within(MOUNTED, || {
        let (_rig, plus) = list_all(PlusMode::Never);
        assert_eq!(plus, 0);
    });
}

#[test]
fn ten_thousand_entries_are_listed_with_their_attributes() {
    within(MOUNTED, || {
        let (fixture, plus) = list_all(PlusMode::Always);
        assert!(plus > 0);
        for entry in fs::read_dir(fixture.point()).unwrap().take(100) {
            assert_eq!(entry.unwrap().metadata().unwrap().len(), 11);
        }
    });
}

#[test]
fn types_are_listed() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fs::create_dir(fixture.path("d")).unwrap();
        fs::write(fixture.path("f"), "").unwrap();
        std::os::unix::fs::symlink("f", fixture.path("l")).unwrap();
        let mut found: Vec<(String, bool, bool)> = fs::read_dir(fixture.point())
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                (entry.file_name().into_string().unwrap(), kind.is_dir(), kind.is_symlink())
            })
            .collect();
        found.sort();
        let expected = [("d", true, false), ("f", false, false), ("l", false, true)];
        assert!(found.iter().map(|(n, d, l)| (n.as_str(), *d, *l)).eq(expected));
    });
}
