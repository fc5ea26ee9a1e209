//! Measurements, run by name: `cargo test --lib sqlite::tests::speed -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use super::*;

/// Like a create: two reads and a commit of four changes, each in a directory of its own.
async fn create(engine: &Sqlite, dir: Ino, ino: Ino) {
    let called = name(&format!("file{ino}"));
    let mut tx = engine.begin();
    let keys = [Key::Attr(dir), Key::Entry(dir, called.clone())];
    tx.read(&keys).await.unwrap();
    let mut parent = dir_attr(0o755);
    parent.mtime = Timestamp::now();
    let changes = [
        Change::PutAttr(dir, parent),
        Change::PutAttr(ino, file_attr()),
        Change::PutEntry(dir, called, file(ino.0)),
        Change::AddUsage { space: 4096, inodes: 1 },
    ];
    tx.commit(&changes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn creates_at_once() {
    for parameters in ["", "?_sync=NORMAL"] {
        for width in [1, 8, 64] {
            let volume = Arc::new(Volume::with(parameters).await);
            let (before, _) = volume.engine.link.commits().counts();
            let start = Instant::now();
            let tasks: Vec<_> = (0..width)
                .map(|task| {
                    let engine = Arc::clone(&volume.engine);
                    tokio::spawn(async move {
                        let mut count = 0;
                        while start.elapsed() < Duration::from_secs(3) {
                            let ino = 1_000_000 * (task + 1) + count;
                            create(&engine, Ino(10 + task), Ino(ino)).await;
                            count += 1;
                        }
                        count
                    })
                })
                .collect();
            let mut count = 0;
            for task in tasks {
                count += task.await.unwrap();
            }
            let took = start.elapsed();
            let (after, _) = volume.engine.link.commits().counts();
            println!(
                "{parameters:14} {width:3} in flight: {:8.0}/s, {:7.1} µs each, {:.1} per commit",
                count as f64 / took.as_secs_f64(),
                took.as_secs_f64() * 1e6 * width as f64 / count as f64,
                count as f64 / (after - before) as f64,
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn reads() {
    let volume = Arc::new(Volume::new().await);
    let puts: Vec<Change> = (1000..100_000)
        .flat_map(|ino| {
            let called = name(&format!("file{ino}"));
            [Change::PutAttr(Ino(ino), file_attr()), Change::PutEntry(Ino::ROOT, called, file(ino))]
        })
        .collect();
    for some in puts.chunks(20_000) {
        volume.apply(some).await.unwrap();
    }
    let timed = |what: &str, count: u64, start: Instant| {
        let each = start.elapsed().as_secs_f64() * 1e6 / count as f64;
        println!("{what}: {each:.1} µs");
    };
    let engine = Arc::clone(&volume.engine);
    // On a task of its own, as in a mount: the test's main task is not a worker.
    tokio::spawn(async move {
        let start = Instant::now();
        for i in 0..20_000 {
            engine.read(&[Key::Attr(Ino(1000 + i * 7 % 99_000))]).await.unwrap();
        }
        timed("attr", 20_000, start);
        let start = Instant::now();
        for i in 0..20_000 {
            let called = name(&format!("file{}", 1000 + i * 7 % 99_000));
            engine.read(&[Key::Lookup(Ino::ROOT, called)]).await.unwrap();
        }
        timed("lookup", 20_000, start);
        let start = Instant::now();
        for i in 0..20_000 {
            let called = name(&format!("file{}", 1000 + i * 7 % 99_000));
            engine.read(&[Key::Attr(Ino::ROOT), Key::Entry(Ino::ROOT, called)]).await.unwrap();
        }
        timed("attr and entry", 20_000, start);
        let keys: Vec<Key> = (0..4096).map(|i| Key::Attr(Ino(2000 + i))).collect();
        let start = Instant::now();
        for _ in 0..50 {
            engine.read(&keys).await.unwrap();
        }
        timed("4096 attrs", 50, start);
        let start = Instant::now();
        let mut cursor = crate::meta::engine::Cursor::Start;
        let mut pages = 0;
        while cursor != crate::meta::engine::Cursor::End {
            cursor = engine.list(Ino::ROOT, &cursor, 4096).await.unwrap().next;
            pages += 1;
        }
        timed("page of 4096 entries", pages, start);
    })
    .await
    .unwrap();
}

/// How long the Go client's creates take while this client writes as fast as it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn the_go_client_beside_a_busy_one() {
    let go = super::peer::Go::format(&[]);
    let mount = go.mount();
    let engine = Arc::new(open(&go.database(), "").await.unwrap());
    for width in [0, 1, 64] {
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let tasks: Vec<_> = (0..width)
            .map(|task| {
                let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
                tokio::spawn(async move {
                    let mut count = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let ino = 1_000_000 * (task + 1) + 10_000_000_000 * width + count;
                        create(&engine, Ino(10 + task), Ino(ino)).await;
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let at = mount.path();
        let mut times = tokio::task::spawn_blocking(move || {
            let mut times = Vec::new();
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(5) {
                let each = Instant::now();
                std::fs::create_dir(at.join(format!("{width}-{}", times.len()))).unwrap();
                times.push(each.elapsed());
            }
            times
        })
        .await
        .unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut ours = 0;
        for task in tasks {
            ours += task.await.unwrap();
        }
        times.sort();
        println!(
            "beside {width:2}: {} of theirs, median {:?}, 95 % {:?}, worst {:?}; {ours} of ours",
            times.len(),
            times[times.len() / 2],
            times[times.len() * 95 / 100],
            times[times.len() - 1],
        );
    }
}
