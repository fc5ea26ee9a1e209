//! Cloning trees through `.control`.

use jfs::meta::{AttrSet, Caller, Ino};

use crate::scene::{Choice, Scene};
use crate::support::data::name;

fn body(src: Ino, dst: Ino, name: &str, umask: u16, mode: u8) -> Vec<u8> {
    let mut body = Vec::new();
    for ino in [src, Ino::ROOT, dst] {
        body.extend(ino.0.to_be_bytes());
    }
    body.push(u8::try_from(name.len()).unwrap());
    body.extend(name.as_bytes());
    body.extend(umask.to_be_bytes());
    body.extend([mode, 4]);
    body
}

#[tokio::test]
async fn a_tree_is_cloned_and_the_kernel_told() {
    for scene in [Scene::new().await, Scene::sqlite().await] {
        let src = scene.dir(Ino::ROOT, "src").await;
        let below = scene.dir(src, "below").await;
        scene.file(below, "f", &[7; 100]).await;
        let answer = scene.ask(1006, &body(src, Ino::ROOT, "copy", 0o22, 2)).await;
        assert_eq!((answer.errno(), answer.last_progress()), (0, (3, 3)));
        let (copy, _) = scene.meta.lookup(&Caller::root(), Ino::ROOT, &name("copy")).await.unwrap();
        let (below, _) = scene.meta.lookup(&Caller::root(), copy, &name("below")).await.unwrap();
        let (_, file) = scene.meta.lookup(&Caller::root(), below, &name("f")).await.unwrap();
        assert_eq!(file.length, 100);
        assert_eq!(scene.told.all(), ["entry 1/copy", "attr 1", "heard"]);
    }
}

#[tokio::test]
async fn a_clone_has_what_was_written_before_and_is_not_stored() {
    let scene = Scene::new().await;
    let made = scene.meta.create(&Caller::root(), Ino::ROOT, &name("f"), 0o644, 0, true).await;
    let (ino, attr) = made.unwrap();
    let _reader = scene.content.reader(ino, &attr);
    scene.content.write(ino, 0, b"not stored yet").await.unwrap();
    assert_eq!(scene.ask(1006, &body(ino, Ino::ROOT, "copy", 0, 0)).await.errno(), 0);
    let (_, copy) = scene.meta.lookup(&Caller::root(), Ino::ROOT, &name("copy")).await.unwrap();
    assert_eq!(copy.length, 14);
}

#[tokio::test]
async fn a_clone_needs_a_free_name_and_the_right_to_make_it() {
    let scene = Scene::new().await;
    let src = scene.file(Ino::ROOT, "f", b"x").await;
    assert_eq!(scene.ask(1006, &body(src, Ino::ROOT, "f", 0, 0)).await.errno(), 17);
    assert_eq!(scene.ask(1006, &body(src, Ino::ROOT, "", 0, 0)).await.errno(), 2);
    assert_eq!(scene.ask(1006, &body(Ino(999), Ino::ROOT, "g", 0, 0)).await.errno(), 2);
    let someone = Caller::user(1000, 1000);
    let closed = scene.dir(Ino::ROOT, "closed").await;
    assert_eq!(scene.ask_as(&someone, 1006, &body(src, closed, "g", 0, 0)).await.errno(), 13);
    let secret = AttrSet { mode: Some(0o600), ..AttrSet::default() };
    scene.meta.setattr(&Caller::root(), src, secret).await.unwrap();
    let open = AttrSet { mode: Some(0o777), ..AttrSet::default() };
    scene.meta.setattr(&Caller::root(), closed, open).await.unwrap();
    assert_eq!(scene.ask_as(&someone, 1006, &body(src, closed, "g", 0, 0)).await.errno(), 13);
}

#[tokio::test]
async fn owner_and_mode_are_the_callers_unless_they_are_to_be_kept() {
    let scene = Scene::new().await;
    let src = scene.file(Ino::ROOT, "f", b"x").await;
    let open = AttrSet { mode: Some(0o777), ..AttrSet::default() };
    scene.meta.setattr(&Caller::root(), Ino::ROOT, open).await.unwrap();
    scene.meta.setattr(&Caller::root(), src, open).await.unwrap();
    let someone = Caller::user(1000, 1001);
    assert_eq!(scene.ask_as(&someone, 1006, &body(src, Ino::ROOT, "g", 0o22, 0)).await.errno(), 0);
    let (_, copy) = scene.meta.lookup(&Caller::root(), Ino::ROOT, &name("g")).await.unwrap();
    assert_eq!((copy.uid, copy.gid, copy.mode), (1000, 1001, 0o755));
    assert_eq!(scene.ask_as(&someone, 1006, &body(src, Ino::ROOT, "h", 0o22, 2)).await.errno(), 0);
    let (_, copy) = scene.meta.lookup(&Caller::root(), Ino::ROOT, &name("h")).await.unwrap();
    assert_eq!((copy.uid, copy.gid, copy.mode), (1000, 1001, 0o777));
    // Only root gives things away.
    let (given, _) = scene.meta.lookup(&Caller::root(), Ino::ROOT, &name("g")).await.unwrap();
    assert_eq!(scene.ask(1006, &body(given, Ino::ROOT, "i", 0o22, 2)).await.errno(), 0);
    let (_, copy) = scene.meta.lookup(&Caller::root(), Ino::ROOT, &name("i")).await.unwrap();
    assert_eq!((copy.uid, copy.gid, copy.mode), (1000, 1001, 0o755));
}

#[tokio::test]
async fn nothing_is_cloned_out_of_the_trash() {
    let scene = Scene::with(Choice { trash_days: 1, ..Choice::default() }).await;
    let src = scene.file(Ino::ROOT, "f", b"x").await;
    scene.meta.unlink(&Caller::root(), Ino::ROOT, &name("f")).await.unwrap();
    assert_eq!(scene.ask(1006, &body(src, Ino::ROOT, "g", 0, 0)).await.errno(), 1);
    assert_eq!(scene.ask(1006, &body(Ino::TRASH, Ino::ROOT, "g", 0, 0)).await.errno(), 1);
}
