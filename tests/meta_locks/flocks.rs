//! Flocks: shared and exclusive, per session and owner; and the change log of all locks.

use jfs::Error;
use jfs::meta::Options;
use jfs::meta::record::Flock;
use jfs::meta::record::LockKind::{Read, Write};

use super::{
    END, INO, ONE, TWO, flock, flocks, granted, let_tasks_block, plock, unflock, unplock,
    waiting_flock, waiting_plock, would_block,
};
use crate::support::records::log;
use crate::support::volume::{Volume, setting_with_acls_and_log};

async fn readers_share_a_flock(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&here, ONE, Read).await.unwrap();
    flock(&here, TWO, Read).await.unwrap();
    flock(&there, ONE, Read).await.unwrap();
    assert_eq!(flocks(&here).await.len(), 3);
    assert!(would_block(&flock(&here, ONE, Write).await));
    assert_eq!(flocks(&here).await.len(), 3);
}

async fn a_writer_excludes_every_other_owner(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&here, ONE, Write).await.unwrap();
    for kind in [Read, Write] {
        assert!(would_block(&flock(&here, TWO, kind).await));
        // The same owner number in another session is another owner.
        assert!(would_block(&flock(&there, ONE, kind).await));
    }
    unflock(&here, ONE).await;
    flock(&there, ONE, Write).await.unwrap();
}

async fn a_flock_changes_its_kind_in_place(volume: Volume) {
    let meta = volume.client().await;
    let sid = meta.context().sid();
    for kind in [Read, Write, Write, Read, Read] {
        flock(&meta, ONE, kind).await.unwrap();
        assert_eq!(flocks(&meta).await, [Flock { sid, owner: ONE, kind }]);
    }
}

async fn a_refused_upgrade_keeps_the_lock(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Read).await.unwrap();
    flock(&meta, TWO, Read).await.unwrap();
    assert!(would_block(&flock(&meta, ONE, Write).await));
    unflock(&meta, TWO).await;
    assert!(would_block(&flock(&meta, TWO, Write).await));
    flock(&meta, ONE, Write).await.unwrap();
}

async fn a_downgrade_lets_readers_in(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Write).await.unwrap();
    let reader = waiting_flock(&meta, TWO, Read);
    let_tasks_block().await;
    flock(&meta, ONE, Read).await.unwrap();
    granted(reader).await;
}

async fn the_last_release_removes_the_record(volume: Volume) {
    let meta = volume.client().await;
    flock(&meta, ONE, Read).await.unwrap();
    flock(&meta, TWO, Read).await.unwrap();
    unflock(&meta, ONE).await;
    unflock(&meta, TWO).await;
    unflock(&meta, TWO).await;
    assert!(flocks(&meta).await.is_empty());
    let sid = meta.context().sid();
    assert!(meta.engine().locks_of(sid).await.unwrap().is_empty());
}

async fn a_client_without_a_session_takes_no_locks(volume: Volume) {
    let meta = volume.visitor().await;
    assert!(matches!(flock(&meta, ONE, Read).await, Err(Error::NotSupported)));
    assert!(matches!(plock(&meta, ONE, Read, 0, 9).await, Err(Error::NotSupported)));
    unflock(&meta, ONE).await;
    unplock(&meta, ONE, 0, END).await;
}

async fn a_read_only_client_takes_no_locks(volume: Volume) {
    let meta = volume.client_with(Options { read_only: true, ..Options::default() }).await;
    assert!(matches!(flock(&meta, ONE, Read).await, Err(Error::ReadOnly)));
    assert!(matches!(meta.flock(INO, ONE, Some(Write), true).await, Err(Error::ReadOnly)));
    unflock(&meta, ONE).await;
}

async fn closing_a_session_releases_its_locks(volume: Volume) {
    let (here, there) = (volume.client().await, volume.client().await);
    flock(&here, ONE, Write).await.unwrap();
    plock(&here, ONE, Write, 0, 9).await.unwrap();
    let flock = waiting_flock(&there, ONE, Write);
    let plock = waiting_plock(&there, ONE, Write, 5, 5);
    let_tasks_block().await;
    here.close().await.unwrap();
    granted(flock).await;
    granted(plock).await;
}

async fn changes_are_logged(volume: Volume) {
    let meta = volume.client().await;
    let lines_before = log(&meta).await.len();
    flock(&meta, ONE, Read).await.unwrap();
    flock(&meta, ONE, Write).await.unwrap();
    assert!(would_block(&flock(&meta, TWO, Read).await));
    unflock(&meta, TWO).await;
    unflock(&meta, ONE).await;
    plock(&meta, TWO, Write, 0, 9).await.unwrap();
    unplock(&meta, TWO, 5, END).await;
    unplock(&meta, TWO, 5, END).await;
    assert_eq!(
        log(&meta).await[lines_before..],
        [
            "FLOCK(77,4369,R)",
            "FLOCK(77,4369,W)",
            "FLOCK(77,4369,U)",
            "SETLK(77,18446500128157073410,W,0,9,42)",
            "SETLK(77,18446500128157073410,U,5,9223372036854775807,42)",
        ]
    );
}

on_every_engine_and_a_slow_one! {
    readers_share_a_flock,
    a_writer_excludes_every_other_owner,
    a_flock_changes_its_kind_in_place,
    a_refused_upgrade_keeps_the_lock,
    a_downgrade_lets_readers_in,
    the_last_release_removes_the_record,
    a_client_without_a_session_takes_no_locks,
    a_read_only_client_takes_no_locks,
    closing_a_session_releases_its_locks,
    changes_are_logged,
}
