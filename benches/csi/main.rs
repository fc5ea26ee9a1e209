//! What publishing costs: the first target of a volume, the next one, many volumes at once, and the
//! memory of a volume that nobody uses.
//!
//! usage: cargo bench --bench csi
//!
//! The driver is a process of its own with a Redis server on the same machine; calls go over its
//! socket, as kubelet's do. Figures are printed, and nothing is asserted of them.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what cannot be measured ends the program, as in tests"
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

/// For all of it.
const LIMIT: Duration = Duration::from_mins(10);
/// Volumes of one file system that are published together.
const MANY: usize = 100;
const ROUNDS: usize = 20;

fn main() {
    // `cargo test --benches` only wants to know whether it starts.
    if std::env::args().any(|word| word == "--test") {
        return;
    }
    within(LIMIT, measure);
}

fn measure() {
    let node = Node::start_so(&["--max-volumes", "200"]);
    let first = timed(|| node.publish(&node.publication("pvc-first", "first")).unwrap());
    println!("first volume of a file system, which is made for it: {first:.1?}");

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
    println!("a volume that is not mounted: {:.1?} (median of {ROUNDS})", median(cold));
    println!("a second target of it: {:.1?} (median of {ROUNDS})", median(second));

    node.unpublish("pvc-first", &node.target("first")).unwrap();
    let alone = timed(|| node.publish(&node.publication("pvc-first", "first")).unwrap());
    println!("a volume of a file system that is not open: {alone:.1?}");

    let before = resident(node.pid());
    let took = timed(|| publish_many(&node));
    println!("{MANY} volumes of one file system at once: {took:.2?}");
    std::thread::sleep(Duration::from_secs(2));
    let each = (resident(node.pid()).saturating_sub(before)) as f64 / MANY as f64 / 1024.0;
    println!(
        "memory of a volume that nobody uses: {each:.2} MiB (of {} MiB in all)",
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
    let begun = Instant::now();
    work();
    begun.elapsed()
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

/// KiB in memory.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
