//! The Go client's tools find nothing wrong after several hundred operations of our client.

use jfs::meta::record::QuotaKey;
use jfs::meta::{Limits, Options};

use crate::script::random::{Kinds, steps};
use crate::script::runner::runtime;
use crate::support::timeout::{MOUNTED, avoid_hour_change, within};
use crate::support::tree::Tree;
use crate::test_volume::{Client, Store, TestVolume, clean};

/// Some of them have no effect.
const STEPS: usize = 1500;

fn run_many_steps(store: Store, options: &[&str], kinds: Kinds, seed: u64) -> TestVolume {
    avoid_hour_change();
    let volume = TestVolume::formatted(store, Client::Ours, options);
    let script = steps(seed, STEPS, kinds);
    // The script creates these directories first, and never removes all of them.
    let (dirs, rest) = script.split_at(5);
    runtime().block_on(async {
        let ours = volume.open(Options::default()).await;
        for step in dirs {
            ours.run(step).await.unwrap();
        }
        ours.meta.dir("/limited").await;
        let space = Some(1 << 40);
        for key in [
            QuotaKey::Dir(ours.meta.ino("/limited").await),
            QuotaKey::Dir(ours.meta.ino("/a").await),
            QuotaKey::User(1000),
            QuotaKey::Group(2000),
        ] {
            let limits = Limits { space, inodes: Some(100_000) };
            ours.meta.quota_set(key, limits, false).await.unwrap();
        }
        let mut done = 0;
        for step in rest {
            done += usize::from(ours.run(step).await.is_ok());
        }
        assert!(done > STEPS / 6, "only {done} of {STEPS} steps did something");
        // Everything into the limited directory and half of it out again.
        for (number, name) in ours.meta.names("/").await.iter().enumerate() {
            if name != "limited" {
                ours.meta.mv(&format!("/{name}"), &format!("/limited/{name}")).await.unwrap();
                if number % 2 == 0 {
                    ours.meta.mv(&format!("/limited/{name}"), &format!("/{name}")).await.unwrap();
                }
            }
        }
        ours.meta.idle().await;
        ours.meta.close().await.unwrap();
    });
    volume
}

fn nothing_is_wrong(trash: &'static str) {
    within(MOUNTED, move || {
        for (store, seed) in [(Store::Redis, 11), (Store::Sqlite, 12), (Store::Tikv, 13)] {
            let options = ["--trash-days", trash, "--enable-acl"];
            let volume = run_many_steps(store, &options, Kinds::All, seed);
            volume.assert_consistent();
            clean(volume.go.quota("check", &["--path", "/limited"]));
            clean(volume.go.quota("check", &["--path", "/limited", "--strict"]));
        }
    });
}

#[test]
fn nothing_is_wrong_with_trash() {
    nothing_is_wrong("1");
}

#[test]
fn nothing_is_wrong_without_trash() {
    nothing_is_wrong("0");
}

/// Without symlinks, pipes, devices and trash: the Go client charges owners for the former but does not
/// count them, and counts hour directories of the trash but does not charge for them.
#[test]
fn usage_of_users_and_groups_is_right() {
    within(MOUNTED, || {
        for (store, seed) in [(Store::Redis, 21), (Store::Sqlite, 22), (Store::Tikv, 23)] {
            let volume = run_many_steps(store, &["--trash-days", "0"], Kinds::FilesAndDirs, seed);
            clean(volume.go.quota("check", &[]));
            runtime().block_on(async {
                let meta = volume.connect().await;
                let wrong = meta.quota_check_owners(false).await.unwrap();
                assert_eq!(wrong, []);
            });
        }
    });
}
