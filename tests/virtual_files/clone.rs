//! Cloning trees through `.control`.

use jfs::meta::AttrSet;
use jfs::meta::{Caller, Ino};

use crate::fixture::{Fixture, FixtureOptions};
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
async fn a_tree_is_cloned_and_the_kernel_notified() {
    for fixture in [Fixture::new().await, Fixture::sqlite().await] {
        let src = fixture.dir(Ino::ROOT, "src").await;
        let below = fixture.dir(src, "below").await;
        fixture.file(below, "f", &[7; 100]).await;
        let answer = fixture.ask(1006, &body(src, Ino::ROOT, "copy", 0o22, 2)).await;
        assert_eq!((answer.errno(), answer.last_progress()), (0, (3, 3)));
        let (copy, _) =
            fixture.meta.lookup(&Caller::root(), Ino::ROOT, &name("copy")).await.unwrap();
        let (below, _) = fixture.meta.lookup(&Caller::root(), copy, &name("below")).await.unwrap();
        let (_, file) = fixture.meta.lookup(&Caller::root(), below, &name("f")).await.unwrap();
        assert_eq!(file.length, 100);
        assert_eq!(fixture.invalidations.all(), ["entry 1/copy", "attr 1", "delivered"]);
    }
}

#[tokio::test]
async fn a_clone_includes_dirty_data() {
    let fixture = Fixture::new().await;
    let made = fixture.meta.create(&Caller::root(), Ino::ROOT, &name("f"), 0o644, 0, true).await;
    let (ino, attr) = made.unwrap();
    let _reader = fixture.content.reader(ino, &attr);
    fixture.content.write(ino, 0, b"not stored yet").await.unwrap();
    assert_eq!(fixture.ask(1006, &body(ino, Ino::ROOT, "copy", 0, 0)).await.errno(), 0);
    let (_, copy) = fixture.meta.lookup(&Caller::root(), Ino::ROOT, &name("copy")).await.unwrap();
    assert_eq!(copy.length, 14);
}

#[tokio::test]
async fn a_clone_needs_a_free_name_and_permission() {
    let fixture = Fixture::new().await;
    let src = fixture.file(Ino::ROOT, "f", b"x").await;
    assert_eq!(fixture.ask(1006, &body(src, Ino::ROOT, "f", 0, 0)).await.errno(), 17);
    assert_eq!(fixture.ask(1006, &body(src, Ino::ROOT, "", 0, 0)).await.errno(), 2);
    assert_eq!(fixture.ask(1006, &body(Ino(999), Ino::ROOT, "g", 0, 0)).await.errno(), 2);
    let someone = Caller::user(1000, 1000);
    let closed = fixture.dir(Ino::ROOT, "closed").await;
    assert_eq!(fixture.ask_as(&someone, 1006, &body(src, closed, "g", 0, 0)).await.errno(), 13);
    let secret = AttrSet { mode: Some(0o600), ..AttrSet::default() };
    fixture.meta.setattr(&Caller::root(), src, secret).await.unwrap();
    let open = AttrSet { mode: Some(0o777), ..AttrSet::default() };
    fixture.meta.setattr(&Caller::root(), closed, open).await.unwrap();
    assert_eq!(fixture.ask_as(&someone, 1006, &body(src, closed, "g", 0, 0)).await.errno(), 13);
}

#[tokio::test]
async fn owner_and_mode_are_the_callers_unless_preserved() {
    let fixture = Fixture::new().await;
    let src = fixture.file(Ino::ROOT, "f", b"x").await;
    let open = AttrSet { mode: Some(0o777), ..AttrSet::default() };
    fixture.meta.setattr(&Caller::root(), Ino::ROOT, open).await.unwrap();
    fixture.meta.setattr(&Caller::root(), src, open).await.unwrap();
    let someone = Caller::user(1000, 1001);
    assert_eq!(
        fixture.ask_as(&someone, 1006, &body(src, Ino::ROOT, "g", 0o22, 0)).await.errno(),
        0
    );
    let (_, copy) = fixture.meta.lookup(&Caller::root(), Ino::ROOT, &name("g")).await.unwrap();
    assert_eq!((copy.uid, copy.gid, copy.mode), (1000, 1001, 0o755));
    assert_eq!(
        fixture.ask_as(&someone, 1006, &body(src, Ino::ROOT, "h", 0o22, 2)).await.errno(),
        0
    );
    let (_, copy) = fixture.meta.lookup(&Caller::root(), Ino::ROOT, &name("h")).await.unwrap();
    assert_eq!((copy.uid, copy.gid, copy.mode), (1000, 1001, 0o777));
    // Only root may change the owner.
    let (given, _) = fixture.meta.lookup(&Caller::root(), Ino::ROOT, &name("g")).await.unwrap();
    assert_eq!(fixture.ask(1006, &body(given, Ino::ROOT, "i", 0o22, 2)).await.errno(), 0);
    let (_, copy) = fixture.meta.lookup(&Caller::root(), Ino::ROOT, &name("i")).await.unwrap();
    assert_eq!((copy.uid, copy.gid, copy.mode), (1000, 1001, 0o755));
}

#[tokio::test]
async fn nothing_is_cloned_out_of_the_trash() {
    let fixture =
        Fixture::with(FixtureOptions { trash_days: 1, ..FixtureOptions::default() }).await;
    let src = fixture.file(Ino::ROOT, "f", b"x").await;
    fixture.meta.unlink(&Caller::root(), Ino::ROOT, &name("f")).await.unwrap();
    assert_eq!(fixture.ask(1006, &body(src, Ino::ROOT, "g", 0, 0)).await.errno(), 1);
    assert_eq!(fixture.ask(1006, &body(Ino::TRASH, Ino::ROOT, "g", 0, 0)).await.errno(), 1);
}
