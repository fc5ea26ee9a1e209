//! `bench`: the report as text and as JSON.

use std::fs;

use serde_json::Value;

use super::fixture::{CliFixture, LIMIT};
use super::support::command::{Finished, run};
use super::support::timeout::{MOUNTED, within};

#[track_caller]
fn bench(fixture: &CliFixture, words: &[&str]) -> Finished {
    let small = ["--big-file-size", "4M", "--small-file-count", "5", "-p", "2"];
    let mut command = fixture.command(&[&["bench", "mnt"], &small[..], words].concat());
    // Other tests run on this machine, too.
    command.env("SKIP_DROP_CACHES", "true");
    run(command, LIMIT).ok()
}

#[test]
fn a_mount_is_measured_with_its_own_metrics() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        fixture.mount(&["mnt"]).ok();
        let report = bench(&fixture, &[]).stdout;
        for word in [
            "BlockSize: 1.0 MiB, BigFileSize: 4.0 MiB, SmallFileSize: 128 KiB, SmallFileCount: 5, NumThreads: 2",
            "ITEM",
            "VALUE",
            "COST",
            "Write big file",
            "Read big file",
            "Write small file",
            "Read small file",
            "Stat file",
            "FUSE operation",
            "Put object",
            "MiB/s",
            "ms/file",
            "Time used",
        ] {
            assert!(report.contains(word), "no {word} in\n{report}");
        }
        let json: Value = serde_json::from_str(&bench(&fixture, &["--json"]).stdout).unwrap();
        let items = json["Items"].as_array().unwrap();
        let item = |name: &str| items.iter().find(|item| item["Item"] == name).expect(name);
        assert!(item("Write big file")["Value"].as_f64().unwrap() > 0.0);
        assert!(item("FUSE operation")["Value"].as_f64().unwrap() > 20.0);
        assert!(json["Process"]["MemoryMiB"].as_f64().unwrap() > 1.0);
        let left: Vec<_> = fs::read_dir(fixture.point())
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert!(left.iter().all(|name| name.to_str().unwrap().starts_with('.')), "{left:?}");
        fixture.unmount();
    });
}

#[test]
fn a_directory_outside_of_a_mount_can_be_measured() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        fs::create_dir(fixture.point()).unwrap();
        let json: Value = serde_json::from_str(&bench(&fixture, &["--json"]).stdout).unwrap();
        assert_eq!(json["Items"].as_array().map(Vec::len), Some(5));
        assert!(json["Process"].is_null());
        assert_eq!(fs::read_dir(fixture.point()).unwrap().count(), 0);
    });
}
