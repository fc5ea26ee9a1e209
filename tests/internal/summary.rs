//! Summaries of trees through `.control`.

use jfs::meta::Ino;
use serde_json::json;

use crate::scene::Scene;

fn body(ino: Ino, depth: u8, top: u8, strict: bool) -> Vec<u8> {
    [&ino.0.to_be_bytes()[..], &[depth, top, u8::from(strict)]].concat()
}

#[tokio::test]
async fn the_largest_of_each_directory_are_told_and_the_rest_as_one() {
    for scene in [Scene::new().await, Scene::sqlite().await] {
        let top = scene.dir(Ino::ROOT, "top").await;
        let big = scene.dir(top, "big").await;
        let f = scene.file(big, "f", &vec![1; 20000]).await;
        let g = scene.file(big, "g", &[1; 5000]).await;
        scene.file(top, "a", b"x").await;
        scene.file(top, "b", b"x").await;
        for strict in [false, true] {
            let answer = scene.ask(1007, &body(top, 2, 1, strict)).await;
            let (file, rest) = (20480, 8192);
            let all = file + rest + 4096;
            let expected = json!({
                "Errno": 0,
                "Tree": {
                    "Inode": top.0, "Path": "", "Type": 2, "Size": all + 3 * 4096, "Files": 4, "Dirs": 2,
                    "Children": [
                        {
                            "Inode": big.0, "Path": "big", "Type": 2, "Size": all, "Files": 2, "Dirs": 1,
                            "Children": [
                                {"Inode": f.0, "Path": "big/f", "Type": 1, "Size": file, "Files": 1, "Dirs": 0},
                                {"Inode": 0, "Path": "big/...", "Type": 1, "Size": rest, "Files": 1, "Dirs": 0},
                            ],
                        },
                        {"Inode": 0, "Path": "...", "Type": 1, "Size": 8192, "Files": 2, "Dirs": 0},
                    ],
                },
            });
            assert_eq!(answer.data(), &expected);
            assert_eq!(answer.last_progress(), (6, all + 3 * 4096));
            let _ = g;
        }
    }
}

#[tokio::test]
async fn what_is_too_deep_is_only_added_up() {
    let scene = Scene::new().await;
    let top = scene.dir(Ino::ROOT, "top").await;
    let below = scene.dir(top, "below").await;
    let deeper = scene.dir(below, "deeper").await;
    scene.file(deeper, "f", b"x").await;
    for strict in [false, true] {
        let flat = scene.ask(1007, &body(top, 0, 10, strict)).await;
        let expected =
            json!({"Inode": top.0, "Path": "", "Type": 2, "Size": 16384, "Files": 1, "Dirs": 3});
        assert_eq!(flat.data()["Tree"], expected);
        let one = scene.ask(1007, &body(top, 1, 10, strict)).await;
        let child = json!([
            {"Inode": below.0, "Path": "below", "Type": 2, "Size": 12288, "Files": 1, "Dirs": 2},
        ]);
        assert_eq!(one.data()["Tree"]["Children"], child);
    }
}

#[tokio::test]
async fn a_tree_that_is_not_there_has_an_errno() {
    let scene = Scene::new().await;
    let answer = scene.ask(1007, &body(Ino(999), 3, 10, false)).await;
    assert_eq!((&answer.data()["Errno"], &answer.data()["Tree"]["Size"]), (&2.into(), &0.into()));
}

#[tokio::test]
async fn a_file_is_its_own_summary() {
    let scene = Scene::new().await;
    let ino = scene.file(Ino::ROOT, "f", &[1; 5000]).await;
    let answer = scene.ask(1007, &ino.0.to_be_bytes()).await;
    let expected =
        json!({"Inode": ino.0, "Path": "", "Type": 2, "Size": 8192, "Files": 1, "Dirs": 0});
    assert_eq!(answer.data()["Tree"], expected);
}
