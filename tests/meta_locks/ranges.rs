//! POSIX record locks on ranges of bytes.

use jfs::Error;
use jfs::meta::record::LockKind::{Read, Write};
use jfs::meta::record::PlockRange;

use super::{END, INO, ONE, TWO, flock, plock, plocks, ranges, unplock, would_block};
use crate::support::volume::{Volume, setting_with_acls_and_log};

async fn ranges_conflict_only_where_they_overlap(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    plock(&here, ONE, Write, 10, 19).await.unwrap();
    plock(&here, TWO, Write, 0, 9).await.unwrap();
    plock(&there, ONE, Write, 20, END).await.unwrap();
    assert!(would_block(&plock(&here, TWO, Read, 0, 10).await));
    assert!(would_block(&plock(&there, TWO, Read, 19, 19).await));
    assert!(would_block(&plock(&here, ONE, Write, 19, 20).await));
    assert_eq!(ranges(&here, ONE).await, [(Write, 10, 19)]);
}

async fn readers_share_a_range(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    plock(&here, ONE, Read, 0, 99).await.unwrap();
    plock(&there, ONE, Read, 50, 60).await.unwrap();
    assert!(would_block(&plock(&here, ONE, Write, 55, 55).await));
    plock(&here, ONE, Write, 61, 70).await.unwrap();
    assert_eq!(ranges(&here, ONE).await, [(Read, 0, 60), (Write, 61, 70), (Read, 71, 99)]);
}

async fn a_release_inside_a_range_splits_it(volume: Volume) {
    let meta = volume.client().await;
    plock(&meta, ONE, Write, 0, END).await.unwrap();
    unplock(&meta, ONE, 10, 19).await;
    assert_eq!(ranges(&meta, ONE).await, [(Write, 0, 9), (Write, 20, END)]);
    plock(&meta, TWO, Write, 10, 19).await.unwrap();
    assert!(would_block(&plock(&meta, TWO, Write, 9, 9).await));

    plock(&meta, ONE, Read, 0, 9).await.unwrap();
    unplock(&meta, TWO, 0, END).await;
    plock(&meta, ONE, Write, 5, 25).await.unwrap();
    assert_eq!(ranges(&meta, ONE).await, [(Read, 0, 4), (Write, 5, END)]);
}

async fn releasing_everything_removes_the_record(volume: Volume) {
    let meta = volume.client().await;
    unplock(&meta, ONE, 0, END).await;
    plock(&meta, ONE, Write, 3, 9).await.unwrap();
    plock(&meta, ONE, Read, 20, 29).await.unwrap();
    unplock(&meta, ONE, 0, 10).await;
    unplock(&meta, ONE, 12, 15).await;
    assert_eq!(ranges(&meta, ONE).await, [(Read, 20, 29)]);
    unplock(&meta, ONE, 0, END).await;
    assert!(plocks(&meta).await.is_empty());
    let sid = meta.context().sid();
    assert!(meta.engine().locks_of(sid).await.unwrap().is_empty());
}

async fn flocks_and_ranges_are_independent(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Write).await.unwrap();
    plock(&meta, TWO, Write, 0, END).await.unwrap();
}

async fn an_empty_range_is_invalid(volume: Volume) {
    let meta = volume.client().await;
    assert!(matches!(plock(&meta, ONE, Read, 5, 4).await, Err(Error::Invalid)));
    let beyond = meta.set_plock(INO, ONE, None, END + 1..=u64::MAX, 1, false).await;
    assert!(matches!(beyond, Err(Error::Invalid)));
    plock(&meta, ONE, Read, 5, u64::MAX).await.unwrap();
    assert_eq!(ranges(&meta, ONE).await, [(Read, 5, END)]);
}

async fn the_first_conflicting_range_is_found(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    assert_eq!(here.plock(INO, ONE, Write, 0..=END).await.unwrap(), None);
    plock(&here, ONE, Read, 50, 59).await.unwrap();
    plock(&here, TWO, Write, 10, 19).await.unwrap();

    let found = here.plock(INO, ONE, Write, 0..=END).await.unwrap();
    assert_eq!(found, Some(PlockRange { kind: Write, pid: 42, start: 10, end: 19 }));
    // The process ids of another client have no meaning here.
    let found = there.plock(INO, ONE, Read, 0..=END).await.unwrap();
    assert_eq!(found, Some(PlockRange { kind: Write, pid: 0, start: 10, end: 19 }));
    assert_eq!(there.plock(INO, ONE, Read, 20..=END).await.unwrap(), None);
    let found = there.plock(INO, ONE, Write, 20..=END).await.unwrap();
    assert_eq!(found, Some(PlockRange { kind: Read, pid: 0, start: 50, end: 59 }));
    assert_eq!(here.plock(INO, ONE, Write, 20..=END).await.unwrap(), None);
}

on_every_engine_and_a_slow_one! {
    ranges_conflict_only_where_they_overlap,
    readers_share_a_range,
    a_release_inside_a_range_splits_it,
    releasing_everything_removes_the_record,
    flocks_and_ranges_are_independent,
    an_empty_range_is_invalid,
    the_first_conflicting_range_is_found,
}
