//! Dumps and loads that are interrupted, and stores that are not empty.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};

use jfs::meta::record::Counter;
use nix::sys::signal::Signal;

use crate::fixture::{dump_by, dump_to, fill, load_by, tool};
use crate::on_both;
use crate::support::fixture::{Fixture, eventually, ours, signal};
use crate::support::redis::RedisServer;
use crate::support::timeout::{MOUNTED, within};

on_both! {
    a_store_in_use_is_not_loaded_into,
    secret_keys_are_only_dumped_on_request,
    an_interrupted_load_leaves_an_empty_store,
    a_dump_replaces_a_file_only_when_it_is_complete,
}

fn a_store_in_use_is_not_loaded_into(fixture: &Fixture) {
    fixture.format(&[]);
    let path = fixture.folder().join("dump.json");
    dump_to(true, fixture.url(), &path, &[]);
    let before = dump_by(true, fixture.url(), &[]);
    let refused = load_by(true, fixture.url(), &path, &[]).refused();
    assert!(refused.stderr.contains("is used by volume volume"), "{refused}");
    assert_eq!(dump_by(true, fixture.url(), &[]), before);
}

#[test]
fn a_store_with_other_keys_is_not_loaded_into() {
    within(MOUNTED, || {
        let (fixture, other) = (Fixture::sqlite(), RedisServer::start());
        fixture.format(&[]);
        let path = fixture.folder().join("dump.json");
        dump_to(true, fixture.url(), &path, &[]);
        other.ask("SET mine 1");
        let refused = load_by(true, &other.url(0), &path, &[]).refused();
        assert!(refused.stderr.contains("is not empty"), "{refused}");
        assert!(other.ask("DBSIZE").contains('1'));
    });
}

fn secret_keys_are_only_dumped_on_request(fixture: &Fixture) {
    fixture.format(&["--access-key", "open", "--secret-key", "sesame"]);
    let setting = |options: &[&str]| -> serde_json::Value {
        let dump: serde_json::Value =
            serde_json::from_str(&dump_by(true, fixture.url(), options)).unwrap();
        dump["Setting"]["SecretKey"].clone()
    };
    assert_eq!(setting(&[]), "removed");
    let kept = setting(&["--keep-secret-key"]);
    assert!(kept != "removed" && kept != "sesame", "{kept}");
    let path = fixture.folder().join("dump.json");
    dump_to(true, fixture.url(), &path, &[]);
    let loaded = Fixture::sqlite();
    let output = load_by(true, loaded.url(), &path, &[]).ok();
    assert!(output.stderr.contains("SecretKey was removed from the dump"), "{output}");
}

/// Starts a load from stdin and writes half of a dump to it.
fn half_loaded(fixture: &Fixture, url: &str) -> Child {
    fill(fixture);
    let dump = dump_by(true, fixture.url(), &[]);
    let mut command = ours();
    command.args(["load", url]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let half = &dump.as_bytes()[..dump.len() / 2];
    child.stdin.as_mut().unwrap().write_all(half).unwrap();
    child.stdin.as_mut().unwrap().flush().unwrap();
    child
}

fn an_interrupted_load_leaves_an_empty_store(fixture: &Fixture) {
    for stop in [Signal::SIGINT, Signal::SIGTERM] {
        let (source, loaded) = (Fixture::sqlite(), Fixture::at(fixture.url()));
        let mut child = half_loaded(&source, loaded.url());
        eventually("the load has begun", || is_being_loaded(loaded.url()));
        signal(child.id(), stop);
        let output = child.wait_with_output_of();
        assert!(output.contains("nothing was loaded"), "{output}");
        let path = source.folder().join("dump.json");
        dump_to(true, source.url(), &path, &[]);
        // The Go client accepts only an empty store.
        load_by(false, loaded.url(), &path, &[]).ok();
        loaded.go.fsck();
        tool(&["destroy", loaded.url(), &uuid(&loaded), "--force"]).ok();
    }
}

fn is_being_loaded(url: &str) -> bool {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let engine = jfs::meta::engine::connect(url).await.unwrap();
        let marked = engine.counter(Counter::UnfinishedLoad).await;
        engine.close().await.unwrap();
        marked.is_ok_and(|marked| marked > 0)
    })
}

fn uuid(fixture: &Fixture) -> String {
    fixture.go.status()["Setting"]["UUID"].as_str().unwrap().to_owned()
}

trait Output {
    fn wait_with_output_of(&mut self) -> String;
}

impl Output for Child {
    /// Waits for the end and returns stderr. Stdin stays open, as that of a pipe that stalls.
    fn wait_with_output_of(&mut self) -> String {
        let mut text = String::new();
        std::io::Read::read_to_string(self.stderr.as_mut().unwrap(), &mut text).unwrap();
        assert!(!self.wait().unwrap().success());
        text
    }
}

#[test]
fn a_load_removes_what_a_killed_one_left() {
    within(MOUNTED, || {
        let (source, server) = (Fixture::sqlite(), RedisServer::start());
        let loaded = Fixture::at(&server.url(0));
        let mut child = half_loaded(&source, loaded.url());
        eventually("records are loaded", || server.ask("EXISTS unfinishedLoad").contains('1'));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(server.ask("EXISTS setting").contains('0'));
        let path = source.folder().join("dump.json");
        dump_to(true, source.url(), &path, &[]);
        // It might still be running.
        let refused = load_by(true, loaded.url(), &path, &[]).refused();
        assert!(refused.stderr.contains("run this again in"), "{refused}");
        // Nobody formats a volume over the remains.
        let refused = tool(&["format", loaded.url(), "other"]).refused();
        assert!(refused.stderr.contains("a load"), "{refused}");
        server.ask("SET unfinishedLoad 1");
        let output = load_by(true, loaded.url(), &path, &[]).ok();
        assert!(
            output.stderr.contains("removing what a load that did not finish left"),
            "{output}"
        );
        assert_eq!(dump_by(true, loaded.url(), &[]), dump_by(true, source.url(), &[]));
        assert!(server.ask("EXISTS unfinishedLoad").contains('0'));
    });
}

fn a_dump_replaces_a_file_only_when_it_is_complete(fixture: &Fixture) {
    fill(fixture);
    let path = fixture.folder().join("dump.json");
    fs::write(&path, "old").unwrap();
    let mut command = ours();
    command.args(["dump", fixture.url(), path.to_str().unwrap()]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It is either interrupted or already complete.
    signal(child.id(), Signal::SIGTERM);
    child.wait().unwrap();
    let found = fs::read_to_string(&path).unwrap();
    assert!(found == "old" || found == dump_by(true, fixture.url(), &[]), "{found}");
    dump_to(true, fixture.url(), &path, &[]);
    assert_eq!(fs::read_to_string(&path).unwrap(), dump_by(true, fixture.url(), &[]));
}

#[test]
fn the_embedded_volume_is_dumped_and_loaded_without_an_address() {
    within(MOUNTED, || {
        let (source, folder) = (Fixture::sqlite(), tempfile::tempdir().unwrap());
        fill(&source);
        let dir = folder.path().join("data");
        let file = folder.path().join("dump.json");
        let (dir, file) = (dir.to_str().unwrap(), file.to_str().unwrap());
        let none = tool(&["dump", "--data-dir", dir]).refused();
        assert!(none.stderr.contains("there is no embedded volume"), "{none}");
        dump_to(true, source.url(), Path::new(file), &[]);
        tool(&["load", "--data-dir", dir, file]).ok();
        assert_eq!(
            tool(&["dump", "--data-dir", dir]).ok().stdout,
            dump_by(true, source.url(), &[])
        );
        let again = tool(&["load", "--data-dir", dir, file]).refused();
        assert!(again.stderr.contains("is used by volume"), "{again}");
    });
}

#[test]
fn options_that_are_not_supported_are_refused_by_name() {
    let refused = tool(&["load", "memkv://", "x", "--encrypt-rsa-key", "k.pem"]).refused();
    assert!(refused.stderr.contains("--encrypt-rsa-key"), "{refused}");
    let refused = tool(&["load", "x", "--stat"]).refused();
    assert!(refused.stderr.contains("--binary"), "{refused}");
}
