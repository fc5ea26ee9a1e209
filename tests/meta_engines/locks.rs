//! Locks by inode, session and owner, and all locks of a session.

use jfs::meta::engine::{Change, Engine, HeldKind, HeldLock};
use jfs::meta::record::{Flock, LockKind, Plock, PlockRange};
use jfs::meta::{Ino, LockOwner, Sid};

use crate::fixtures::*;

/// An owner can be any 64 bits.
const OWNER: LockOwner = LockOwner(0xE859_175B_D6BB_0235);

fn flock(ino: Ino, sid: u64, owner: LockOwner, kind: LockKind) -> Change {
    Change::PutFlock { ino, sid: Sid(sid), owner, kind }
}

fn plock(ino: Ino, sid: u64, owner: LockOwner, ranges: &[PlockRange]) -> Change {
    Change::PutPlock { ino, sid: Sid(sid), owner, ranges: ranges.to_vec() }
}

fn range(kind: LockKind, start: u64, end: u64) -> PlockRange {
    PlockRange { kind, pid: 4321, start, end }
}

async fn flocks_by_owner(engine: &dyn Engine) -> Vec<Flock> {
    let mut locks = flocks(engine, FILE).await;
    locks.sort_by_key(|lock| (lock.sid, lock.owner));
    locks
}

async fn plocks_by_owner(engine: &dyn Engine) -> Vec<Plock> {
    let mut locks = plocks(engine, FILE).await;
    locks.sort_by_key(|lock| (lock.sid, lock.owner));
    locks
}

on_every_engine! {
    async fn flocks_are_kept_by_session_and_owner(store) {
        let engine = store.engine.as_ref();
        let locked = [
            flock(FILE, 1, OWNER, LockKind::Write),
            flock(FILE, 1, LockOwner(2), LockKind::Read),
            flock(FILE, 2, OWNER, LockKind::Read),
            flock(OTHER, 1, OWNER, LockKind::Read),
        ];
        commit(engine, &locked).await;
        let held = |sid, owner, kind| Flock { sid: Sid(sid), owner, kind };
        assert_eq!(
            flocks_by_owner(engine).await,
            [
                held(1, LockOwner(2), LockKind::Read),
                held(1, OWNER, LockKind::Write),
                held(2, OWNER, LockKind::Read),
            ]
        );
    }

    async fn a_flock_changes_its_kind_and_is_removed(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[flock(FILE, 1, OWNER, LockKind::Write)]).await;
        commit(engine, &[flock(FILE, 1, OWNER, LockKind::Read)]).await;
        let read = Flock { sid: Sid(1), owner: OWNER, kind: LockKind::Read };
        assert_eq!(flocks(engine, FILE).await, [read]);
        let unlocked = Change::RemoveFlock { ino: FILE, sid: Sid(1), owner: OWNER };
        commit(engine, std::slice::from_ref(&unlocked)).await;
        commit(engine, &[unlocked]).await;
        assert_eq!(flocks(engine, FILE).await, []);
    }

    async fn plocks_are_read_with_all_their_ranges(store) {
        let engine = store.engine.as_ref();
        let ranges =
            [range(LockKind::Read, 0, 9), range(LockKind::Write, 20, PlockRange::OPEN_END)];
        let locked = [
            plock(FILE, 1, OWNER, &ranges),
            plock(FILE, 2, OWNER, &ranges[..1]),
            plock(OTHER, 1, OWNER, &ranges),
        ];
        commit(engine, &locked).await;
        let held = |sid, ranges: &[PlockRange]| Plock {
            sid: Sid(sid),
            owner: OWNER,
            ranges: ranges.to_vec(),
        };
        assert_eq!(plocks_by_owner(engine).await, [held(1, &ranges), held(2, &ranges[..1])]);
    }

    async fn plocks_are_replaced_and_removed_per_owner(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[plock(FILE, 1, OWNER, &[range(LockKind::Write, 0, 9)])]).await;
        commit(engine, &[plock(FILE, 1, LockOwner(2), &[range(LockKind::Read, 50, 59)])]).await;
        commit(engine, &[plock(FILE, 1, OWNER, &[range(LockKind::Read, 0, 4)])]).await;
        let left = |owner, ranges| Plock { sid: Sid(1), owner, ranges };
        let second = left(LockOwner(2), vec![range(LockKind::Read, 50, 59)]);
        let first = left(OWNER, vec![range(LockKind::Read, 0, 4)]);
        assert_eq!(plocks_by_owner(engine).await, [second.clone(), first]);
        let unlocked = Change::RemovePlock { ino: FILE, sid: Sid(1), owner: OWNER };
        commit(engine, std::slice::from_ref(&unlocked)).await;
        commit(engine, &[unlocked]).await;
        assert_eq!(plocks(engine, FILE).await, [second]);
    }

    async fn the_locks_of_a_session_are_listed(store) {
        let engine = store.engine.as_ref();
        let ranges = [range(LockKind::Write, 5, 14)];
        let locked = [
            flock(FILE, 1, OWNER, LockKind::Write),
            plock(OTHER, 1, OWNER, &ranges),
            flock(FILE, 2, LockOwner(9), LockKind::Write),
        ];
        commit(engine, &locked).await;
        let mut held = engine.locks_of(Sid(1)).await.expect("lists");
        held.sort_by_key(|lock| lock.ino);
        let mine = [
            HeldLock { ino: FILE, owner: OWNER, kind: HeldKind::Flock(LockKind::Write) },
            HeldLock { ino: OTHER, owner: OWNER, kind: HeldKind::Plock(ranges.to_vec()) },
        ];
        assert_eq!(held, mine);
        assert_eq!(engine.locks_of(Sid(3)).await.expect("lists"), []);
    }

    async fn a_session_releases_only_its_own_locks(store) {
        let engine = store.engine.as_ref();
        let ranges = [range(LockKind::Read, 5, 14)];
        let locked = [
            flock(FILE, 1, OWNER, LockKind::Write),
            flock(FILE, 1, LockOwner(2), LockKind::Write),
            flock(FILE, 11, OWNER, LockKind::Write),
            plock(FILE, 1, OWNER, &ranges),
            plock(FILE, 11, OWNER, &ranges),
            plock(OTHER, 1, OWNER, &ranges),
        ];
        commit(engine, &locked).await;
        engine.release_locks(Sid(1)).await.expect("releases");
        let eleven = Flock { sid: Sid(11), owner: OWNER, kind: LockKind::Write };
        assert_eq!(flocks(engine, FILE).await, [eleven]);
        assert_eq!(
            plocks(engine, FILE).await,
            [Plock { sid: Sid(11), owner: OWNER, ranges: ranges.to_vec() }]
        );
        assert_eq!(plocks(engine, OTHER).await, []);
        assert_eq!(engine.locks_of(Sid(1)).await.expect("lists"), []);
        assert_eq!(engine.locks_of(Sid(11)).await.expect("lists").len(), 2);
        engine.release_locks(Sid(1)).await.expect("releases nothing");
    }
}
