//! Both programs print the same about a volume, and each sees what the other set.

use std::fs;
use std::time::Duration;

use jfs::meta::Options;
use serde_json::Value;

use crate::script::runner::runtime;
use crate::script::step::Step;
use crate::support::juicefs::{juicefs, parse_json_output};
use crate::support::normalise::assert_same;
use crate::support::timeout::{MOUNTED, within};
use crate::support::tree::Tree;
use crate::test_volume::{Client, Store, TestVolume, jfs_mount};

/// A heartbeat so long that no session record changes during a test.
const SLOW: Duration = Duration::from_mins(10);

fn on_each_store(body: fn(Store)) {
    within(MOUNTED, move || {
        body(Store::Redis);
        body(Store::Sqlite);
        body(Store::Tikv);
    });
}

/// Runs `ACTION META-URL OPTIONS` by both programs; fails the test unless both print the same JSON.
#[track_caller]
fn same_json(volume: &TestVolume, words: &[&str]) -> Value {
    let words = [&[words[0], &volume.url], &words[1..]].concat();
    let (mut theirs, mut ours) = (
        parse_json_output(&juicefs(&words).ok().stdout),
        parse_json_output(&jfs_mount(&words).ok().stdout),
    );
    for status in [&mut theirs, &mut ours] {
        // The order of sessions depends on the store, and in the Go client it is random.
        if let Some(sessions) = status.get_mut("Sessions").and_then(Value::as_array_mut) {
            sessions.sort_by_key(|session| session["Sid"].as_u64());
        }
    }
    if volume.url.starts_with("tikv://") {
        // The Go client shows the session id instead of the owner of a lock.
        for lock in [&mut theirs, &mut ours].into_iter().flat_map(locks) {
            lock.remove("Owner");
        }
    }
    assert_same(&theirs, &ours);
    theirs
}

fn locks(status: &mut Value) -> Vec<&mut serde_json::Map<String, Value>> {
    let kinds = status.as_object_mut().into_iter().flatten();
    let kinds = kinds.filter(|(name, _)| matches!(name.as_str(), "Flocks" | "Plocks"));
    let locks = kinds.filter_map(|(_, locks)| locks.as_array_mut()).flatten();
    locks.filter_map(Value::as_object_mut).collect()
}

/// As [`same_json`], for `quota ACTION` and its tables.
#[track_caller]
fn same_table(volume: &TestVolume, action: &str, options: &[&str]) -> String {
    let words = [&["quota", action, &volume.url], options].concat();
    let (theirs, ours) = (juicefs(&words).ok().stdout, jfs_mount(&words).ok().stdout);
    // The Go client prints the same for a limit that was never set and one that is unchanged.
    let theirs = theirs.replace("unchanged", "unlimited");
    assert_eq!(theirs, ours, "{action} {options:?}: Go on the left");
    theirs
}

#[test]
fn status_is_the_same() {
    on_each_store(|store| {
        let volume = TestVolume::formatted(store, Client::Go, &["--trash-days", "1"]);
        same_json(&volume, &["status"]);
        let mount = volume.go.mount(&["--heartbeat", "600"]);
        fs::write(mount.path().join("file"), "content").unwrap();
        fs::write(mount.path().join("removed"), "content").unwrap();
        fs::remove_file(mount.path().join("removed")).unwrap();
        runtime().block_on(async {
            let mount_point = "/mnt/ours".to_owned();
            let options = Options { heartbeat: SLOW, mount_point, ..Options::default() };
            let ours = volume.open(options).await;
            let file = ours.meta.ino("/file").await;
            let owner = jfs::meta::LockOwner(7);
            let kind = Some(jfs::meta::record::LockKind::Write);
            ours.meta.flock(file, owner, kind, false).await.unwrap();
            ours.meta.set_plock(file, owner, kind, 3..=9, 77, false).await.unwrap();
            // The Go client collects usage in memory for a moment.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let status = same_json(&volume, &["status"]);
            for session in status["Sessions"].as_array().unwrap() {
                let sid = session["Sid"].to_string();
                same_json(&volume, &["status", "--session", &sid]);
            }
            same_json(&volume, &["status", "--more"]);
            ours.meta.close().await.unwrap();
        });
        mount.unmount();
        assert_eq!(same_json(&volume, &["status"])["Stat"]["UsedInodes"], 3);
    });
}

#[test]
fn config_is_the_same_and_each_sees_what_the_other_set() {
    on_each_store(|store| {
        let volume = TestVolume::formatted(store, Client::Go, &["--trash-days", "1"]);
        same_json(&volume, &["config"]);
        volume.go.run("config", &["--capacity", "10", "--trash-days", "3", "--yes"]).ok();
        let setting = same_json(&volume, &["config"]);
        assert_eq!(
            (&setting["Capacity"], &setting["TrashDays"]),
            (&(10_u64 << 30).into(), &3.into())
        );
        let url = &volume.url;
        jfs_mount(&["config", url, "--inodes", "1000", "--upload-limit", "80", "--yes"]).ok();
        let setting = same_json(&volume, &["config"]);
        assert_eq!((&setting["Inodes"], &setting["UploadLimit"]), (&1000.into(), &80.into()));
        assert_eq!(setting["Capacity"], 10_u64 << 30);

        // Both refuse the same.
        for words in [
            &["config", url, "--min-client-version", "nonsense", "--yes"][..],
            &["config", url, "--capacity", "much", "--yes"],
            &["format", url, "other-name"],
            &["format", url, "volume", "--trash-days", "-1"],
        ] {
            juicefs(words).refused();
            jfs_mount(words).refused();
        }
        same_json(&volume, &["config"]);
    });
}

#[test]
fn each_sees_the_quotas_that_the_other_set() {
    on_each_store(|store| {
        let volume = TestVolume::formatted(store, Client::Ours, &["--trash-days", "0"]);
        runtime().block_on(async {
            let ours = volume.open(Options::default()).await;
            for dir in ["/ours", "/theirs", "/plain"] {
                ours.meta.dir(dir).await;
                ours.run(&Step::File(format!("{dir}/file"), 0o644)).await.unwrap();
                ours.run(&Step::Write(format!("{dir}/file"), 0, 10_000)).await.unwrap();
                ours.run(&Step::Chown(format!("{dir}/file"), 1000, 2000)).await.unwrap();
            }
            ours.meta.close().await.unwrap();
        });
        let url = volume.url.as_str();
        let set = ["quota", "set", url];
        let words = |options: &[&'static str]| -> Vec<&str> { [&set[..], options].concat() };
        jfs_mount(&words(&["--path", "/ours", "--capacity", "1", "--inodes", "100"])).ok();
        juicefs(&words(&["--path", "/theirs", "--capacity", "2"])).ok();
        same_table(&volume, "list", &[]);
        jfs_mount(&words(&["--uid", "1000", "--inodes", "50"])).ok();
        juicefs(&words(&["--gid", "2000", "--capacity", "3", "--inodes", "9"])).ok();
        let table = same_table(&volume, "list", &[]);
        for word in ["/ours", "/theirs", "1000", "2000", "1.0 GiB", "100"] {
            assert!(table.contains(word), "no {word} in\n{table}");
        }
        for target in
            [["--path", "/ours"], ["--path", "/theirs"], ["--uid", "1000"], ["--gid", "2000"]]
        {
            same_table(&volume, "get", &target);
        }
        same_table(&volume, "check", &["--path", "/ours"]);
        same_table(&volume, "check", &["--path", "/theirs"]);
        jfs_mount(&["quota", "delete", url, "--path", "/theirs"]).ok();
        juicefs(&["quota", "delete", url, "--path", "/ours"]).ok();
        let table = same_table(&volume, "list", &[]);
        assert!(!table.contains("/ours") && !table.contains("/theirs"), "{table}");
        for words in [
            &["quota", "set", url, "--path", "/missing", "--inodes", "1"][..],
            &["quota", "set", url, "--path", "/plain/file", "--inodes", "1"],
            &["quota", "check", url, "--path", "/plain"],
            &["quota", "set", url, "--uid", "0", "--inodes", "1"],
        ] {
            juicefs(words).refused();
            jfs_mount(words).refused();
        }
    });
}

/// A directory created by `quota set` is counted in its parent before the program exits.
#[test]
fn regression_a_directory_created_for_a_quota_is_counted() {
    on_each_store(|store| {
        let volume = TestVolume::formatted(store, Client::Ours, &["--trash-days", "1"]);
        let set =
            ["quota", "set", &volume.url, "--path", "/made/below", "--create", "--inodes", "9"];
        jfs_mount(&set).ok();
        runtime().block_on(async {
            let meta = volume.connect().await;
            let wrong = meta.check_dir_stats(jfs::meta::Ino::ROOT, false).await.unwrap();
            assert!(wrong.is_empty(), "{wrong:?}");
        });
    });
}
