//! `bench`: the report, for people and for scripts.

use std::fs;

use serde_json::Value;

use super::rig::{LIMIT, Rig};
use super::support::command::{Finished, run};
use super::support::timeout::{MOUNTED, within};

#[track_caller]
fn bench(rig: &Rig, words: &[&str]) -> Finished {
    let small = ["--big-file-size", "4M", "--small-file-count", "5", "-p", "2"];
    let mut command = rig.command(&[&["bench", "mnt"], &small[..], words].concat());
    // Others measure on this machine as well.
    command.env("SKIP_DROP_CACHES", "true");
    run(command, LIMIT).ok()
}

#[test]
fn a_mount_is_measured_with_what_it_did_meanwhile() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.mount(&["mnt"]).ok();
        let report = bench(&rig, &[]).stdout;
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
        let json: Value = serde_json::from_str(&bench(&rig, &["--json"]).stdout).unwrap();
        let items = json["Items"].as_array().unwrap();
        let item = |name: &str| items.iter().find(|item| item["Item"] == name).expect(name);
        assert!(item("Write big file")["Value"].as_f64().unwrap() > 0.0);
        assert!(item("FUSE operation")["Value"].as_f64().unwrap() > 20.0);
        assert!(json["Process"]["MemoryMiB"].as_f64().unwrap() > 1.0);
        let left: Vec<_> =
            fs::read_dir(rig.point()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| name.to_str().unwrap().starts_with('.')), "{left:?}");
        rig.unmount();
    });
}

#[test]
fn any_other_directory_can_be_measured() {
    within(MOUNTED, || {
        let rig = Rig::new();
        fs::create_dir(rig.point()).unwrap();
        let json: Value = serde_json::from_str(&bench(&rig, &["--json"]).stdout).unwrap();
        assert_eq!(json["Items"].as_array().map(Vec::len), Some(5));
        assert!(json["Process"].is_null());
        assert_eq!(fs::read_dir(rig.point()).unwrap().count(), 0);
    });
}
