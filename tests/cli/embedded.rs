//! Commands on the embedded volume, which need no META-URL; and completions and manual pages.

use std::fs;

use serde_json::Value;

use crate::fixture::CliFixture;
use crate::support::timeout::{MOUNTED, within};

/// Creates the embedded volume by mounting it.
fn embedded() -> CliFixture {
    let fixture = CliFixture::new();
    let point = fixture.point().display().to_string();
    fixture.mount(&[&point]).ok();
    fs::write(fixture.point().join("file"), "content").unwrap();
    fixture.unmount();
    fixture
}

fn uuid(fixture: &CliFixture) -> String {
    let status: Value = serde_json::from_str(&fixture.run(&["status"]).ok().stdout).unwrap();
    status["Setting"]["UUID"].as_str().unwrap().to_owned()
}

#[test]
fn commands_without_a_url_work_on_the_embedded_volume() {
    within(MOUNTED, || {
        let fixture = embedded();
        let status: Value = serde_json::from_str(&fixture.run(&["status"]).ok().stdout).unwrap();
        assert_eq!(status["Stat"]["UsedInodes"], 1);
        fixture.run(&["config", "--trash-days", "3", "--yes"]).ok();
        let config: Value = serde_json::from_str(&fixture.run(&["config"]).ok().stdout).unwrap();
        assert_eq!(config["TrashDays"], 3);
        fixture.run(&["quota", "set", "--path", "/d", "--create", "--inodes", "7"]).ok();
        let quotas: Value =
            serde_json::from_str(&fixture.run(&["quota", "list", "--json"]).ok().stdout).unwrap();
        assert_eq!(quotas[0]["MaxInodes"], 7);
        fixture.run(&["fsck"]).ok();
        fixture.run(&["gc"]).ok();
        let data = fixture.path("data").display().to_string();
        fixture.run(&["status", "--data-dir", &data]).ok();
    });
}

#[test]
fn without_an_embedded_volume_nothing_is_created() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        for words in [&["status"][..], &["config"], &["fsck"], &["gc"], &["quota", "list"]] {
            let refused = fixture.run(words).refused();
            assert!(refused.stderr.contains("there is no embedded volume in"), "{refused}");
        }
        assert!(!fixture.path("data").exists());
    });
}

#[test]
fn the_embedded_volume_is_destroyed_only_by_name() {
    within(MOUNTED, || {
        let fixture = embedded();
        let (uuid, data) = (uuid(&fixture), fixture.path("data").display().to_string());
        let refused = fixture.run(&["destroy", &uuid, "--force"]);
        assert!(refused.stderr.contains("--data-dir"), "{refused}");
        fixture.run(&["status"]).ok();
        fixture.run(&["destroy", "--data-dir", &data, &uuid, "--force"]).ok();
        let gone = fixture.run(&["status"]).refused();
        assert!(!gone.stderr.is_empty(), "{gone}");
    });
}

#[test]
fn hours_of_the_trash_are_told_from_a_url() {
    within(MOUNTED, || {
        let fixture = embedded();
        let output = fixture.run(&["restore", "2020-01-01-00"]).refused();
        assert!(output.stderr.contains("2020-01-01-00"), "{output}");
        let output = fixture.run(&["restore", "redis://127.0.0.1:1/1"]).refused();
        assert!(output.stderr.contains("name the hours"), "{output}");
    });
}

#[test]
fn completions_and_manual_pages_are_printed() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        for shell in ["bash", "zsh", "fish"] {
            let script = fixture.run(&["completion", shell]).ok().stdout;
            assert!(script.contains("warmup") && script.contains("cache-dir"), "{shell}");
        }
        assert!(fixture.run(&["completion", "csh"]).stderr.contains("csh"));
        assert!(fixture.run(&["man"]).ok().stdout.contains(".TH jfs"));
        fixture.run(&["man", "--out-dir", "pages/man1"]).ok();
        let page = fs::read_to_string(fixture.path("pages/man1/jfs-mount-mount.1")).unwrap();
        assert!(page.contains("writeback"), "{page}");
        let help = fixture.run(&["--help"]).ok().stdout;
        for group in ["ADMIN:", "INSPECTOR:", "SERVICE:", "TOOL:"] {
            assert!(help.contains(group), "{help}");
        }
    });
}
