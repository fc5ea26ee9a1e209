//! Changes of names take effect exactly once, however often the server dies while they are under way.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::kept_mount::{KeptMount, masked};
use crate::support::fixture::{Fixture, long};
use crate::support::timeout::within;

/// Names of one thread, and what they are.
type Model = BTreeMap<String, Kind>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Dir,
    Symlink,
}

/// Longer than the usual limit of a test: a thousand servers take their time.
const LIMIT: Duration = Duration::from_hours(1);

#[test]
fn names_change_exactly_once_on_redis() {
    run(Fixture::redis, if long() { 1000 } else { 16 });
}

#[test]
fn names_change_exactly_once_on_sqlite() {
    run(Fixture::sqlite, if long() { 100 } else { 12 });
}

#[test]
fn names_change_exactly_once_on_tikv() {
    run(Fixture::tikv, if long() { 100 } else { 8 });
}

#[test]
fn names_change_exactly_once_without_resend_on_redis() {
    run_masked(Fixture::redis, if long() { 1000 } else { 16 });
}

#[test]
fn names_change_exactly_once_without_resend_on_sqlite() {
    run_masked(Fixture::sqlite, if long() { 100 } else { 8 });
}

fn run_masked(make: fn() -> Fixture, rounds: u32) {
    within(LIMIT, move || masked(|| names_change_exactly_once(&make(), rounds)));
}

fn run(make: fn() -> Fixture, rounds: u32) {
    within(LIMIT, move || names_change_exactly_once(&make(), rounds));
}

fn names_change_exactly_once(fixture: &Fixture, rounds: u32) {
    fixture.format(&[]);
    let mount = KeptMount::start(fixture, &[]);
    let is_over = AtomicBool::new(false);
    let models = thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .map(|worker| {
                let dir = mount.path().join(format!("w{worker}"));
                fs::create_dir(&dir).unwrap();
                let is_over = &is_over;
                scope.spawn(move || work(&dir, worker, is_over))
            })
            .collect();
        mount.disturb(rounds, 7);
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    let mut changes = 0;
    for (worker, (model, count)) in models.into_iter().enumerate() {
        assert_eq!(found(&mount.path().join(format!("w{worker}"))), model);
        changes += count;
    }
    assert!(changes > u64::from(rounds), "only {changes} changes");
    assert_eq!(mount.sessions().len(), 1);
    mount.unmount();
    fixture.check_blocks();
}

/// Changes names until it is over; every change must succeed.
fn work(dir: &Path, seed: u64, is_over: &AtomicBool) -> (Model, u64) {
    let (mut model, mut state, mut count) = (Model::new(), seed * 2 + 1, 0_u64);
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    while !is_over.load(Ordering::Relaxed) {
        count += 1;
        let fresh = format!("n{count}");
        let any = model.keys().nth(usize::try_from(random(model.len().max(1) as u64)).unwrap());
        let any = any.cloned();
        let at = |name: &str| dir.join(name);
        match (random(8), any) {
            (0..=1, _) | (_, None) => {
                // The last component must not exist.
                OpenOptions::new().write(true).create_new(true).open(at(&fresh)).unwrap();
                model.insert(fresh, Kind::File);
            }
            (2, _) => {
                fs::create_dir(at(&fresh)).unwrap();
                model.insert(fresh, Kind::Dir);
            }
            (3, _) => {
                std::os::unix::fs::symlink("somewhere", at(&fresh)).unwrap();
                model.insert(fresh, Kind::Symlink);
            }
            (4, Some(old)) => {
                fs::rename(at(&old), at(&fresh)).unwrap();
                let kind = model.remove(&old).unwrap();
                model.insert(fresh, kind);
            }
            (5, Some(old)) if model[&old] == Kind::File => {
                fs::hard_link(at(&old), at(&fresh)).unwrap();
                model.insert(fresh, Kind::File);
            }
            (_, Some(old)) => match model.remove(&old).unwrap() {
                Kind::Dir => fs::remove_dir(at(&old)).unwrap(),
                _ => fs::remove_file(at(&old)).unwrap(),
            },
        }
    }
    (model, count)
}

fn found(dir: &Path) -> Model {
    let entries = fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let kind = match entry.file_type().unwrap() {
            kind if kind.is_dir() => Kind::Dir,
            kind if kind.is_symlink() => Kind::Symlink,
            _ => Kind::File,
        };
        (entry.file_name().into_string().unwrap(), kind)
    });
    entries.collect()
}
