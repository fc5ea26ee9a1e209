//! How fast a create is: two records read in one round trip, then one commit. Beside it the same
//! with WATCH, MULTI and EXEC on a connection for each task.
//!
//! `cargo test --release --lib engine::redis::tests::pace -- --ignored --nocapture`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use redis::aio::MultiplexedConnection;

use super::server::Server;
use super::*;

const TOTAL: u32 = 20_000;
const WIDTHS: [u32; 3] = [1, 8, 64];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, asserts nothing"]
async fn creates_per_second() {
    let server = Server::start();
    let engine = Arc::new(server.engine().await);
    put(&engine, &[Change::PutAttr(Ino(1), file())]).await;
    let next = Arc::new(AtomicU32::new(10));
    for width in WIDTHS {
        let started = Instant::now();
        let tasks = (0..width).map(|_| {
            let (engine, next) = (engine.clone(), next.clone());
            tokio::spawn(async move {
                for _ in 0..TOTAL / width {
                    create(&engine, next.fetch_add(1, Ordering::Relaxed).into()).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        report("script", width, started);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, asserts nothing"]
async fn creates_per_second_with_watch() {
    let server = Server::start();
    server.run_raw::<()>(&[b"SET", b"i1", &file().encode()]);
    let client = redis::Client::open(server.url()).unwrap();
    let next = Arc::new(AtomicU32::new(10));
    for width in WIDTHS {
        let started = Instant::now();
        let tasks = (0..width).map(|_| {
            let (client, next) = (client.clone(), next.clone());
            tokio::spawn(async move {
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                for _ in 0..TOTAL / width {
                    watched_create(&mut connection, next.fetch_add(1, Ordering::Relaxed)).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        report("watch", width, started);
    }
}

fn report(how: &str, width: u32, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    let (rate, each) =
        (f64::from(TOTAL) / seconds, seconds * 1e6 * f64::from(width) / f64::from(TOTAL));
    println!("{how:6} {width:2} in flight: {rate:6.0} creates/s, {each:5.0} us each");
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

async fn watched_create(connection: &mut MultiplexedConnection, ino: u32) {
    let name = format!("file-{ino}");
    loop {
        let mut read = redis::pipe();
        read.cmd("WATCH").arg("i1").arg("d1").cmd("GET").arg("i1").cmd("HGET").arg("d1").arg(&name);
        let _: redis::Value = read.query_async(connection).await.unwrap();
        let mut write = redis::pipe();
        write.atomic();
        write.cmd("SET").arg(format!("i{ino}")).arg(&file().encode()[..]);
        write.cmd("HSET").arg("d1").arg(&name).arg(&entry(ino.into()).encode()[..]);
        write.cmd("INCRBY").arg("usedSpace").arg(4096).cmd("INCRBY").arg("totalInodes").arg(1);
        let done: redis::Value = write.query_async(connection).await.unwrap();
        if done != redis::Value::Nil {
            return;
        }
    }
}
