//! fsx: random reads, writes, mmaps, truncates, holes and copies of one file, with each byte
//! checked.

use std::fs;
use std::process::Command;
use std::thread;

use crate::suite::{LIMIT, built, within_limit};
use crate::support::command::run;
use crate::support::fixture::{Fixture, Mounted, long};

/// All its operations.
const EVERYTHING: &str = "
    flen = 262144
    [opsize]
    min = 1
    max = 32768
    [weights]
    close_open = 2
    invalidate = 1
    mapread = 10
    mapwrite = 10
    read = 10
    write = 10
    truncate = 5
    fsync = 1
    fdatasync = 1
    posix_fallocate = 2
    punch_hole = 3
    sendfile = 3
    posix_fadvise = 1
    copy_file_range = 3
";

/// Files that span several blocks and chunks: 80 MiB.
const LARGE: &str = "
    flen = 83886080
    [opsize]
    min = 1
    max = 1048576
    [weights]
    close_open = 1
    mapread = 5
    mapwrite = 5
    read = 10
    write = 10
    truncate = 1
    fsync = 1
    punch_hole = 1
    copy_file_range = 1
";

const OPERATIONS: u32 = 100_000;
/// Operations on the large file.
const FEW: u32 = 200;

/// For options that change one part of the path of a write.
fn part() -> u32 {
    if long() { OPERATIONS } else { OPERATIONS / 4 }
}

/// Operations for mount options that other tests cover in part.
fn fewer() -> u32 {
    if long() { OPERATIONS } else { OPERATIONS / 10 }
}

#[test]
fn several_seeds_on_redis() {
    within_limit(|| with(&Fixture::redis(), &[], &[], &[(1, OPERATIONS), (2, fewer())]));
}

#[test]
fn several_seeds_on_sqlite() {
    within_limit(|| with(&Fixture::sqlite(), &[], &[], &[(11, OPERATIONS), (12, fewer())]));
}

#[test]
fn a_seed_on_tikv() {
    within_limit(|| on_tikv(&Fixture::tikv(), 21));
}

#[test]
fn a_seed_on_tikv_in_several_regions() {
    within_limit(|| on_tikv(&Fixture::split_tikv(), 22));
}

#[test]
fn with_the_kernels_write_cache_on_redis() {
    within_limit(|| with(&Fixture::redis(), &[], &["-o", "writeback_cache"], &[(31, part())]));
}

#[test]
fn with_the_kernels_write_cache_on_sqlite() {
    within_limit(|| with(&Fixture::sqlite(), &[], &["-o", "writeback_cache"], &[(32, part())]));
}

#[test]
fn with_a_tiny_buffer_on_redis() {
    within_limit(|| with(&Fixture::redis(), &[], &["--buffer-size", "32"], &[(41, part())]));
}

#[test]
fn with_a_tiny_buffer_on_sqlite() {
    within_limit(|| with(&Fixture::sqlite(), &[], &["--buffer-size", "32"], &[(42, part())]));
}

#[test]
fn with_small_blocks_on_redis() {
    within_limit(|| with(&Fixture::redis(), &["--block-size", "1M"], &[], &[(51, part())]));
}

#[test]
fn with_small_blocks_on_sqlite() {
    within_limit(|| with(&Fixture::sqlite(), &["--block-size", "1M"], &[], &[(52, part())]));
}

#[test]
fn with_staging_and_compression_on_redis() {
    let blocks = &["--block-size", "1M", "--compress", "lz4"];
    within_limit(|| with(&Fixture::redis(), blocks, &["--writeback"], &[(61, fewer())]));
}

/// A commit on the test server takes as long as ten on the others.
fn on_tikv(fixture: &Fixture, seed: u32) {
    with(fixture, &[], &[], &[(seed, fewer() / 2)]);
}

/// Runs one file for each seed, all at once, with this many operations; then a large one.
fn with(fixture: &Fixture, volume: &[&str], options: &[&str], seeds: &[(u32, u32)]) {
    fixture.format(volume);
    let mount = fixture.mount(options);
    thread::scope(|scope| {
        for (seed, operations) in seeds {
            let mount = &mount;
            scope.spawn(move || exercise(fixture, mount, EVERYTHING, *operations, *seed));
        }
    });
    exercise(fixture, &mount, LARGE, FEW, seeds[0].0 + 1000);
    drop(mount);
    fixture.check();
}

#[track_caller]
fn exercise(fixture: &Fixture, mount: &Mounted, what: &str, operations: u32, seed: u32) {
    let configuration = fixture.folder().join(format!("fsx-{seed}.toml"));
    fs::write(&configuration, what).unwrap();
    let mut command = Command::new(built("fsx"));
    command.arg("-f").arg(configuration).arg("-P").arg(fixture.folder());
    command.args(["-N", &operations.to_string(), "-S", &seed.to_string()]);
    command.arg(mount.at(format!("fsx-{seed}")));
    run(command, LIMIT).ok();
}
