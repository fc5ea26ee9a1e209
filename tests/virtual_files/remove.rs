//! Removing trees through `.control`.

use jfs::meta::AttrSet;
use jfs::meta::{Caller, Ino};

use crate::fixture::{Fixture, FixtureOptions};
use crate::support::data::name;

fn body(dir: Ino, name: &str, flags: u8, threads: u8) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [&dir.0.to_be_bytes()[..], &[length], name.as_bytes(), &[flags, threads]].concat()
}

async fn tree(fixture: &Fixture) -> Ino {
    let top = fixture.dir(Ino::ROOT, "top").await;
    for number in 0..3 {
        let dir = fixture.dir(top, &format!("d{number}")).await;
        let below = fixture.dir(dir, "below").await;
        for file in 0..4 {
            fixture.file(below, &format!("f{file}"), b"x").await;
        }
    }
    top
}

#[tokio::test]
async fn a_tree_is_removed_and_the_kernel_notified() {
    for fixture in [Fixture::new().await, Fixture::sqlite().await] {
        tree(&fixture).await;
        let answer = fixture.ask(1002, &body(Ino::ROOT, "top", 0, 2)).await;
        assert_eq!(answer.errno(), 0);
        assert_eq!(answer.last_progress(), (1 + 3 + 3 + 12, 0));
        assert!(!fixture.has(Ino::ROOT, "top").await);
        assert_eq!(fixture.invalidations.all(), ["entry 1/top", "attr 1", "delivered"]);
    }
}

#[tokio::test]
async fn a_file_is_removed_and_a_missing_name_is_not_found() {
    let fixture = Fixture::new().await;
    fixture.file(Ino::ROOT, "f", b"x").await;
    // Tools without flags and threads send this.
    let old = &body(Ino::ROOT, "f", 0, 0)[..10];
    let answer = fixture.ask(1002, old).await;
    assert_eq!((answer.errno(), answer.last_progress()), (0, (1, 0)));
    assert_eq!(fixture.ask(1002, old).await.errno(), 2);
    assert_eq!(fixture.ask(1002, &body(Ino::ROOT, "", 0, 0)).await.errno(), 22);
}

#[tokio::test]
async fn permissions_of_the_opener_are_checked() {
    let fixture = Fixture::new().await;
    let top = tree(&fixture).await;
    let someone = Caller::user(1000, 1000);
    let denied = fixture.ask_as(&someone, 1002, &body(top, "d0", 0, 0)).await;
    assert_eq!(denied.errno(), 13);
    // The directory itself may be removed, but nothing in it.
    let open = AttrSet { mode: Some(0o777), ..AttrSet::default() };
    fixture.meta.setattr(&Caller::root(), top, open).await.unwrap();
    let denied = fixture.ask_as(&someone, 1002, &body(top, "d0", 0, 0)).await;
    assert_eq!(denied.errno(), 13);
    assert!(fixture.has(top, "d0").await);
}

#[tokio::test]
async fn removed_files_go_to_the_trash_unless_root_skips_it() {
    let fixture =
        Fixture::with(FixtureOptions { trash_days: 1, ..FixtureOptions::default() }).await;
    let open = AttrSet { mode: Some(0o777), ..AttrSet::default() };
    let top = fixture.dir(Ino::ROOT, "top").await;
    fixture.meta.setattr(&Caller::root(), top, open).await.unwrap();
    for at in ["a", "b", "c"] {
        fixture.file(top, at, b"x").await;
    }
    let someone = Caller::user(1000, 1000);
    assert_eq!(fixture.ask_as(&someone, 1002, &body(top, "a", 1, 0)).await.errno(), 1);
    assert_eq!(fixture.ask_as(&someone, 1002, &body(top, "a", 0, 0)).await.errno(), 0);
    assert_eq!(fixture.ask(1002, &body(top, "b", 1, 0)).await.errno(), 0);
    let hour = fixture.meta.hours().await.unwrap().remove(0);
    let kept = fixture.meta.entries(hour.2, false).await.unwrap();
    let kept: Vec<String> = kept.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].ends_with("-a"), "{kept:?}");
}

#[tokio::test]
async fn the_trash_is_emptied_by_root_alone_and_stays() {
    let fixture =
        Fixture::with(FixtureOptions { trash_days: 1, ..FixtureOptions::default() }).await;
    fixture.file(Ino::ROOT, "f", b"x").await;
    fixture.meta.unlink(&Caller::root(), Ino::ROOT, &name("f")).await.unwrap();
    let (hour, _, ino) = fixture.meta.hours().await.unwrap().remove(0);
    let hour = body(Ino::TRASH, &hour.to_string(), 0, 0);
    assert_eq!(fixture.ask_as(&Caller::user(1000, 1000), 1002, &hour).await.errno(), 1);
    assert_eq!(fixture.meta.entries(ino, false).await.unwrap().len(), 1);
    assert_eq!(fixture.ask(1002, &hour).await.errno(), 0);
    assert_eq!(fixture.meta.entries(ino, false).await.unwrap().len(), 0);
    assert_eq!(fixture.meta.hours().await.unwrap().len(), 1);
}
