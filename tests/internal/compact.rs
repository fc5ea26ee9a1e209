//! Compacting through `.control`.

use jfs::meta::Ino;

use crate::scene::Scene;

fn body(ino: Ino, threads: u16) -> Vec<u8> {
    [&ino.0.to_be_bytes()[..], &threads.to_be_bytes()].concat()
}

async fn fragments(scene: &Scene, ino: Ino) -> usize {
    scene.meta.read(ino, 0).await.unwrap().len()
}

#[tokio::test]
async fn every_file_of_a_tree_is_compacted() {
    for scene in [Scene::new().await, Scene::sqlite().await] {
        let top = scene.dir(Ino::ROOT, "top").await;
        let below = scene.dir(top, "below").await;
        let files = [scene.file(top, "f", b"0").await, scene.file(below, "g", b"0").await];
        for ino in files {
            for at in 1..4 {
                scene.write(ino, at * 10, b"x").await;
            }
            assert!(fragments(&scene, ino).await > 1);
        }
        let answer = scene.ask(1008, &body(top, 3)).await;
        assert_eq!((answer.errno(), answer.last_progress()), (0, (2, 2)));
        for ino in files {
            assert_eq!(fragments(&scene, ino).await, 1);
        }
    }
}

#[tokio::test]
async fn one_file_is_compacted() {
    let scene = Scene::new().await;
    let ino = scene.file(Ino::ROOT, "f", b"0").await;
    scene.write(ino, 10, b"x").await;
    let answer = scene.ask(1008, &body(ino, 0)).await;
    assert_eq!((answer.errno(), answer.last_progress()), (0, (1, 1)));
    assert_eq!(fragments(&scene, ino).await, 1);
    assert_eq!(scene.ask(1008, &body(Ino(999), 1)).await.errno(), 2);
}
