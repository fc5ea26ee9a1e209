//! Checks the layers of the source tree: modules only use layers below, and each foreign crate stays in
//! its folder.
//!
//! The rules are in `rules.rs`; `source.rs` finds the paths that files name. Both are tested here on
//! made-up trees, since a checker that cannot fail checks nothing.
#![cfg(test)]

mod lexer;
mod rules;
mod source;

use std::path::Path;

use source::Tree;

#[test]
fn the_source_tree_respects_its_layers() {
    let tree = Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let broken = rules::violations(&tree);
    assert!(broken.is_empty(), "{} violations:\n{}", broken.len(), broken.join("\n"));
}

/// Returns the violations of a made-up tree of (path below src, content).
fn check(files: &[(&str, &str)]) -> Vec<String> {
    rules::violations(&Tree::from_files(files))
}

#[track_caller]
fn refused(files: &[(&str, &str)], because: &str) {
    let broken = check(files);
    assert!(
        broken.len() == 1 && broken[0].contains(because),
        "wanted one violation with {because:?}, got {broken:#?}"
    );
}

#[track_caller]
fn accepted(files: &[(&str, &str)]) {
    assert_eq!(check(files), Vec::<String>::new());
}

#[test]
fn using_a_lower_layer_is_accepted() {
    accepted(&[("vfs/mod.rs", "use crate::meta::Ino;"), ("meta/mod.rs", "pub struct Ino;")]);
}

#[test]
fn using_a_higher_layer_is_refused_with_file_and_line() {
    refused(
        &[("meta/mod.rs", "\n\nuse crate::vfs::File;"), ("vfs/mod.rs", "")],
        "src/meta/mod.rs:3: meta must not know vfs",
    );
}

#[test]
fn meta_and_chunk_do_not_know_each_other() {
    refused(&[("meta/mod.rs", "use crate::chunk::Store;"), ("chunk/mod.rs", "")], "chunk");
    refused(&[("chunk/mod.rs", "use crate::meta::Ino;"), ("meta/mod.rs", "")], "meta");
}

#[test]
fn an_inline_path_counts_like_a_use() {
    refused(
        &[
            ("object/mod.rs", "fn f() { let x = crate::chunk::Block::new(); }"),
            ("chunk/mod.rs", ""),
        ],
        "object must not know chunk",
    );
}

#[test]
fn a_path_in_a_group_counts() {
    refused(
        &[
            ("meta/mod.rs", "use crate::{error::{Error, Result}, vfs::{self, File}};"),
            ("vfs/mod.rs", ""),
            ("error.rs", ""),
        ],
        "vfs",
    );
}

#[test]
fn a_path_by_super_counts() {
    refused(
        &[
            ("meta/mod.rs", ""),
            ("meta/op/mod.rs", ""),
            ("meta/op/link.rs", "use super::super::super::vfs::File;"),
            ("vfs/mod.rs", ""),
        ],
        "src/meta/op/link.rs:1: meta must not know vfs",
    );
}

#[test]
fn super_in_an_inline_module_means_the_file() {
    accepted(&[
        ("meta/mod.rs", ""),
        ("meta/ids.rs", "mod tests { use super::*; use super::super::engine::Key; }"),
        ("meta/engine/mod.rs", ""),
    ]);
}

#[test]
fn a_re_export_does_not_hide_a_violation() {
    refused(
        &[
            ("meta/mod.rs", "pub use client::Meta;"),
            ("meta/client/mod.rs", "pub struct Meta;"),
            ("meta/engine/mod.rs", "use crate::meta::Meta;"),
        ],
        "meta::engine must not know meta::client",
    );
    refused(
        &[
            ("lib.rs", "pub use volume::Volume;"),
            ("volume.rs", "pub struct Volume;"),
            ("vfs/mod.rs", "use crate::Volume;"),
        ],
        "vfs must not know volume",
    );
}

#[test]
fn an_imported_module_does_not_hide_a_violation() {
    refused(
        &[
            ("meta/mod.rs", ""),
            ("meta/op/mod.rs", "use crate::meta::engine as store;\nfn f(_: store::redis::Conn) {}"),
            ("meta/engine/mod.rs", ""),
            ("meta/engine/redis/mod.rs", ""),
        ],
        "src/meta/op/mod.rs:2: meta::op must not know meta::engine::redis",
    );
}

#[test]
fn a_glob_over_something_forbidden_is_refused() {
    refused(
        &[("object/mod.rs", "use crate::*;"), ("vfs/mod.rs", ""), ("error.rs", "")],
        "object must not know",
    );
}

#[test]
fn records_do_not_know_engines() {
    refused(
        &[
            ("meta/mod.rs", ""),
            ("meta/record/attr.rs", "use crate::meta::engine::Key;"),
            ("meta/record/mod.rs", ""),
            ("meta/engine/mod.rs", ""),
        ],
        "meta::record must not know meta::engine",
    );
}

#[test]
fn operations_do_not_know_the_client() {
    refused(
        &[
            ("meta/mod.rs", "pub use client::Meta;"),
            ("meta/client/mod.rs", "pub struct Meta;"),
            ("meta/op/mod.rs", "use crate::meta::Meta;"),
        ],
        "meta::op must not know meta::client",
    );
}

#[test]
fn a_foreign_crate_stays_in_its_folder() {
    accepted(&[("fuse/mod.rs", "use fuser::Session;")]);
    refused(&[("vfs/mod.rs", "use fuser::Session;")], "fuser belongs under src/fuse");
    refused(&[("mounts/mod.rs", "fn f(_: tonic::Status) {}")], "tonic belongs under src/csi");
    refused(&[("meta/mod.rs", "use rusqlite::Connection;")], "src/meta/engine");
    refused(&[("chunk/mod.rs", "use aws_sdk_s3::Client;")], "src/object");
    refused(&[("vfs/mod.rs", "use nix::{errno::Errno, mount::umount};")], "nix::mount");
    refused(&[("vfs/mod.rs", "use anyhow::Context;")], "anyhow");
    accepted(&[
        ("cli/mount.rs", "use anyhow::Context;"),
        ("bin/jfs-csi.rs", "use anyhow::Result;"),
    ]);
}

#[test]
fn a_module_named_like_a_crate_is_the_module() {
    accepted(&[
        ("meta/mod.rs", ""),
        ("meta/engine/mod.rs", "pub mod redis; pub use redis::Store;"),
        ("meta/engine/redis/mod.rs", "use ::redis::Client; use redis::Cmd;"),
    ]);
}

#[test]
fn subcommands_do_not_know_each_other() {
    refused(
        &[("cli/mod.rs", ""), ("cli/mount.rs", "use super::format::run;"), ("cli/format.rs", "")],
        "cli::mount must not know cli::format",
    );
    accepted(&[
        ("cli/mod.rs", ""),
        ("cli/mount.rs", "use super::table::Table;"),
        ("cli/table.rs", ""),
    ]);
}

#[test]
fn csi_does_not_know_fuse() {
    refused(&[("csi/mod.rs", "use crate::fuse::Session;"), ("fuse/mod.rs", "")], "fuse");
}

#[test]
fn programs_know_only_their_entry_point() {
    accepted(&[("bin/jfs-mount.rs", "fn main() { jfs::cli::run() }"), ("cli/mod.rs", "")]);
    refused(
        &[("bin/jfs-mount.rs", "use jfs::vfs::File;"), ("vfs/mod.rs", "")],
        "bin must not know vfs",
    );
}

#[test]
fn a_module_without_a_layer_is_refused() {
    refused(&[("shiny.rs", "")], "src/shiny.rs: module shiny has no layer");
}

#[test]
fn paths_in_comments_and_strings_do_not_count() {
    for content in [
        "//! See [`crate::vfs::File`].",
        "/* crate::vfs::File /* nested */ crate::vfs::File */",
        r#"const A: &str = "crate::vfs::File \" crate::vfs::File";"#,
        "const A: &str = r#\"crate::vfs::\"File\"\"#;",
        "const A: char = '\"'; // crate::vfs::File",
        "fn f<'a>(x: &'a str) -> &'a str { x } // crate::vfs::File",
    ] {
        accepted(&[("meta/mod.rs", content), ("vfs/mod.rs", "")]);
        let then = format!("{content}\nuse crate::vfs::File;");
        refused(&[("meta/mod.rs", &then), ("vfs/mod.rs", "")], "meta must not know vfs");
    }
}
