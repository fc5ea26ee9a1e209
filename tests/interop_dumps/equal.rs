//! The same volume, whoever dumps and loads it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::fixture::{dump_by, dump_to, fill, load_by, tool, without_counters};
use crate::support::command::run;
use crate::support::fixture::{Fixture, PATIENCE};
use crate::support::juicefs::juicefs;
use crate::support::timeout::{MOUNTED, within};

macro_rules! on_every_engine {
    ($($body:ident),* $(,)?) => {
        on_every_engine!(@engine redis; $($body),*);
        on_every_engine!(@engine sqlite; $($body),*);
        on_every_engine!(@engine tikv; $($body),*);
    };
    (@engine $engine:ident; $($body:ident),*) => {
        mod $engine {
            use crate::support::fixture::{Fixture, with};
            $(
                #[test]
                fn $body() {
                    with(Fixture::$engine, super::$body);
                }
            )*
        }
    };
}

on_every_engine! {
    our_dump_is_the_dump_of_the_go_client,
    a_dump_of_either_client_is_loaded_by_the_other,
    a_binary_dump_of_either_client_is_loaded_by_the_other,
}

fn file(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.folder().join(name)
}

/// Byte for byte: nothing is allowed to differ on a volume without sessions and deleted files.
fn our_dump_is_the_dump_of_the_go_client(fixture: &Fixture) {
    fill(fixture);
    for options in [&[][..], &["--skip-trash"], &["--subdir", "/d"], &["--threads", "1"]] {
        let (ours, go) =
            (dump_by(true, fixture.url(), options), dump_by(false, fixture.url(), options));
        similar(&ours, &go);
    }
}

#[track_caller]
fn similar(ours: &str, go: &str) {
    for (number, (ours, go)) in ours.lines().zip(go.lines()).enumerate() {
        assert_eq!(ours, go, "line {}", number + 1);
    }
    assert!(ours == go);
}

/// The loaded volume serves the same tree, and both clients find it correct.
#[track_caller]
fn same_tree(fixture: &Fixture, loaded: &Fixture) {
    let (before, after) = (fixture.mount(&["--read-only"]), loaded.mount(&["--read-only"]));
    let mut same = Command::new("diff");
    same.args(["-r", "--no-dereference", "--exclude", "fifo"])
        .arg(before.at("d"))
        .arg(after.at("d"));
    run(same, PATIENCE).ok();
    drop((before, after));
    loaded.go.fsck();
    for target in [&["--path", "/d"][..], &["--path", "/d/below"], &["--uid", "1001"]] {
        let check = [&["quota", "check", loaded.url(), "--strict"], target].concat();
        tool(&check).ok();
    }
}

fn a_dump_of_either_client_is_loaded_by_the_other(fixture: &Fixture) {
    fill(fixture);
    for ours in [true, false] {
        for name in ["dump.json", "dump.json.gz", "dump.json.zstd"] {
            dump_to(ours, fixture.url(), &file(fixture, name), &[]);
        }
        let original = fs::read_to_string(file(fixture, "dump.json")).unwrap();
        for (name, make) in [
            ("dump.json", Fixture::redis as fn() -> Fixture),
            ("dump.json.gz", Fixture::sqlite),
            ("dump.json.zstd", Fixture::tikv),
        ] {
            let loaded = make();
            load_by(!ours, loaded.url(), &file(fixture, name), &[]).ok();
            for again in [true, false] {
                let dumped = dump_by(again, loaded.url(), &[]);
                assert_eq!(
                    without_counters(&dumped),
                    without_counters(&original),
                    "{name}, dumped by {}, loaded by {}",
                    if ours { "us" } else { "the Go client" },
                    if ours { "the Go client" } else { "us" }
                );
            }
            same_tree(fixture, &loaded);
        }
    }
}

fn a_binary_dump_of_either_client_is_loaded_by_the_other(fixture: &Fixture) {
    fill(fixture);
    let original = dump_by(true, fixture.url(), &[]);
    for ours in [true, false] {
        let path = file(fixture, "dump.bin");
        dump_to(ours, fixture.url(), &path, &["--binary"]);
        for make in [Fixture::redis as fn() -> Fixture, Fixture::sqlite, Fixture::tikv] {
            let loaded = make();
            load_by(!ours, loaded.url(), &path, &["--binary"]).ok();
            let dumped = dump_by(true, loaded.url(), &[]);
            similar(&dumped, &original);
            same_tree(fixture, &loaded);
        }
        let stat = ["load", path.to_str().unwrap(), "--binary", "--stat"];
        assert_eq!(tool(&stat).ok().stdout, juicefs(&stat).ok().stdout);
    }
}

#[test]
fn a_volume_that_went_through_every_engine_has_the_same_dump() {
    within(MOUNTED, || {
        for options in [&[][..], &["--binary"]] {
            let stops = [Fixture::redis(), Fixture::sqlite(), Fixture::tikv(), Fixture::redis()];
            fill(&stops[0]);
            let original = dump_by(true, stops[0].url(), &[]);
            for pair in stops.windows(2) {
                let path = file(&stops[0], "dump");
                dump_to(true, pair[0].url(), &path, options);
                load_by(true, pair[1].url(), &path, options).ok();
                similar(&dump_by(true, pair[1].url(), &[]), &original);
            }
        }
    });
}
