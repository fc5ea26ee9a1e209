//! The cache through `.control`.

use std::time::Duration;

use bytes::Bytes;
use jfs::meta::{AttrSet, Caller, Ino};
use serde_json::{Value, json};

use crate::scene::{BLOCK, Choice, Scene};
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

async fn fill(scene: &Scene, paths: &[&str], action: u8) -> Value {
    scene.ask(1004, &body(paths, 0, action)).await.data().clone()
}

/// What a check answers.
fn checked(scene: &Scene, cached: usize, missing: usize) -> (Value, Value) {
    let place = scene.folder.path().join("cache").join(&scene.meta.context().setting().uuid);
    let locations =
        if cached == 0 { json!({}) } else { json!({ (place.to_str().unwrap()): cached }) };
    (missing.into(), locations)
}

async fn check(scene: &Scene, path: &str) -> (Value, Value) {
    let data = fill(scene, &[path], CHECK).await;
    (data["MissBytes"].clone(), data["Locations"].clone())
}

#[tokio::test]
async fn blocks_are_brought_looked_for_and_taken_away() {
    for scene in [Scene::new().await, Scene::sqlite().await] {
        let dir = scene.dir(Ino::ROOT, "d").await;
        scene.file(dir, "f", &vec![7; BLOCK + 100]).await;
        scene.file(dir, "g", &[8; 50]).await;
        scene.meta.symlink(&Caller::root(), dir, &name("l"), Bytes::from("f")).await.unwrap();
        let size = BLOCK + 150;
        fill(&scene, &["/d"], EVICT).await;
        assert_eq!(check(&scene, "/d").await, checked(&scene, 0, size));

        let answer = scene.ask(1004, &body(&["/d"], 0, WARM)).await;
        let expected = json!({
            "FileCount": 2, "SliceCount": 2, "TotalBytes": size, "MissBytes": 0, "Locations": {},
        });
        assert_eq!(answer.data(), &expected);
        assert_eq!(answer.last_progress(), (2, size as u64));
        assert_eq!(check(&scene, "/d").await, checked(&scene, size, 0));

        fill(&scene, &["/d/g"], EVICT).await;
        assert_eq!(check(&scene, "/d").await, checked(&scene, size - 50, 50));
    }
}

#[tokio::test]
async fn paths_are_found_from_the_root_through_links_or_by_number() {
    let scene = Scene::with(Choice { subdir: "/a", ..Choice::default() }).await;
    let dir = scene.dir(scene.root, "d").await;
    let ino = scene.file(dir, "f", &[8; 50]).await;
    let link = |at: &'static str, target: &'static str| {
        let meta = &scene.meta;
        async move {
            meta.symlink(&Caller::root(), scene.root, &name(at), Bytes::from(target))
                .await
                .unwrap();
        }
    };
    link("inside", "d/../d/./f").await;
    link("outside", "/etc/passwd").await;
    link("ring", "ring").await;
    for path in ["/d/f", "d/f", "//d//f/", "/inside", &format!("inode:{ino}"), ""] {
        assert_eq!(fill(&scene, &[path], CHECK).await["FileCount"], 1, "{path}");
    }
    let beside = scene.file(Ino::ROOT, "beside", &[8; 50]).await;
    for path in [&format!("inode:{beside}"), "/outside", "/ring", "/nothing", "/d/f/g"] {
        assert_eq!(fill(&scene, &[path], CHECK).await["FileCount"], 0, "{path}");
    }
    assert_eq!(fill(&scene, &["/d/f", "/nothing", "/d"], CHECK).await["FileCount"], 2);
}

#[tokio::test]
async fn directories_that_the_caller_may_not_read_are_left_out() {
    let scene = Scene::new().await;
    let open = scene.dir(Ino::ROOT, "open").await;
    let closed = scene.dir(open, "closed").await;
    scene.file(open, "f", &[8; 50]).await;
    scene.file(closed, "g", &[8; 50]).await;
    let mode = AttrSet { mode: Some(0o700), ..AttrSet::default() };
    scene.meta.setattr(&Caller::root(), closed, mode).await.unwrap();
    let someone = Caller::user(1000, 1000);
    for (path, count) in [("/open", 1), ("/open/closed", 0), ("/open/closed/g", 0)] {
        let answer = scene.ask_as(&someone, 1004, &body(&[path], 0, CHECK)).await;
        assert_eq!(answer.data()["FileCount"], count, "{path}");
    }
}

#[tokio::test]
async fn work_in_the_background_is_answered_at_once_and_outlives_its_handle() {
    let scene = Scene::new().await;
    scene.file(Ino::ROOT, "f", &[8; 50]).await;
    fill(&scene, &["/f"], EVICT).await;
    // The handle is dropped with the answer.
    let answer = scene.ask(1004, &body(&["/f"], 1, WARM)).await;
    assert_eq!(answer.data()["FileCount"], 0);
    let warm = async {
        while check(&scene, "/f").await.0 != 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), warm).await.unwrap();
}

#[tokio::test]
async fn without_a_cache_nothing_is_claimed_to_be_warm() {
    let scene = Scene::with(Choice { cache: false, ..Choice::default() }).await;
    scene.file(Ino::ROOT, "f", &[8; 50]).await;
    assert_eq!(scene.ask(1004, &body(&["/f"], 0, WARM)).await.errno(), 95);
    assert_eq!(check(&scene, "/f").await.0, 50);
}
