//! The yardstick is straight: the Go client compared with itself.
//!
//! The same script on two fresh volumes gives equal normalised dumps, keyspaces and tables, though
//! the ids differ; a script that differs in one thing does not. What is compared here with the Go
//! client on both sides is later compared with ours on one.
#![cfg(test)]

mod script;
mod store;
#[path = "../support/mod.rs"]
mod support;
mod yardstick;

use std::path::Path;
use std::thread;
use std::time::Duration;

use script::{TWISTS, hold, script};
use serde_json::Value;
use store::{Engine, Redis, Sqlite};
use support::command::poll;
use support::juicefs::Volume;
use support::normalise::{assert_same, diff, dump};
use support::timeout::{MOUNTED, avoid_the_hour, within};

/// Everything about a volume that is compared.
struct Picture {
    dump: Value,
    store: Value,
}

impl Picture {
    fn differences(&self, other: &Self) -> (Vec<String>, Vec<String>) {
        (diff(&self.dump, &other.dump), diff(&self.store, &other.store))
    }
}

/// Formats, moves the id counters on by `burn`, runs the script and `then`, unmounts.
fn volume(engine: &dyn Engine, burn: u32, then: fn(&Path)) -> Picture {
    let volume = Volume::format(&engine.url(), &["--trash-days", "1"]);
    engine.burn_ids(burn);
    avoid_the_hour();
    let mount = volume.mount(&[]);
    script(mount.path());
    then(mount.path());
    mount.unmount();
    volume.fsck();
    Picture { dump: dump::normalise(&volume.dump()), store: engine.normalised() }
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

        // A dump does not tell which engine it came from.
        assert_same(&one.dump, &three.dump);
    });
}

#[test]
fn a_script_that_differs_in_one_thing_gives_another_volume_on_redis() {
    within(2 * MOUNTED, || {
        let plain = volume(&Redis::fresh(), 0, nothing);
        for (what, twist, word) in TWISTS {
            expect_difference(&plain, &volume(&Redis::fresh(), 0, *twist), what, word);
        }
    });
}

#[test]
fn a_script_that_differs_in_one_thing_gives_another_volume_on_sqlite() {
    within(2 * MOUNTED, || {
        let plain = volume(&Sqlite::fresh(), 0, nothing);
        for (what, twist, word) in TWISTS {
            let twisted = volume(&Sqlite::fresh(), 0, *twist);
            expect_difference(&plain, &twisted, what, word);
        }
    });
}

fn expect_difference(plain: &Picture, twisted: &Picture, what: &str, word: &str) {
    let (dumps, stores) = plain.differences(twisted);
    for differences in [dumps, stores] {
        let named = differences.iter().any(|line| line.contains(word));
        assert!(named, "{what}: no difference names {word:?} in {differences:#?}");
    }
}

#[test]
fn what_a_client_holds_is_the_same_on_redis() {
    within(MOUNTED, || holding(&Redis::fresh(), &Redis::fresh()));
}

#[test]
fn what_a_client_holds_is_the_same_on_sqlite() {
    within(MOUNTED, || holding(&Sqlite::fresh(), &Sqlite::fresh()));
}

/// Compares sessions, locks, sustained files, quotas and the change log, while mounted.
fn holding(one: &dyn Engine, two: &dyn Engine) {
    let prepare = |engine: &dyn Engine, burn| {
        let volume = Volume::format(&engine.url(), &["--trash-days", "0"]);
        volume.run("config", &["--changelog", "--yes"]).ok();
        volume.quota("set", &["--path", "/limited", "--create", "--inodes", "100"]).ok();
        engine.burn_ids(burn);
        let mount = volume.mount(&[]);
        let held = hold(mount.path());
        (volume, mount, held)
    };
    let (first, second) = (prepare(one, 0), prepare(two, 5000));
    // Usage of directories and quotas is written up to three seconds later.
    thread::sleep(Duration::from_secs(4));
    poll(Duration::from_secs(20), || diff(&one.normalised(), &two.normalised()).is_empty());
    let picture = one.normalised();
    assert_same(&picture, &two.normalised());
    for word in ["range", "sid1", "CREATE", "100"] {
        assert!(picture.to_string().contains(word), "{word:?} is not in the picture {picture:#}");
    }

    drop((first.2, second.2));
    first.1.unmount();
    second.1.unmount();
    first.0.quota_check("/limited");
}
