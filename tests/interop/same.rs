//! The same script by either client gives the same volume: the same outcome of every step, the same
//! dump, and key by key or row by row the same store.

use super::place::Store;
use super::play::{Go, Scene, compare};
use super::scripts;
use super::support::timeout::{MOUNTED, within};

const ACLS: &str = "--enable-acl";

fn on_both(options: &'static [&'static str], scenes: fn() -> Vec<Scene>, their: Go) {
    within(2 * MOUNTED, move || {
        for store in [Store::Redis, Store::Sqlite] {
            compare(store, options, &scenes(), their);
        }
    });
}

#[test]
fn names_with_trash() {
    on_both(&["--trash-days", "1"], scripts::names, Go::IsRight);
}

#[test]
fn names_without_trash() {
    on_both(&["--trash-days", "0"], scripts::names, Go::IsRight);
}

#[test]
fn attributes() {
    on_both(&["--trash-days", "1", ACLS], scripts::attributes, Go::IsRight);
}

#[test]
fn content_with_trash() {
    on_both(&["--trash-days", "1"], scripts::content, Go::IsRight);
}

#[test]
fn content_without_trash() {
    on_both(&["--trash-days", "0"], scripts::content, Go::IsRight);
}

#[test]
fn clones() {
    on_both(&["--trash-days", "0"], scripts::clones, Go::Miscounts);
}

#[test]
fn quotas() {
    on_both(&["--trash-days", "1"], scripts::quotas, Go::Miscounts);
}
