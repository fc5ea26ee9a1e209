//! The cache through `.control`.

use std::time::Duration;

use bytes::Bytes;
use jfs::meta::AttrSet;
use jfs::meta::{Caller, Ino};
use serde_json::{Value, json};

use crate::fixture::{BLOCK, Fixture, FixtureOptions};
use crate::support::data::name;

const WARM: u8 = 0;
const EVICT: u8 = 1;
const CHECK: u8 = 2;

fn body(paths: &[&str], background: u8, action: u8) -> Vec<u8> {
    let paths = paths.join("\n");
    let length = u32::try_from(paths.len()).unwrap();
    [&length.to_be_bytes()[..], paths.as_bytes(), &5u16.to_be_bytes(), &[background, action]]
        .concat()
}

async fn warmup(fixture: &Fixture, paths: &[&str], action: u8) -> Value {
    fixture.ask(1004, &body(paths, 0, action)).await.data().clone()
}

/// The expected result of a check.
fn checked(fixture: &Fixture, cached: usize, missing: usize) -> (Value, Value) {
    let place = fixture.folder.path().join("cache").join(&fixture.meta.context().setting().uuid);
    let locations =
        if cached == 0 { json!({}) } else { json!({ (place.to_str().unwrap()): cached }) };
    (missing.into(), locations)
}

async fn check(fixture: &Fixture, path: &str) -> (Value, Value) {
    let data = warmup(fixture, &[path], CHECK).await;
    (data["MissBytes"].clone(), data["Locations"].clone())
}

#[tokio::test]
async fn blocks_are_warmed_checked_and_evicted() {
    for fixture in [Fixture::new().await, Fixture::sqlite().await] {
        let dir = fixture.dir(Ino::ROOT, "d").await;
        fixture.file(dir, "f", &vec![7; BLOCK + 100]).await;
        fixture.file(dir, "g", &[8; 50]).await;
        fixture.meta.symlink(&Caller::root(), dir, &name("l"), Bytes::from("f")).await.unwrap();
        let size = BLOCK + 150;
        warmup(&fixture, &["/d"], EVICT).await;
        assert_eq!(check(&fixture, "/d").await, checked(&fixture, 0, size));

        let answer = fixture.ask(1004, &body(&["/d"], 0, WARM)).await;
        let expected = json!({
            "FileCount": 2, "SliceCount": 2, "TotalBytes": size, "MissBytes": 0, "Locations": {},
        });
        assert_eq!(answer.data(), &expected);
        assert_eq!(answer.last_progress(), (2, size as u64));
        assert_eq!(check(&fixture, "/d").await, checked(&fixture, size, 0));

        warmup(&fixture, &["/d/g"], EVICT).await;
        assert_eq!(check(&fixture, "/d").await, checked(&fixture, size - 50, 50));
    }
}

#[tokio::test]
async fn paths_are_resolved_from_the_root_through_symlinks_or_by_number() {
    let fixture = Fixture::with(FixtureOptions { subdir: "/a", ..FixtureOptions::default() }).await;
    let dir = fixture.dir(fixture.root, "d").await;
    let ino = fixture.file(dir, "f", &[8; 50]).await;
    let link = |at: &'static str, target: &'static str| {
        let meta = &fixture.meta;
        async move {
            meta.symlink(&Caller::root(), fixture.root, &name(at), Bytes::from(target))
                .await
                .unwrap();
        }
    };
    link("inside", "d/../d/./f").await;
    link("outside", "/etc/passwd").await;
    link("ring", "ring").await;
    for path in ["/d/f", "d/f", "//d//f/", "/inside", &format!("inode:{ino}"), ""] {
        assert_eq!(warmup(&fixture, &[path], CHECK).await["FileCount"], 1, "{path}");
    }
    let two_dirs = fixture.file(Ino::ROOT, "two_dirs", &[8; 50]).await;
    for path in [&format!("inode:{two_dirs}"), "/outside", "/ring", "/nothing", "/d/f/g"] {
        assert_eq!(warmup(&fixture, &[path], CHECK).await["FileCount"], 0, "{path}");
    }
    assert_eq!(warmup(&fixture, &["/d/f", "/nothing", "/d"], CHECK).await["FileCount"], 2);
}

#[tokio::test]
async fn directories_that_the_caller_may_not_read_are_skipped() {
    let fixture = Fixture::new().await;
    let open = fixture.dir(Ino::ROOT, "open").await;
    let closed = fixture.dir(open, "closed").await;
    fixture.file(open, "f", &[8; 50]).await;
    fixture.file(closed, "g", &[8; 50]).await;
    let mode = AttrSet { mode: Some(0o700), ..AttrSet::default() };
    fixture.meta.setattr(&Caller::root(), closed, mode).await.unwrap();
    let someone = Caller::user(1000, 1000);
    for (path, count) in [("/open", 1), ("/open/closed", 0), ("/open/closed/g", 0)] {
        let answer = fixture.ask_as(&someone, 1004, &body(&[path], 0, CHECK)).await;
        assert_eq!(answer.data()["FileCount"], count, "{path}");
    }
}

#[tokio::test]
async fn background_work_replies_at_once_and_outlives_its_handle() {
    let fixture = Fixture::new().await;
    fixture.file(Ino::ROOT, "f", &[8; 50]).await;
    warmup(&fixture, &["/f"], EVICT).await;
    // The handle is dropped with the reply.
    let answer = fixture.ask(1004, &body(&["/f"], 1, WARM)).await;
    assert_eq!(answer.data()["FileCount"], 0);
    let warm = async {
        while check(&fixture, "/f").await.0 != 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), warm).await.unwrap();
}

#[tokio::test]
async fn without_a_cache_warming_is_refused() {
    let fixture = Fixture::with(FixtureOptions { cache: false, ..FixtureOptions::default() }).await;
    fixture.file(Ino::ROOT, "f", &[8; 50]).await;
    assert_eq!(fixture.ask(1004, &body(&["/f"], 0, WARM)).await.errno(), 95);
    assert_eq!(check(&fixture, "/f").await.0, 50);
}
