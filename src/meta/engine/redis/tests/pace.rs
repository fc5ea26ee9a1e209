//! How fast a create is: two records read in one round trip, then one commit.
//!
//! `cargo test --release --lib engine::redis::tests::pace -- --ignored --nocapture`

use std::sync::Arc;
use std::time::Instant;

use super::server::Server;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, asserts nothing"]
async fn creates_per_second() {
    let server = Server::start();
    let engine = Arc::new(server.engine().await);
    put(&engine, &[Change::PutAttr(Ino(1), file())]).await;
    for width in [1, 8, 64] {
        let total = 20_000;
        let started = Instant::now();
        let tasks = (0..width).map(|task| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for i in 0..total / width {
                    create(&engine, 1_000_000 * width + 10_000 * task + i).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{width:2} in flight: {:6.0} creates/s, {:4.0} us each",
            f64::from(u32::try_from(total).unwrap()) / seconds,
            seconds * 1e6 * f64::from(u32::try_from(width).unwrap())
                / f64::from(u32::try_from(total).unwrap()),
        );
    }
}

async fn create(engine: &RedisEngine, ino: u64) {
    let name = name(&format!("file-{ino}"));
    let mut txn = engine.begin();
    txn.read(&[Key::Attr(Ino(1)), Key::Entry(Ino(1), name.clone())]).await.unwrap();
    let changes = [
        Change::PutAttr(Ino(ino), file()),
        Change::PutEntry(Ino(1), name, entry(ino)),
        Change::AddUsage { space: 4096, inodes: 1 },
    ];
    txn.commit(&changes).await.unwrap();
}
