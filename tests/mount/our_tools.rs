//! Our commands on a mount of either client, beside the Go client's commands.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{KIB, MIB, bytes, names, open};
use crate::on_both;
use crate::support::command::{Finished, run};
use crate::support::fixture::{Client, Fixture, Mounted, PATIENCE, ours};
use crate::support::juicefs::juicefs;

on_both! {
    warmup_fills_checks_and_empties_the_cache,
    clone_makes_an_independent_copy,
    summary_prints_what_the_go_command_prints,
    compact_joins_slices,
    profile_counts_what_the_go_command_counts,
    restore_puts_removed_files_back,
    destroy_leaves_neither_objects_nor_metadata,
}

#[track_caller]
fn tool(arguments: &[&str]) -> Finished {
    let mut command = ours();
    command.args(arguments);
    run(command, PATIENCE)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn on_each_mount(fixture: &Fixture, body: impl Fn(&Mounted)) {
    fixture.format(&[]);
    for client in [Client::Ours, Client::Go] {
        let mount = fixture.mount_by(client, &[]);
        body(&mount);
    }
}

fn warmup_fills_checks_and_empties_the_cache(fixture: &Fixture) {
    on_each_mount(fixture, |mount| {
        let dir = mount.at(if mount.is_ours() { "ours" } else { "go" });
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("f"), bytes(1, 5 * MIB)).unwrap();
        fs::write(dir.join("g"), bytes(2, MIB)).unwrap();
        let checked = || {
            let output = tool(&["warmup", "--check", text(&dir)]).ok().stdout;
            output.lines().last().unwrap().to_owned()
        };
        tool(&["warmup", "--evict", text(&dir)]).ok();
        assert_eq!(checked(), "check: 2 files checked, 0 B of 6.0 MiB (0.0%) cached");
        let list = fixture.folder().join("list");
        fs::write(&list, format!("{}\n{}\n", text(&dir.join("f")), text(&dir.join("g")))).unwrap();
        let warm = tool(&["warmup", "-f", text(&list)]).ok().stdout;
        assert_eq!(warm, "warm up: 2 files (6.0 MiB)\n");
        assert_eq!(checked(), "check: 2 files checked, 6.0 MiB of 6.0 MiB (100.0%) cached");
        tool(&["warmup", "--evict", text(&dir.join("g"))]).ok();
        let json = tool(&["warmup", "--check", "--json", text(&dir)]).ok().stdout;
        let found: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&found["TotalBytes"], &found["MissBytes"]), (&(6 * MIB).into(), &MIB.into()));
    });
    let refused = tool(&["warmup", text(fixture.folder())]).refused();
    assert!(refused.stderr.contains("is not in a JuiceFS mount"), "{refused}");
}

fn clone_makes_an_independent_copy(fixture: &Fixture) {
    on_each_mount(fixture, |mount| {
        let name = if mount.is_ours() { "ours" } else { "go" };
        let (top, copy) = (mount.at(name), mount.at(format!("{name}-copy")));
        fs::create_dir_all(top.join("below")).unwrap();
        fs::write(top.join("f"), bytes(1, 5 * MIB)).unwrap();
        fs::write(top.join("below/g"), "small").unwrap();
        tool(&["clone", "-p", text(&top), text(&copy)]).ok();
        let mut same = Command::new("diff");
        same.arg("-r").arg(&top).arg(&copy);
        run(same, PATIENCE).ok();
        fs::write(copy.join("below/g"), "other").unwrap();
        assert_eq!(fs::read(top.join("below/g")).unwrap(), b"small");
        let again = tool(&["clone", text(&top), text(&copy)]).refused();
        assert!(again.stderr.contains("exists already"), "{again}");
        tool(&["clone", text(&top), &format!("{}/", text(&copy))]).ok();
        assert_eq!(names(&copy), ["below", "f", name]);
    });
}

fn summary_prints_what_the_go_command_prints(fixture: &Fixture) {
    on_each_mount(fixture, |mount| {
        let top = mount.at(if mount.is_ours() { "ours" } else { "go" });
        fs::create_dir_all(top.join("below/deeper")).unwrap();
        fs::write(top.join("big"), bytes(1, 3 * MIB)).unwrap();
        fs::write(top.join("with, comma"), bytes(2, 50 * KIB)).unwrap();
        fs::write(top.join("below/one"), bytes(3, 5 * KIB)).unwrap();
        fs::write(top.join("below/deeper/two"), bytes(4, 20 * KIB)).unwrap();
        for options in [
            &["--csv", "--strict"][..],
            &["--csv", "--strict", "-d", "1"],
            &["--csv", "--strict", "-e", "1"],
            &["--strict"],
        ] {
            let arguments = [&["summary"], options, &[text(&top)]].concat();
            let (ours, go) = (tool(&arguments).ok().stdout, juicefs(&arguments).ok().stdout);
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(|l| l.trim().to_owned()).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&ours), sorted(&go), "{options:?}");
        }
    });
}

fn compact_joins_slices(fixture: &Fixture) {
    on_each_mount(fixture, |mount| {
        let path = mount.at(if mount.is_ours() { "ours" } else { "go" });
        let file = open(&path);
        for number in 0..4 {
            file.write_all_at(&bytes(number, 10 * KIB), number * 10 * KIB).unwrap();
            file.sync_all().unwrap();
        }
        drop(file);
        let slices = || {
            let json = tool(&["info", "--raw", "--json", text(&path)]).ok().stdout;
            let found: Value = serde_json::from_str(&json).unwrap();
            found[0]["Chunks"].as_array().unwrap().len()
        };
        assert!(slices() > 1);
        let before = fs::read(&path).unwrap();
        tool(&["compact", text(&path)]).ok();
        assert_eq!(slices(), 1);
        assert_eq!(fs::read(&path).unwrap(), before);
    });
}

fn profile_counts_what_the_go_command_counts(fixture: &Fixture) {
    let log = fixture.folder().join("access.log");
    let line = |second: u32, uid: u32, op: &str, took: &str| {
        format!(
            "2026.11.16 20:00:{second:02}.000000 [uid:{uid},gid:0,pid:7] {op} (1): OK <{took}>\n"
        )
    };
    let lines = [
        line(0, 0, "lookup", "0.000100"),
        line(1, 1, "write", "0.002000"),
        "#\n".to_owned(),
        line(1, 1, "write", "0.001000"),
        line(2, 0, "read", "0.000050"),
    ];
    fs::write(&log, lines.concat()).unwrap();
    let rows = |output: &str| -> Vec<Vec<String>> {
        let mut rows: Vec<Vec<String>> = output
            .lines()
            .map(|line| line.split_whitespace().take(4).map(str::to_owned).collect())
            .filter(|row: &Vec<String>| {
                row.len() == 4 && row[1].chars().all(|digit| digit.is_ascii_digit())
            })
            .collect();
        rows.sort();
        rows
    };
    for options in [&[][..], &["--uid", "1"]] {
        let arguments = [&["profile", text(&log), "--interval", "0"], options].concat();
        let (ours, go) = (tool(&arguments).ok().stdout, go_profile(options, &log));
        assert_eq!(rows(&ours), rows(&go), "{ours}\n{go}");
        assert!(rows(&ours).iter().any(|row| row[..4] == ["write", "2", "1500", "3000"]), "{ours}");
    }
}

/// The Go command takes options before the path only.
fn go_profile(options: &[&str], log: &Path) -> String {
    let arguments = [&["profile", "--interval", "0"], options, &[text(log)]].concat();
    juicefs(&arguments).ok().stdout
}

fn restore_puts_removed_files_back(fixture: &Fixture) {
    fixture.format(&["--trash-days", "1"]);
    let mount = fixture.mount(&[]);
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("d/f"), "text").unwrap();
    fs::write(mount.at("kept"), "kept").unwrap();
    fs::remove_dir_all(mount.at("d")).unwrap();
    fs::remove_file(mount.at("kept")).unwrap();
    fs::write(mount.at("kept"), "newer").unwrap();
    let hours = names(mount.at(".trash"));
    let mut arguments = vec!["restore", fixture.url(), "--put-back"];
    arguments.extend(hours.iter().map(String::as_str));
    let restored = tool(&arguments).ok().stdout;
    assert!(restored.contains("2 restored, 1 conflicts, 0 failed"), "{restored}");
    drop(mount);
    let mount = fixture.mount(&[]);
    assert_eq!(fs::read(mount.at("d/f")).unwrap(), b"text");
    assert_eq!(fs::read(mount.at("kept")).unwrap(), b"newer");
    drop(mount);
    fixture.check();
    let unknown = tool(&["restore", fixture.url(), "1999-01-01-00"]).refused();
    assert!(unknown.stderr.contains("1999-01-01-00"), "{unknown}");
}

fn destroy_leaves_neither_objects_nor_metadata(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = fixture.mount(&[]);
    fs::write(mount.at("f"), bytes(1, 5 * MIB)).unwrap();
    let status: Value = serde_json::from_str(&fixture.tool("status", &[]).ok().stdout).unwrap();
    let uuid = status["Setting"]["UUID"].as_str().unwrap().to_owned();
    let used = tool(&["destroy", fixture.url(), &uuid, "--yes"]).refused();
    assert!(used.stderr.contains("sessions are active"), "{used}");
    let file = fs::read(mount.at("f")).unwrap();
    assert_eq!(file.len() as u64, 5 * MIB);
    drop(mount);
    let other = tool(&["destroy", fixture.url(), "no-uuid", "--yes"]).refused();
    assert!(other.stderr.contains(&uuid), "{other}");
    let destroyed = tool(&["destroy", fixture.url(), &uuid, "--yes"]).ok();
    assert!(destroyed.stdout.contains("and the metadata of volume"), "{destroyed}");
    let objects = files_below(&fixture.bucket());
    assert_eq!(objects, 0);
    fixture.tool("status", &[]).refused();
}

fn files_below(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 }).sum()
}
