//! The same script gives the same volume with both clients: the same outcome of every step, the same
//! dump, and the same store, key by key or row by row.

use crate::script::runner::{GoUsage, ScriptPart, compare};
use crate::script::{fixed, random};
use crate::support::timeout::{MOUNTED, within};
use crate::test_volume::Store;

const ACLS: &str = "--enable-acl";

fn on_all_stores(options: &'static [&'static str], parts: fn() -> Vec<ScriptPart>, usage: GoUsage) {
    on(&[Store::Redis, Store::Sqlite, Store::Tikv], options, parts, usage);
}

fn on(
    stores: &'static [Store],
    options: &'static [&'static str],
    parts: fn() -> Vec<ScriptPart>,
    usage: GoUsage,
) {
    within(MOUNTED, move || {
        for store in stores {
            compare(*store, options, &parts(), usage);
        }
    });
}

#[test]
fn names_with_trash() {
    on_all_stores(&["--trash-days", "1"], fixed::names, GoUsage::Correct);
}

#[test]
fn names_without_trash() {
    on_all_stores(&["--trash-days", "0"], fixed::names, GoUsage::Correct);
}

#[test]
fn attributes() {
    on_all_stores(&["--trash-days", "1", ACLS], fixed::attributes, GoUsage::Correct);
}

#[test]
fn content_with_trash() {
    on_all_stores(&["--trash-days", "1"], fixed::content, GoUsage::Correct);
}

#[test]
fn content_without_trash() {
    on_all_stores(&["--trash-days", "0"], fixed::content, GoUsage::Correct);
}

#[test]
fn clones() {
    on_all_stores(&["--trash-days", "0"], fixed::clones, GoUsage::Miscounted);
}

#[test]
fn quotas() {
    on_all_stores(&["--trash-days", "1"], fixed::quotas, GoUsage::Miscounted);
}

/// Compares the change log as well: its readers repeat the changes elsewhere, so every line counts.
fn logged(parts: Vec<ScriptPart>) -> Vec<ScriptPart> {
    std::iter::once(ScriptPart::LogChanges).chain(parts).collect()
}

#[test]
fn the_log_of_names() {
    on_all_stores(&["--trash-days", "1", ACLS], || logged(fixed::names()), GoUsage::Correct);
}

#[test]
fn the_log_of_attributes() {
    on_all_stores(&["--trash-days", "0", ACLS], || logged(fixed::attributes()), GoUsage::Correct);
}

#[test]
fn the_log_of_content() {
    on_all_stores(&["--trash-days", "0"], || logged(fixed::content()), GoUsage::Correct);
}

#[test]
fn the_log_of_clones() {
    on_all_stores(&["--trash-days", "1"], || logged(fixed::clones()), GoUsage::Miscounted);
}

#[test]
fn the_log_of_quotas() {
    // In SQL the Go client logs the resulting limits, and some of them again later.
    on(&[Store::Redis], &["--trash-days", "0"], || logged(fixed::quotas()), GoUsage::Miscounted);
}

#[test]
fn random_steps_with_trash() {
    on_all_stores(&["--trash-days", "1", ACLS], || random::parts(1, 250), GoUsage::Miscounted);
}

#[test]
fn random_steps_without_trash() {
    on_all_stores(&["--trash-days", "0", ACLS], || random::parts(2, 250), GoUsage::Miscounted);
}
