//! Runs the same script with each client on a new volume, and compares the results.

use std::collections::BTreeSet;

use jfs::meta::record::QuotaKey;
use jfs::meta::{Limits, Options};
use nix::errno::Errno;
use serde_json::Value;

use super::change_log;
use crate::script::on_mount::{self, Outcome};
use crate::script::step::Step;
use crate::support::normalise::diff;
use crate::support::timeout::avoid_hour_change;
use crate::test_volume::{Client, Store, TestVolume, clean, jfs_mount};

/// Part of a script.
pub enum ScriptPart {
    /// Steps of one mount or session.
    Session(Vec<Step>),
    /// A quota set by a tool between sessions: target, space, inodes.
    SetQuota(QuotaTarget, Option<i64>, Option<i64>),
    DeleteQuota(QuotaTarget),
    /// Enables the change log.
    LogChanges,
}

#[derive(Debug, Clone, Copy)]
pub enum QuotaTarget {
    Path(&'static str),
    User(u32),
    Group(u32),
}

/// The result of a script.
pub struct ScriptResult {
    pub volume: TestVolume,
    pub outcomes: Vec<(Step, Outcome)>,
}

/// Runs a script; `options` are those of `format`.
pub fn run_script(
    store: Store,
    by: Client,
    options: &[&str],
    parts: &[ScriptPart],
) -> ScriptResult {
    let volume = TestVolume::formatted(store, by, options);
    let mut outcomes = Vec::new();
    for part in parts {
        match (part, by) {
            (ScriptPart::Session(steps), Client::Go) => by_go(&volume, steps, &mut outcomes),
            (ScriptPart::Session(steps), Client::Ours) => by_us(&volume, steps, &mut outcomes),
            (ScriptPart::SetQuota(target, space, inodes), Client::Go) => {
                let (flag, value) = target.words();
                let mut words = vec![flag.to_owned(), value];
                // Our limits are in bytes, those of the tool in GiB.
                words.extend(
                    space.iter().flat_map(|max| ["--capacity".to_owned(), (max >> 30).to_string()]),
                );
                words
                    .extend(inodes.iter().flat_map(|max| ["--inodes".to_owned(), max.to_string()]));
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                volume.go.quota("set", &words).ok();
            }
            (ScriptPart::DeleteQuota(target), Client::Go) => {
                let (flag, value) = target.words();
                volume.go.quota("delete", &[flag, &value]).ok();
            }
            (ScriptPart::SetQuota(target, space, inodes), Client::Ours) => {
                let limits = Limits { space: *space, inodes: *inodes };
                runtime().block_on(async {
                    let meta = volume.connect().await;
                    let key = target.key(&meta).await;
                    meta.quota_set(key, limits, false).await.unwrap();
                    meta.engine().close().await.unwrap();
                });
            }
            (ScriptPart::LogChanges, Client::Go) => {
                volume.go.run("config", &["--changelog", "--yes"]).ok();
            }
            (ScriptPart::LogChanges, Client::Ours) => {
                jfs_mount(&["config", &volume.url, "--changelog", "--yes"]).ok();
            }
            (ScriptPart::DeleteQuota(target), Client::Ours) => runtime().block_on(async {
                let meta = volume.connect().await;
                meta.quota_delete(target.key(&meta).await).await.unwrap();
                meta.engine().close().await.unwrap();
            }),
        }
    }
    ScriptResult { volume, outcomes }
}

/// Whether the Go client counts the usage of a script right, according to its own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoUsage {
    Correct,
    /// It miscounts directories and their quotas; its tools repair that before the comparison.
    Miscounted,
}

/// Runs the script with both clients. Fails the test unless every step has the same outcome, the Go
/// client's tools accept our volume, and the dumps and the stores are equal.
pub fn compare(store: Store, options: &[&str], parts: &[ScriptPart], usage: GoUsage) {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(crate::script::on_client::UMASK.into()));
    avoid_hour_change();
    let go = run_script(store, Client::Go, options, parts);
    let ours = run_script(store, Client::Ours, options, parts);
    for (number, (theirs, ours)) in go.outcomes.iter().zip(&ours.outcomes).enumerate() {
        let alike = theirs.1 == ours.1 || is_denial(&theirs.0, theirs.1, ours.1);
        assert!(alike, "step {number}: {:?}: Go {:?}, ours {:?}", theirs.0, theirs.1, ours.1);
    }
    ours.volume.assert_consistent();
    check_quotas(&ours.volume, parts);
    if usage == GoUsage::Miscounted {
        go.volume.repair();
        repair_quotas(&go.volume, parts);
    }
    let mut differences = Vec::new();
    add_differences(&mut differences, "dump", &go.volume.dumped(), &ours.volume.dumped());
    let (mut left, mut right) = (go.volume.stored(), ours.volume.stored());
    differences.extend(change_log::differences(
        &change_log::take(&mut left),
        &change_log::take(&mut right),
    ));
    add_differences(&mut differences, "store", &left, &right);
    // A count of log lines, which may differ; see `change_log`.
    differences.retain(|line| !line.starts_with("dump /Counters/lastChangelog"));
    assert!(
        differences.is_empty(),
        "{store:?} {options:?}, Go on the left, {} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// Returns whether both denied a step of another user. The kernel may deny it before the Go client sees
/// it, with another errno.
fn is_denial(step: &Step, theirs: Outcome, ours: Outcome) -> bool {
    let denied = |outcome| matches!(outcome, Err(Errno::EPERM | Errno::EACCES));
    matches!(step, Step::As(..)) && denied(theirs) && denied(ours)
}

fn check_quotas(volume: &TestVolume, parts: &[ScriptPart]) {
    for path in quotas(parts) {
        clean(volume.go.quota("check", &["--path", path]));
    }
}

fn repair_quotas(volume: &TestVolume, parts: &[ScriptPart]) {
    for path in quotas(parts) {
        volume.go.quota("check", &["--path", path, "--repair"]).ok();
    }
}

/// Returns the directories that have a quota at the end.
fn quotas(parts: &[ScriptPart]) -> BTreeSet<&'static str> {
    let mut paths = BTreeSet::new();
    for part in parts {
        match part {
            ScriptPart::SetQuota(QuotaTarget::Path(path), ..) => drop(paths.insert(*path)),
            ScriptPart::DeleteQuota(QuotaTarget::Path(path)) => drop(paths.remove(path)),
            _ => {}
        }
    }
    paths
}

fn add_differences(out: &mut Vec<String>, what: &str, left: &Value, right: &Value) {
    out.extend(diff(left, right).into_iter().map(|line| format!("{what} {line}")));
}

fn by_go(volume: &TestVolume, steps: &[Step], outcomes: &mut Vec<(Step, Outcome)>) {
    let mount = volume.go.mount(&["--enable-xattr"]);
    for step in steps {
        outcomes.push((step.clone(), on_mount::run(mount.path(), step)));
    }
    volume.wait_for_deletions();
    mount.unmount();
}

fn by_us(volume: &TestVolume, steps: &[Step], outcomes: &mut Vec<(Step, Outcome)>) {
    runtime().block_on(async {
        let ours = volume.open(Options::default()).await;
        for step in steps {
            outcomes.push((step.clone(), ours.run(step).await));
        }
        ours.meta.idle().await;
        ours.meta.close().await.unwrap();
    });
    volume.wait_for_deletions();
}

impl QuotaTarget {
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
                use crate::support::tree::Tree;
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
