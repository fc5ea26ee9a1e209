//! Measures publishing: the first target of a volume, the next one, many volumes at once, and the
//! memory of an idle volume.
//!
//! usage: cargo bench --bench csi
//!
//! The driver is a separate process with a Redis server on the same machine; calls go over its
//! socket, as kubelet's do. Results are printed, not asserted.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a failed measurement ends the program, as in tests"
)]

#[path = "../../tests/support/csi.rs"]
#[allow(dead_code, reason = "shared with tests")]
mod csi;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::fs;
use std::time::{Duration, Instant};

use csi::Node;
use futures::future::join_all;
use support::timeout::within;

/// The time limit of the whole run.
const LIMIT: Duration = Duration::from_mins(10);
/// Volumes of one file system that are published concurrently.
const MANY: usize = 100;
const ROUNDS: usize = 20;

fn main() {
    // `cargo test --benches` only checks that it starts.
    if std::env::args().any(|word| word == "--test") {
        return;
    }
    within(LIMIT, measure);
}

fn measure() {
    let node = Node::start_with_options(&["--max-volumes", "200"]);
    let first = timed(|| node.publish(&node.publication("pvc-first", "first")).unwrap());
    println!("first volume of a file system, with formatting: {first:.1?}");

    let mut cold = Vec::new();
    let mut second = Vec::new();
    for i in 0..ROUNDS {
        let id = format!("pvc-cold-{i}");
        let (one, two) = (node.publication(&id, "one"), node.publication(&id, "two"));
        cold.push(timed(|| node.publish(&one).unwrap()));
        second.push(timed(|| node.publish(&two).unwrap()));
        node.unpublish(&id, &one.target).unwrap();
        node.unpublish(&id, &two.target).unwrap();
    }
    println!("volume that is not mounted: {:.1?} (median of {ROUNDS})", median(cold));
    println!("second target of it: {:.1?} (median of {ROUNDS})", median(second));

    node.unpublish("pvc-first", &node.target("first")).unwrap();
    let alone = timed(|| node.publish(&node.publication("pvc-first", "first")).unwrap());
    println!("volume of a file system that is not open: {alone:.1?}");

    let before = resident(node.pid());
    let took = timed(|| publish_many(&node));
    println!("{MANY} volumes of one file system concurrently: {took:.2?}");
    std::thread::sleep(Duration::from_secs(2));
    let each = (resident(node.pid()).saturating_sub(before)) as f64 / MANY as f64 / 1024.0;
    println!(
        "memory of an idle volume: {each:.2} MiB (of {} MiB in total)",
        resident(node.pid()) >> 10
    );
    println!("memory of the driver with one volume: {} MiB", before >> 10);
}

fn publish_many(node: &Node) {
    let client = node.node();
    node.block_on(async {
        let calls = (0..MANY).map(|i| {
            let publication = node.publication(&format!("pvc-{i}"), &format!("pod-{i}"));
            let mut client = client.clone();
            async move { client.node_publish_volume(publication.request()).await }
        });
        for done in join_all(calls).await {
            done.unwrap();
        }
    });
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

/// Returns the resident memory of a process in KiB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
