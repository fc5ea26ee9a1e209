//! Options: mistakes are found and named before anything is changed.

use super::fixture::{CliFixture, config, exit_status};
use super::support::timeout::{MOUNTED, within};

#[test]
fn a_wrong_option_is_a_usage_error_that_names_it() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
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
            let refused = fixture.run(&[&["mount"], words].concat());
            assert_eq!(exit_status(&refused), 2, "{refused}");
            assert!(refused.stderr.contains(named), "{refused}");
        }
        assert!(!fixture.path("data").exists() && !fixture.path("mnt").exists());
    });
}

#[test]
fn the_option_syntax_of_the_go_client_is_accepted() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let point = fixture.point().display().to_string();
        fixture
            .mount(&["-attr-cache=2.5", "--writeback=false", "-metrics", "127.0.0.1:0", &point])
            .ok();
        let shown = config(&fixture.point());
        assert_eq!(shown["AttrTimeout"], 2_500_000_000_u64);
        assert_eq!(shown["Chunk"]["Writeback"], false);
        fixture.unmount();
    });
}

#[test]
fn an_option_without_effect_is_reported_once() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let point = fixture.point().display().to_string();
        let mounted =
            fixture.mount(&["--consul", "127.0.0.1:8500", "--skip-dir-nlink", "5", &point]).ok();
        for option in ["--consul", "--skip-dir-nlink"] {
            let lines = mounted.stderr.lines().filter(|line| line.contains(option)).count();
            assert_eq!(lines, 1, "{mounted}");
            assert!(fixture.log().contains(option), "{}", fixture.log());
        }
        fixture.unmount();
    });
}

#[test]
fn quotas_are_printed_as_json() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let url = fixture.redis_volume(&[]);
        fixture.run(&["quota", "set", &url, "--path", "/dir", "--create", "--inodes", "7"]).ok();
        for words in [
            &["quota", "list", &url, "--json"][..],
            &["quota", "get", &url, "--path", "/dir", "--json"],
        ] {
            let output = fixture.run(words).ok();
            let quotas: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
            assert_eq!((&quotas[0]["Name"], &quotas[0]["MaxInodes"]), (&"/dir".into(), &7.into()));
        }
        // Commands without a text output print JSON anyway.
        let status = fixture.run(&["status", &url]).ok();
        assert!(serde_json::from_str::<serde_json::Value>(&status.stdout).is_ok(), "{status}");
    });
}

#[test]
fn quotas_are_listed_by_path_user_and_group() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let url = fixture.redis_volume(&[]);
        fixture.run(&["config", &url, "--user-group-quota", "--yes"]).ok();
        fixture.run(&["quota", "set", &url, "--path", "/dir", "--create", "--inodes", "7"]).ok();
        for (kind, id) in [("--uid", "1000"), ("--uid", "1001"), ("--gid", "1000")] {
            fixture.run(&["quota", "set", &url, kind, id, "--inodes", "8"]).ok();
        }
        let listed = |words: &[&str]| {
            let words = [&["quota", "list", &url, "--json"], words].concat();
            let output = fixture.run(&words).ok();
            let quotas: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
            let names = quotas.as_array().unwrap().iter().map(|it| it["Name"].to_string());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(listed(&[]), r#""/dir" "gid:1000" "uid:1000" "uid:1001""#);
        assert_eq!(listed(&["--uid", "1000"]), r#""uid:1000""#);
        assert_eq!(listed(&["--gid", "1000"]), r#""gid:1000""#);
        assert_eq!(listed(&["--path", "/dir"]), r#""/dir""#);
        assert_eq!(listed(&["--gid", "1001"]), "", "this group has no quota");
    });
}

#[test]
fn a_negative_duration_is_refused() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let url = fixture.redis_volume(&[]);
        for words in [&["--changelog-max-age", "-1s"][..], &["--changelog-max-age=-1s"]] {
            let refused =
                fixture.run(&[&["config", &url, "--changelog"], words].concat()).refused();
            assert!(refused.stderr.contains("must not be negative"), "{refused}");
        }
    });
}

#[test]
fn the_version_is_printed() {
    within(MOUNTED, || {
        let fixture = CliFixture::new();
        let version = env!("CARGO_PKG_VERSION");
        assert!(fixture.run(&["version"]).ok().stdout.contains(version));
        assert!(fixture.run(&["--version"]).ok().stdout.contains(version));
        let json: serde_json::Value =
            serde_json::from_str(&fixture.run(&["version", "--json"]).ok().stdout).unwrap();
        assert_eq!(json["Version"], version);
    });
}
