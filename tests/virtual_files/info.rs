//! Info requests through `.control`.

use std::sync::Arc;
use std::time::Duration;

use jfs::meta::record::{CHUNK_SIZE, LockKind};
use jfs::meta::{Caller, Ino, LockOwner};
use serde_json::{Value, json};

use crate::fixture::{BLOCK, Fixture, FixtureOptions, reply, request};
use crate::support::data::name;

fn body(ino: Ino, recursive: bool, raw: bool, strict: bool) -> Vec<u8> {
    let flags = [recursive, raw, strict].map(u8::from);
    [&ino.0.to_be_bytes()[..], &flags].concat()
}

async fn info(fixture: &Fixture, ino: Ino, raw: bool) -> Value {
    fixture.ask(1005, &body(ino, false, raw, false)).await.data().clone()
}

#[tokio::test]
async fn a_file_is_described_by_its_objects() {
    let fixture = Fixture::new().await;
    let ino = fixture.file(Ino::ROOT, "f", &vec![7; BLOCK + 100]).await;
    let found = info(&fixture, ino, false).await;
    assert_eq!(found["Summary"], json!({"Length": 65636, "Size": 69632, "Files": 1, "Dirs": 0}));
    assert_eq!(found["Paths"], json!(["/f"]));
    let objects = json!([
        {"ChunkIndex": 0, "Key": "vol/chunks/0/0/1_0_65536", "Size": 65536, "Off": 0, "Len": 65536},
        {"ChunkIndex": 0, "Key": "vol/chunks/0/0/1_1_100", "Size": 100, "Off": 0, "Len": 100},
    ]);
    assert_eq!((&found["Objects"], &found["Chunks"]), (&objects, &Value::Null));
    // A store in memory has no storage classes.
    assert_eq!(found["Tier"], json!({"ID": 0, "StorageClass": "actual()", "Tag": ""}));
}

#[tokio::test]
async fn a_file_with_more_objects_than_memory_is_refused() {
    let fixture =
        Fixture::with(FixtureOptions { memory: 256 << 10, ..FixtureOptions::default() }).await;
    let small = fixture.file(Ino::ROOT, "small", &vec![7; 100 * BLOCK]).await;
    let large = fixture.file(Ino::ROOT, "large", &vec![7; 2000 * BLOCK]).await;
    for _ in 0..3 {
        assert_eq!(info(&fixture, large, false).await["Failed"], true);
        let found = info(&fixture, small, false).await;
        assert_eq!(
            found["Objects"].as_array().map(Vec::len),
            Some(100),
            "the memory is there again"
        );
    }
}

#[tokio::test]
async fn a_file_is_described_by_its_slices_on_request() {
    let fixture = Fixture::sqlite().await;
    let ino = fixture.file(Ino::ROOT, "f", &[7; 1000]).await;
    fixture.write(ino, 100, &[8; 50]).await;
    fixture.write(ino, CHUNK_SIZE + 10, &[9; 5]).await;
    let found = info(&fixture, ino, true).await;
    let chunks = json!([
        {"ChunkIndex": 0, "Id": 1, "Size": 1000, "Off": 0, "Len": 100},
        {"ChunkIndex": 0, "Id": 2, "Size": 50, "Off": 0, "Len": 50},
        {"ChunkIndex": 0, "Id": 1, "Size": 1000, "Off": 150, "Len": 850},
        {"ChunkIndex": 1, "Id": 0, "Size": 10, "Off": 0, "Len": 10},
        {"ChunkIndex": 1, "Id": 3, "Size": 5, "Off": 0, "Len": 5},
    ]);
    assert_eq!((&found["Chunks"], &found["Objects"]), (&chunks, &Value::Null));
}

#[tokio::test]
async fn a_directory_is_summed_up_alone_or_recursively() {
    let fixture = Fixture::new().await;
    let top = fixture.dir(Ino::ROOT, "top").await;
    fixture.file(top, "f", &[1; 5000]).await;
    let below = fixture.dir(top, "below").await;
    fixture.file(below, "g", &[1; 10]).await;
    for strict in [false, true] {
        let own = fixture.ask(1005, &body(top, false, false, strict)).await;
        let sum = json!({"Length": 5000, "Size": 4096 + 8192 + 4096, "Files": 1, "Dirs": 2});
        assert_eq!(own.data()["Summary"], sum, "strict: {strict}");
        let all = fixture.ask(1005, &body(top, true, false, strict)).await;
        let sum = json!({"Length": 5010, "Size": 4096 + 8192 + 4096 + 4096, "Files": 2, "Dirs": 2});
        assert_eq!(all.data()["Summary"], sum, "strict: {strict}");
        assert_eq!(all.last_progress(), (2, 20480));
    }
}

#[tokio::test]
async fn every_name_of_a_file_is_listed() {
    let fixture = Fixture::new().await;
    let dir = fixture.dir(Ino::ROOT, "d").await;
    let ino = fixture.file(dir, "f", b"x").await;
    fixture.meta.link(&Caller::root(), ino, Ino::ROOT, &name("g")).await.unwrap();
    assert_eq!(info(&fixture, ino, false).await["Paths"], json!(["/d/f", "/g"]));
}

#[tokio::test]
async fn paths_begin_at_the_root_of_the_mount() {
    let fixture =
        Fixture::with(FixtureOptions { subdir: "/a/b", ..FixtureOptions::default() }).await;
    let ino = fixture.file(fixture.root, "f", b"x").await;
    assert_eq!(info(&fixture, ino, false).await["Paths"], json!(["/f"]));
    assert_eq!(info(&fixture, Ino::ROOT, false).await["Paths"], json!(["/"]));
    let elsewhere = fixture.dir(Ino::ROOT, "elsewhere").await;
    fixture.meta.link(&Caller::root(), ino, elsewhere, &name("g")).await.unwrap();
    let paths = info(&fixture, ino, false).await["Paths"].clone();
    assert_eq!(paths, json!(["/f", "outside of the mounted directory"]));
}

#[tokio::test]
async fn nodes_outside_the_mounted_directory_cannot_be_named() {
    let fixture =
        Fixture::with(FixtureOptions { subdir: "/a/b", ..FixtureOptions::default() }).await;
    let above = fixture.meta.resolve("/a").await.unwrap().0;
    let two_dirs = fixture.file(above, "f", b"x").await;
    for ino in [above, two_dirs, Ino::TRASH, Ino(999)] {
        assert_eq!(fixture.ask(1005, &body(ino, false, false, false)).await.errno(), 2, "{ino}");
    }
}

#[tokio::test]
async fn locks_are_listed() {
    let fixture = Fixture::new().await;
    let ino = fixture.file(Ino::ROOT, "f", b"x").await;
    let meta = Arc::clone(&fixture.meta);
    meta.flock(ino, LockOwner(5), Some(LockKind::Read), false).await.unwrap();
    meta.set_plock(ino, LockOwner(6), Some(LockKind::Write), 10..=19, 42, false).await.unwrap();
    let found = info(&fixture, ino, false).await;
    let sid = meta.context().sid().0;
    assert_eq!(found["FLocks"], json!([{"Sid": sid, "Owner": 5, "Type": "R"}]));
    let plock = json!([{"Sid": sid, "Owner": 6, "Type": 1, "Pid": 42, "Start": 10, "End": 19}]);
    assert_eq!(found["PLocks"], plock);
}

#[tokio::test]
async fn a_missing_node_is_reported_as_a_failure() {
    let fixture = Fixture::new().await;
    let found = info(&fixture, Ino(999), false).await;
    let reason = "no such file or directory";
    assert_eq!((&found["Failed"], &found["Reason"]), (&true.into(), &reason.into()));
    assert_eq!(found["Paths"], Value::Null);
}

#[tokio::test]
async fn tools_older_than_1_1_get_text() {
    let fixture = Fixture::sqlite().await;
    let ino = fixture.file(Ino::ROOT, "f", &[7; 1000]).await;
    assert_eq!(ino, Ino(2));
    let expected = |rest: &str| {
        format!(
            "  inode: 2\n  files: 1\n   dirs: 0\n length: 1000 Bytes\n   \
             size: 4.00 KiB (4096 Bytes)\n   path: /f\n{rest}"
        )
    };
    let objects = expected("objects:\n\t0:\tvol/chunks/0/0/1_0_1000\t1000\t0\t1000\n");
    assert_eq!(legacy(&fixture, &body(ino, false, false, false)[..8]).await, objects);
    let chunks = expected(" chunks:\n\t0:\t1\t1000\t0\t1000\n");
    assert_eq!(legacy(&fixture, &body(ino, false, true, false)[..10]).await, chunks);
    let missing = legacy(&fixture, &999u64.to_be_bytes()).await;
    assert_eq!(missing, "no such file or directory");
}

async fn legacy(fixture: &Fixture, body: &[u8]) -> String {
    let handle = fixture.open(".control");
    let asked = request(1003, body);
    handle.write(0, &asked).unwrap();
    let text = async {
        loop {
            let bytes = handle.read(asked.len() as u64, 1 << 20).await.unwrap();
            if !bytes.is_empty() {
                return bytes;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let bytes = tokio::time::timeout(Duration::from_mins(1), text).await.unwrap();
    let (length, text) = bytes.split_at(4);
    assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, text.len());
    String::from_utf8(text.to_vec()).unwrap()
}

#[tokio::test]
async fn data_is_complete_as_soon_as_it_starts() {
    let fixture = Fixture::new().await;
    let ino = fixture.file(Ino::ROOT, "f", &vec![7; 100 * BLOCK]).await;
    let handle = fixture.open(".control");
    let asked = request(1005, &body(ino, false, false, false));
    handle.write(0, &asked).unwrap();
    let off = asked.len() as u64 + 17;
    let begun = async {
        while handle.read(off, 1).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), begun).await.unwrap();
    let answer = reply(&handle, off).await;
    assert_eq!(answer.progress, []);
    assert_eq!(answer.data()["Objects"].as_array().unwrap().len(), 100);
}
