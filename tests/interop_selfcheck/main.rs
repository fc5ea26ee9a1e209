//! Checks the comparison of volumes that the interop tests rely on: the Go client against itself.
//!
//! The same script on two new volumes gives equal normalised dumps, keyspaces and tables, though the
//! ids differ; a script with one variation does not. The interop tests make the same comparison with
//! our client on one side.
#![cfg(test)]

mod comparison;
mod metadata_store;
mod script;
#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::thread;
use std::time::Duration;

use metadata_store::{MetadataStore, Redis, Sqlite};
use script::{VARIATIONS, hold, script};
use serde_json::Value;
use support::command::poll;
use support::juicefs::Volume;
use support::normalise::{assert_same, diff, dump};
use support::timeout::{MOUNTED, avoid_hour_change, within};

/// Everything of a volume that is compared.
struct Snapshot {
    dump: Value,
    store: Value,
}

impl Snapshot {
    fn differences(&self, other: &Self) -> (Vec<String>, Vec<String>) {
        (diff(&self.dump, &other.dump), diff(&self.store, &other.store))
    }
}

/// Formats, advances the id counters by `burn`, runs the script and `then`, and unmounts.
fn volume(engine: &dyn MetadataStore, burn: u32, then: fn(&Path)) -> Snapshot {
    let volume = Volume::format(&engine.url(), &["--trash-days", "1"]);
    engine.burn_ids(burn);
    avoid_hour_change();
    let mount = volume.mount(&[]);
    script(mount.path());
    then(mount.path());
    mount.unmount();
    volume.fsck();
    Snapshot { dump: dump::normalise(&volume.dump()), store: engine.normalised() }
}

fn nothing(_: &Path) {}

#[test]
fn the_same_script_gives_the_same_volume_on_redis_and_sqlite() {
    within(MOUNTED, || {
        let one = volume(&Redis::fresh(), 0, nothing);
        let two = volume(&Redis::fresh(), 5000, nothing);
        assert_same(&one.dump, &two.dump);
        assert_same(&one.store, &two.store);

        let three = volume(&Sqlite::fresh(), 0, nothing);
        let four = volume(&Sqlite::fresh(), 5000, nothing);
        assert_same(&three.dump, &four.dump);
        assert_same(&three.store, &four.store);

        // A dump does not depend on the engine.
        assert_same(&one.dump, &three.dump);
    });
}

#[test]
fn one_variation_gives_a_different_volume_on_redis() {
    within(2 * MOUNTED, || {
        let plain = volume(&Redis::fresh(), 0, nothing);
        for (what, variation, word) in VARIATIONS {
            expect_difference(&plain, &volume(&Redis::fresh(), 0, *variation), what, word);
        }
    });
}

#[test]
fn one_variation_gives_a_different_volume_on_sqlite() {
    within(2 * MOUNTED, || {
        let plain = volume(&Sqlite::fresh(), 0, nothing);
        for (what, variation, word) in VARIATIONS {
            let varied = volume(&Sqlite::fresh(), 0, *variation);
            expect_difference(&plain, &varied, what, word);
        }
    });
}

fn expect_difference(plain: &Snapshot, varied: &Snapshot, what: &str, word: &str) {
    let (dumps, stores) = plain.differences(varied);
    for differences in [dumps, stores] {
        let named = differences.iter().any(|line| line.contains(word));
        assert!(named, "{what}: no difference names {word:?} in {differences:#?}");
    }
}

#[test]
fn sessions_and_locks_are_the_same_on_redis() {
    within(MOUNTED, || compare_while_mounted(&Redis::fresh(), &Redis::fresh()));
}

#[test]
fn sessions_and_locks_are_the_same_on_sqlite() {
    within(MOUNTED, || compare_while_mounted(&Sqlite::fresh(), &Sqlite::fresh()));
}

/// Compares sessions, locks, sustained files, quotas and the change log, while mounted.
fn compare_while_mounted(one: &dyn MetadataStore, two: &dyn MetadataStore) {
    let prepare = |engine: &dyn MetadataStore, burn| {
        let volume = Volume::format(&engine.url(), &["--trash-days", "0"]);
        volume.run("config", &["--changelog", "--yes"]).ok();
        volume.quota("set", &["--path", "/limited", "--create", "--inodes", "100"]).ok();
        engine.burn_ids(burn);
        let mount = volume.mount(&[]);
        let held = hold(mount.path());
        (volume, mount, held)
    };
    let (first, second) = (prepare(one, 0), prepare(two, 5000));
    // Usage of directories and quotas is flushed up to three seconds later.
    thread::sleep(Duration::from_secs(4));
    poll(Duration::from_secs(20), || diff(&one.normalised(), &two.normalised()).is_empty());
    let snapshot = one.normalised();
    assert_same(&snapshot, &two.normalised());
    for word in ["range", "sid1", "CREATE", "100"] {
        assert!(
            snapshot.to_string().contains(word),
            "{word:?} is not in the snapshot {snapshot:#}"
        );
    }

    drop((first.2, second.2));
    first.1.unmount();
    second.1.unmount();
    first.0.quota_check("/limited");
}
