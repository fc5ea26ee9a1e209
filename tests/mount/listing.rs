//! Listings: every name once, whatever happens meanwhile.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FileType, RawDir, SeekFrom, seek};

use crate::fixture::{names, open};
use crate::on_both;
use crate::support::fixture::{Fixture, Mounted};

/// More than fits into one reply.
const MANY: usize = 10_000;

on_both! {
    ten_thousand_names_are_listed_once_each,
    existing_files_are_listed_once_while_others_come_and_go,
    a_listing_continues_where_it_stopped,
    rewinding_shows_new_entries,
    dots_and_kinds_are_listed,
    a_listing_agrees_with_the_attributes,
}

fn ten_thousand_names_are_listed_once_each(fixture: &Fixture) {
    let mount = fixture.start();
    fill(&mount, MANY);
    let found: Vec<String> = list(&File::open(mount.at("d")).unwrap(), 4096);
    assert_eq!(found.len(), MANY + 2);
    let found: BTreeSet<String> = found.into_iter().collect();
    assert_eq!(found.len(), MANY + 2, "a name is listed twice");
    assert!((0..MANY).all(|n| found.contains(&format!("f{n}"))));
    drop(mount);
    let again = fixture.mount(&[]);
    assert_eq!(names(again.at("d")).len(), MANY);
}

fn existing_files_are_listed_once_while_others_come_and_go(fixture: &Fixture) {
    let mount = fixture.start();
    fill(&mount, 3000);
    let dir = File::open(mount.at("d")).unwrap();
    let mut found = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut listing = RawDir::new(&dir, &mut buffer);
    let mut turn = 0;
    while let Some(entry) = listing.next() {
        found.push(entry.unwrap().file_name().to_str().unwrap().to_owned());
        if found.len() % 50 == 0 {
            // Those with even numbers stay.
            fs::remove_file(mount.at(format!("d/f{}", 2 * turn + 1))).unwrap();
            fs::write(mount.at(format!("d/new{turn}")), "").unwrap();
            fs::rename(
                mount.at(format!("d/f{}", 2999 - 2 * turn)),
                mount.at(format!("d/moved{turn}")),
            )
            .unwrap();
            turn += 1;
        }
    }
    let stayed: BTreeSet<String> = (0..3000).step_by(2).map(|n| format!("f{n}")).collect();
    let mut seen: Vec<&String> = found.iter().filter(|name| stayed.contains(*name)).collect();
    seen.sort();
    assert_eq!(seen, stayed.iter().collect::<Vec<_>>());
    let unique: BTreeSet<&String> = found.iter().collect();
    assert_eq!(unique.len(), found.len(), "a name is listed twice");
    let turns = usize::try_from(turn).unwrap();
    assert_eq!(names(mount.at("d")).len(), 3000 - turns + turns);
}

fn a_listing_continues_where_it_stopped(fixture: &Fixture) {
    let mount = fixture.start();
    fill(&mount, 1000);
    let dir = File::open(mount.at("d")).unwrap();
    let mut all = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 2048];
    let mut listing = RawDir::new(&dir, &mut buffer);
    while let Some(entry) = listing.next() {
        let entry = entry.unwrap();
        all.push((entry.file_name().to_owned(), entry.next_entry_cookie()));
    }
    // Backwards, and as far as the listing can see in one step.
    for place in [900, 500, 501, 3, 0] {
        seek(&dir, SeekFrom::Start(all[place].1)).unwrap();
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut listing = RawDir::new(&dir, &mut buffer);
        for (name, _) in all.iter().skip(place + 1).take(100) {
            assert_eq!(listing.next().unwrap().unwrap().file_name(), name.as_c_str());
        }
    }
}

fn rewinding_shows_new_entries(fixture: &Fixture) {
    let mount = fixture.start();
    fill(&mount, 10);
    let dir = File::open(mount.at("d")).unwrap();
    assert_eq!(list(&dir, 4096).len(), 12);
    fs::write(mount.at("d/new"), "").unwrap();
    fs::remove_file(mount.at("d/f3")).unwrap();
    seek(&dir, SeekFrom::Start(0)).unwrap();
    let found = list(&dir, 4096);
    assert!(found.contains(&"new".to_owned()) && !found.contains(&"f3".to_owned()), "{found:?}");
}

fn dots_and_kinds_are_listed(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir_all(mount.at("d/sub")).unwrap();
    fs::write(mount.at("d/f"), "").unwrap();
    std::os::unix::fs::symlink("x", mount.at("d/s")).unwrap();
    let dir = File::open(mount.at("d")).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 2048];
    let mut listing = RawDir::new(&dir, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = listing.next() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap().to_owned();
        found.push((name, entry.ino(), entry.file_type()));
    }
    found.sort_by(|one, two| one.0.cmp(&two.0));
    let ino = |path: &str| fs::symlink_metadata(mount.at(path)).unwrap().ino();
    let expected = [
        (".", ino("d"), FileType::Directory),
        ("..", ino("/"), FileType::Directory),
        ("f", ino("d/f"), FileType::RegularFile),
        ("s", ino("d/s"), FileType::Symlink),
        ("sub", ino("d/sub"), FileType::Directory),
    ];
    let expected = expected.map(|(name, ino, kind)| (name.to_owned(), ino, kind));
    assert_eq!(found, expected);
}

/// A listing with attributes fills the kernel's cache, so they must be correct.
fn a_listing_agrees_with_the_attributes(fixture: &Fixture) {
    let mount = fixture.start();
    fs::create_dir(mount.at("d")).unwrap();
    for n in 0..100 {
        fs::write(mount.at(format!("d/f{n}")), vec![0; n]).unwrap();
    }
    // One is open and longer than its stored length.
    let file = open(mount.at("d/open"));
    std::os::unix::fs::FileExt::write_all_at(&file, &[1; 5000], 0).unwrap();
    for entry in fs::read_dir(mount.at("d")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let length = name.strip_prefix('f').map_or(5000, |number| number.parse::<u64>().unwrap());
        assert_eq!(entry.metadata().unwrap().size(), length, "{name}");
    }
}

fn fill(mount: &Mounted, count: usize) {
    fs::create_dir(mount.at("d")).unwrap();
    // Several at once: the latency of the store dominates.
    std::thread::scope(|scope| {
        for part in 0..16 {
            scope.spawn(move || {
                for n in (part..count).step_by(16) {
                    drop(File::create(mount.at(format!("d/f{n}"))).unwrap());
                }
            });
        }
    });
}

/// Returns all names from getdents, with a buffer of this size.
fn list(dir: &File, size: usize) -> Vec<String> {
    let mut buffer = vec![MaybeUninit::uninit(); size];
    let mut listing = RawDir::new(dir, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = listing.next() {
        found.push(entry.unwrap().file_name().to_str().unwrap().to_owned());
    }
    found
}
