//! Mistakes are found before anything is touched, and named.

use super::rig::{Rig, code, config};
use super::support::timeout::{MOUNTED, within};

#[test]
fn a_wrong_option_is_a_usage_error_that_names_it() {
    within(MOUNTED, || {
        let rig = Rig::new();
        for (words, named) in [
            (&["--colour", "mnt"][..], "--colour"),
            (&["--cache-size", "much", "mnt"], "--cache-size"),
            (&["--writeback", "--cache-size", "0", "mnt"], "--writeback"),
            (&["-d", "--root-squash", "1", "--all-squash", "1", "mnt"], "--root-squash"),
            (&["-o", "colour", "mnt"], "colour"),
            (&["redis://host/1"], "MOUNTPOINT"),
            (&["a", "b", "c"], "META-URL"),
            (&[], "META-URL"),
        ] {
            let refused = rig.run(&[&["mount"], words].concat());
            assert_eq!(code(&refused), 2, "{refused}");
            assert!(refused.stderr.contains(named), "{refused}");
        }
        assert!(!rig.path("data").exists() && !rig.path("mnt").exists());
    });
}

#[test]
fn options_may_be_written_as_the_go_client_takes_them() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let point = rig.point().display().to_string();
        rig.mount(&["-attr-cache=2.5", "--writeback=false", "-metrics", "127.0.0.1:0", &point])
            .ok();
        let shown = config(&rig.point());
        assert_eq!(shown["AttrTimeout"], 2_500_000_000_u64);
        assert_eq!(shown["Chunk"]["Writeback"], false);
        rig.unmount();
    });
}

#[test]
fn an_option_without_effect_says_so_once() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let point = rig.point().display().to_string();
        let mounted =
            rig.mount(&["--consul", "127.0.0.1:8500", "--backup-meta", "1h", &point]).ok();
        for option in ["--consul", "--backup-meta"] {
            let lines = mounted.stderr.lines().filter(|line| line.contains(option)).count();
            assert_eq!(lines, 1, "{mounted}");
            assert!(rig.log().contains(option), "{}", rig.log());
        }
        rig.unmount();
    });
}

#[test]
fn quotas_can_be_read_by_scripts() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let url = rig.redis_volume(&[]);
        rig.run(&["quota", "set", &url, "--path", "/dir", "--create", "--inodes", "7"]).ok();
        for words in [
            &["quota", "list", &url, "--json"][..],
            &["quota", "get", &url, "--path", "/dir", "--json"],
        ] {
            let answer = rig.run(words).ok();
            let quotas: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
            assert_eq!((&quotas[0]["Name"], &quotas[0]["MaxInodes"]), (&"/dir".into(), &7.into()));
        }
        // What has no output of its own is JSON anyway.
        let status = rig.run(&["status", &url]).ok();
        assert!(serde_json::from_str::<serde_json::Value>(&status.stdout).is_ok(), "{status}");
    });
}

#[test]
fn quotas_are_listed_by_whose_they_are() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let url = rig.redis_volume(&[]);
        rig.run(&["config", &url, "--user-group-quota", "--yes"]).ok();
        rig.run(&["quota", "set", &url, "--path", "/dir", "--create", "--inodes", "7"]).ok();
        for (kind, id) in [("--uid", "1000"), ("--uid", "1001"), ("--gid", "1000")] {
            rig.run(&["quota", "set", &url, kind, id, "--inodes", "8"]).ok();
        }
        let listed = |words: &[&str]| {
            let words = [&["quota", "list", &url, "--json"], words].concat();
            let answer = rig.run(&words).ok();
            let quotas: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
            let names = quotas.as_array().unwrap().iter().map(|it| it["Name"].to_string());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(listed(&[]), r#""/dir" "gid:1000" "uid:1000" "uid:1001""#);
        assert_eq!(listed(&["--uid", "1000"]), r#""uid:1000""#);
        assert_eq!(listed(&["--gid", "1000"]), r#""gid:1000""#);
        assert_eq!(listed(&["--path", "/dir"]), r#""/dir""#);
        assert_eq!(listed(&["--gid", "1001"]), "", "it has none");
    });
}

#[test]
fn a_negative_duration_is_refused_as_such() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let url = rig.redis_volume(&[]);
        for words in [&["--changelog-max-age", "-1s"][..], &["--changelog-max-age=-1s"]] {
            let told = rig.run(&[&["config", &url, "--changelog"], words].concat()).refused();
            assert!(told.stderr.contains("must not be negative"), "{told}");
        }
    });
}

#[test]
fn the_version_is_told() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let version = env!("CARGO_PKG_VERSION");
        assert!(rig.run(&["version"]).ok().stdout.contains(version));
        assert!(rig.run(&["--version"]).ok().stdout.contains(version));
        let json: serde_json::Value =
            serde_json::from_str(&rig.run(&["version", "--json"]).ok().stdout).unwrap();
        assert_eq!(json["Version"], version);
    });
}
