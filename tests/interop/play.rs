//! Plays the same script by either client on a fresh volume each, and compares what comes of it.

use std::collections::BTreeSet;

use jfs::meta::record::QuotaKey;
use jfs::meta::{Limits, Options};
use nix::errno::Errno;
use serde_json::Value;

use super::kernel::{self, Outcome};
use super::log;
use super::place::{Client, Place, Store, clean, jfs_mount};
use super::step::Step;
use super::support::normalise::diff;
use super::support::timeout::avoid_the_hour;

/// Part of a script.
pub enum Scene {
    /// Done by one mount or session from start to end.
    Session(Vec<Step>),
    /// Done by a tool in between: whose, space, inodes.
    SetQuota(Whose, Option<i64>, Option<i64>),
    DeleteQuota(Whose),
    /// From here on, changes are logged.
    LogChanges,
}

#[derive(Debug, Clone, Copy)]
pub enum Whose {
    Path(&'static str),
    User(u32),
    Group(u32),
}

/// What came of a script.
pub struct Played {
    pub place: Place,
    pub outcomes: Vec<(Step, Outcome)>,
}

/// Plays a script; `options` are those of `format`.
pub fn play(store: Store, by: Client, options: &[&str], scenes: &[Scene]) -> Played {
    let place = Place::formatted(store, by, options);
    let mut outcomes = Vec::new();
    for scene in scenes {
        match (scene, by) {
            (Scene::Session(steps), Client::Go) => by_go(&place, steps, &mut outcomes),
            (Scene::Session(steps), Client::Ours) => by_us(&place, steps, &mut outcomes),
            (Scene::SetQuota(whose, space, inodes), Client::Go) => {
                let (flag, value) = whose.words();
                let mut words = vec![flag.to_owned(), value];
                // Our limits are in bytes, those of the tool in GiB.
                words.extend(
                    space.iter().flat_map(|max| ["--capacity".to_owned(), (max >> 30).to_string()]),
                );
                words
                    .extend(inodes.iter().flat_map(|max| ["--inodes".to_owned(), max.to_string()]));
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                place.go.quota("set", &words).ok();
            }
            (Scene::DeleteQuota(whose), Client::Go) => {
                let (flag, value) = whose.words();
                place.go.quota("delete", &[flag, &value]).ok();
            }
            (Scene::SetQuota(whose, space, inodes), Client::Ours) => {
                let limits = Limits { space: *space, inodes: *inodes };
                runtime().block_on(async {
                    let meta = place.visit().await;
                    let key = whose.key(&meta).await;
                    meta.quota_set(key, limits, false).await.unwrap();
                    meta.engine().close().await.unwrap();
                });
            }
            (Scene::LogChanges, Client::Go) => {
                place.go.run("config", &["--changelog", "--yes"]).ok();
            }
            (Scene::LogChanges, Client::Ours) => {
                jfs_mount(&["config", &place.url, "--changelog", "--yes"]).ok();
            }
            (Scene::DeleteQuota(whose), Client::Ours) => runtime().block_on(async {
                let meta = place.visit().await;
                meta.quota_delete(whose.key(&meta).await).await.unwrap();
                meta.engine().close().await.unwrap();
            }),
        }
    }
    Played { place, outcomes }
}

/// What the Go client gets wrong in a script, by its own tools' word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    IsRight,
    /// Usage of directories and of their quotas; its tools repair it before it is compared.
    Miscounts,
}

/// Plays the script by both clients. Fails the test unless every step has the same outcome, the Go
/// client's tools are content with what we wrote, and the dumps and the stores are equal.
pub fn compare(store: Store, options: &[&str], scenes: &[Scene], their: Go) {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(super::ours::UMASK.into()));
    avoid_the_hour();
    let go = play(store, Client::Go, options, scenes);
    let ours = play(store, Client::Ours, options, scenes);
    for (number, (theirs, ours)) in go.outcomes.iter().zip(&ours.outcomes).enumerate() {
        let alike = theirs.1 == ours.1 || is_denial(&theirs.0, theirs.1, ours.1);
        assert!(alike, "step {number}: {:?}: Go {:?}, ours {:?}", theirs.0, theirs.1, ours.1);
    }
    ours.place.approved();
    check_quotas(&ours.place, scenes);
    if their == Go::Miscounts {
        go.place.repair();
        repair_quotas(&go.place, scenes);
    }
    let mut differences = Vec::new();
    note(&mut differences, "dump", &go.place.dumped(), &ours.place.dumped());
    let (mut left, mut right) = (go.place.stored(), ours.place.stored());
    differences.extend(log::differences(&log::take(&mut left), &log::take(&mut right)));
    note(&mut differences, "store", &left, &right);
    // It counts lines of the log; see there.
    differences.retain(|line| !line.starts_with("dump /Counters/lastChangelog"));
    assert!(
        differences.is_empty(),
        "{store:?} {options:?}, Go on the left, {} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// The kernel has refused another user before the Go client was asked, in words of its own.
fn is_denial(step: &Step, theirs: Outcome, ours: Outcome) -> bool {
    let denied = |outcome| matches!(outcome, Err(Errno::EPERM | Errno::EACCES));
    matches!(step, Step::As(..)) && denied(theirs) && denied(ours)
}

fn check_quotas(place: &Place, scenes: &[Scene]) {
    for path in quotas(scenes) {
        clean(place.go.quota("check", &["--path", path]));
    }
}

fn repair_quotas(place: &Place, scenes: &[Scene]) {
    for path in quotas(scenes) {
        place.go.quota("check", &["--path", path, "--repair"]).ok();
    }
}

/// The directories that have a quota in the end.
fn quotas(scenes: &[Scene]) -> BTreeSet<&'static str> {
    let mut paths = BTreeSet::new();
    for scene in scenes {
        match scene {
            Scene::SetQuota(Whose::Path(path), ..) => drop(paths.insert(*path)),
            Scene::DeleteQuota(Whose::Path(path)) => drop(paths.remove(path)),
            _ => {}
        }
    }
    paths
}

fn note(out: &mut Vec<String>, what: &str, left: &Value, right: &Value) {
    out.extend(diff(left, right).into_iter().map(|line| format!("{what} {line}")));
}

fn by_go(place: &Place, steps: &[Step], outcomes: &mut Vec<(Step, Outcome)>) {
    let mount = place.go.mount(&["--enable-xattr"]);
    for step in steps {
        outcomes.push((step.clone(), kernel::act(mount.path(), step)));
    }
    place.settle();
    mount.unmount();
}

fn by_us(place: &Place, steps: &[Step], outcomes: &mut Vec<(Step, Outcome)>) {
    runtime().block_on(async {
        let ours = place.open(Options::default()).await;
        for step in steps {
            outcomes.push((step.clone(), ours.act(step).await));
        }
        ours.meta.idle().await;
        ours.meta.close().await.unwrap();
    });
    place.settle();
}

impl Whose {
    fn words(self) -> (&'static str, String) {
        match self {
            Self::Path(path) => ("--path", path.to_owned()),
            Self::User(uid) => ("--uid", uid.to_string()),
            Self::Group(gid) => ("--gid", gid.to_string()),
        }
    }

    async fn key(self, meta: &jfs::meta::Meta) -> QuotaKey {
        match self {
            Self::Path(path) => {
                use super::support::tree::Tree;
                QuotaKey::Dir(meta.ino(path).await)
            }
            Self::User(uid) => QuotaKey::User(uid),
            Self::Group(gid) => QuotaKey::Group(gid),
        }
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
