//! Giving up what was asked for.

use std::time::Duration;

use jfs::meta::{Caller, Ino};

use crate::scene::{Scene, reply, request};
use crate::support::data::name;

/// More than can be removed before the next line of a test.
const MANY: usize = 3000;

async fn many_dirs(scene: &Scene) -> Ino {
    let top = scene.dir(Ino::ROOT, "top").await;
    for number in 0..MANY {
        scene.dir(top, &number.to_string()).await;
    }
    top
}

fn removal() -> Vec<u8> {
    request(1002, b"\0\0\0\0\0\0\0\x01\x03top\0\x01")
}

async fn left(scene: &Scene, top: Ino) -> usize {
    scene.meta.entries(top, false).await.unwrap().len()
}

#[tokio::test]
async fn a_flush_gives_up_what_runs_and_it_ends_with_eintr() {
    let scene = Scene::new().await;
    let top = many_dirs(&scene).await;
    let handle = scene.open(".control");
    handle.write(0, &removal()).unwrap();
    handle.flush();
    let answer = reply(&handle, removal().len() as u64).await;
    assert_eq!(answer.errno(), 4);
    let count = left(&scene, top).await;
    assert!(count > 0);
    // The next request is not given up.
    let off = handle.read(0, 1 << 20).await.unwrap().len() as u64;
    handle.write(off, &removal()).unwrap();
    assert_eq!(reply(&handle, off + removal().len() as u64).await.errno(), 0);
    assert!(!scene.has(Ino::ROOT, "top").await);
}

#[tokio::test]
async fn a_handle_that_goes_takes_its_work_along() {
    let scene = Scene::new().await;
    let top = many_dirs(&scene).await;
    let handle = scene.open(".control");
    handle.write(0, &removal()).unwrap();
    drop(handle);
    let mut before = left(&scene, top).await;
    let rest = async {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = left(&scene, top).await;
            if now == before {
                return now;
            }
            before = now;
        }
    };
    let rest = tokio::time::timeout(Duration::from_mins(1), rest).await.unwrap();
    assert!(rest > 0);
}

#[tokio::test]
async fn a_clone_that_is_given_up_leaves_nothing() {
    let scene = Scene::new().await;
    let top = many_dirs(&scene).await;
    let used = scene.meta.statfs(Ino::ROOT).await.unwrap().used_inodes;
    let handle = scene.open(".control");
    let mut body = Vec::new();
    for ino in [top, Ino::ROOT, Ino::ROOT] {
        body.extend(ino.0.to_be_bytes());
    }
    body.extend(b"\x04copy\0\0\0\x01");
    let asked = request(1006, &body);
    handle.write(0, &asked).unwrap();
    handle.flush();
    assert_eq!(reply(&handle, asked.len() as u64).await.errno(), 4);
    assert!(scene.meta.lookup(&Caller::root(), Ino::ROOT, &name("copy")).await.is_err());
    assert_eq!(scene.meta.statfs(Ino::ROOT).await.unwrap().used_inodes, used);
}
