//! The same script by either client gives the same volume: the same outcome of every step, the same
//! dump, and key by key or row by row the same store.

use super::place::Store;
use super::play::{Go, Scene, compare};
use super::support::timeout::{MOUNTED, within};
use super::{random, scripts};

const ACLS: &str = "--enable-acl";

fn on_both(options: &'static [&'static str], scenes: fn() -> Vec<Scene>, their: Go) {
    on(&[Store::Redis, Store::Sqlite, Store::Tikv], options, scenes, their);
}

fn on(
    stores: &'static [Store],
    options: &'static [&'static str],
    scenes: fn() -> Vec<Scene>,
    their: Go,
) {
    within(MOUNTED, move || {
        for store in stores {
            compare(*store, options, &scenes(), their);
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

/// Each line of the log is a contract of its own: who follows it repeats the changes elsewhere.
fn logged(scenes: Vec<Scene>) -> Vec<Scene> {
    std::iter::once(Scene::LogChanges).chain(scenes).collect()
}

#[test]
fn the_log_of_names() {
    on_both(&["--trash-days", "1", ACLS], || logged(scripts::names()), Go::IsRight);
}

#[test]
fn the_log_of_attributes() {
    on_both(&["--trash-days", "0", ACLS], || logged(scripts::attributes()), Go::IsRight);
}

#[test]
fn the_log_of_content() {
    on_both(&["--trash-days", "0"], || logged(scripts::content()), Go::IsRight);
}

#[test]
fn the_log_of_clones() {
    on_both(&["--trash-days", "1"], || logged(scripts::clones()), Go::Miscounts);
}

#[test]
fn the_log_of_quotas() {
    // In SQL the Go client notes the limits that come of a change, some at a later time again.
    on(&[Store::Redis], &["--trash-days", "0"], || logged(scripts::quotas()), Go::Miscounts);
}

#[test]
fn random_steps_with_trash() {
    on_both(&["--trash-days", "1", ACLS], || random::scenes(1, 250), Go::Miscounts);
}

#[test]
fn random_steps_without_trash() {
    on_both(&["--trash-days", "0", ACLS], || random::scenes(2, 250), Go::Miscounts);
}
