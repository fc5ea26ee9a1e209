//! Directories with many entries.

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::Ordering;

use jfs::fuse::{PlusMode, Wishes};

use crate::rig::Rig;
use crate::timeout::{MOUNTED, within};

fn list_all(plus: PlusMode) -> (Rig, usize) {
    let rig = Rig::wishing(&Wishes { plus, ..Wishes::default() });
    let names: HashSet<String> = (0..10_000).map(|n| format!("entry-{n:05}")).collect();
    for name in &names {
        rig.file(name, name.as_bytes());
    }
    let listed: Vec<String> = fs::read_dir(rig.point())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(listed.len(), names.len());
    assert!(listed.into_iter().collect::<HashSet<_>>() == names);
    let plus = rig.synth.seen.plus.load(Ordering::SeqCst);
    (rig, plus)
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
        let (rig, plus) = list_all(PlusMode::Always);
        assert!(plus > 0);
        for entry in fs::read_dir(rig.point()).unwrap().take(100) {
            assert_eq!(entry.unwrap().metadata().unwrap().len(), 11);
        }
    });
}

#[test]
fn types_are_listed() {
    within(MOUNTED, || {
        let rig = Rig::new();
        fs::create_dir(rig.path("d")).unwrap();
        fs::write(rig.path("f"), "").unwrap();
        std::os::unix::fs::symlink("f", rig.path("l")).unwrap();
        let mut found: Vec<(String, bool, bool)> = fs::read_dir(rig.point())
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
