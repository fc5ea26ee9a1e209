use super::fixtures::Server;
use super::*;
use crate::meta::engine::{HeldKind, StoredSession};
use crate::meta::record::{LockKind, PlockRange};
use crate::meta::{LockOwner, Sid};

#[tokio::test]
async fn a_session_is_stored_until_it_is_removed() {
    let server = Server::start();
    let engine = server.engine().await;
    engine.put_session(Sid(1), 1_794_789_878, b"{}").await.unwrap();
    let scores: Vec<String> = server.run(&["ZRANGE", "allSessions", "0", "-1", "WITHSCORES"]);
    assert_eq!(scores, ["1", "1794789878"]);
    assert_eq!(server.run::<String>(&["HGET", "sessionInfos", "1"]), "{}");
    let stored = StoredSession { sid: Sid(1), expire: 1_794_789_878, info: b"{}".to_vec() };
    assert_eq!(engine.session(Sid(1)).await.unwrap(), Some(stored.clone()));
    assert_eq!(engine.sessions().await.unwrap(), [stored]);
    assert!(engine.extend_session(Sid(1), 1_794_789_900).await.unwrap());
    assert!(
        engine.extend_session(Sid(1), 1_794_789_900).await.unwrap(),
        "extending twice to the same time"
    );
    assert!(engine.stale_sessions(1_794_789_900, 10).await.unwrap().is_empty());
    assert_eq!(engine.stale_sessions(1_794_789_901, 10).await.unwrap(), [Sid(1)]);
    engine.remove_session(Sid(1)).await.unwrap();
    assert!(server.keys().is_empty());
    assert!(!engine.extend_session(Sid(1), 1_794_789_999).await.unwrap());
    assert!(server.keys().is_empty(), "extending does not recreate a removed session");
}

#[tokio::test]
async fn sessions_of_old_clients_are_stale_five_minutes_after_their_heartbeat() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run::<i64>(&["ZADD", "sessions", "1000", "7"]);
    let stored = StoredSession { sid: Sid(7), expire: 1300, info: Vec::new() };
    assert_eq!(engine.session(Sid(7)).await.unwrap(), Some(stored.clone()));
    assert_eq!(engine.sessions().await.unwrap(), [stored]);
    assert!(engine.stale_sessions(1300, 10).await.unwrap().is_empty());
    assert_eq!(engine.stale_sessions(1301, 10).await.unwrap(), [Sid(7)]);
    engine.remove_session(Sid(7)).await.unwrap();
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn stale_sessions_are_limited() {
    let server = Server::start();
    let engine = server.engine().await;
    for sid in 1..=5 {
        engine.put_session(Sid(sid), 10, b"{}").await.unwrap();
    }
    server.run::<i64>(&["ZADD", "sessions", "1", "9"]);
    assert_eq!(engine.stale_sessions(1000, 3).await.unwrap().len(), 3);
    assert_eq!(engine.stale_sessions(1000, 100).await.unwrap().len(), 6);
}

#[tokio::test]
async fn only_the_locks_of_a_session_are_listed_and_released() {
    let server = Server::start();
    let engine = server.engine().await;
    let range = PlockRange { kind: LockKind::Write, pid: 5, start: 0, end: 9 };
    let flock = |sid| Change::PutFlock {
        ino: Ino(3),
        sid: Sid(sid),
        owner: LockOwner(0xA),
        kind: LockKind::Read,
    };
    let plock = |sid, ino| Change::PutPlock {
        ino: Ino(ino),
        sid: Sid(sid),
        owner: LockOwner(0xB),
        ranges: vec![range],
    };
    put(&engine, &[flock(1), flock(12), plock(1, 4), plock(12, 5)]).await;
    let mut held = engine.locks_of(Sid(1)).await.unwrap();
    held.sort_by_key(|lock| lock.ino);
    assert_eq!(held.len(), 2);
    assert_eq!((held[0].ino, held[0].owner), (Ino(3), LockOwner(0xA)));
    assert_eq!(held[0].kind, HeldKind::Flock(LockKind::Read));
    assert_eq!(held[1].kind, HeldKind::Plock(vec![range]));
    engine.release_locks(Sid(1)).await.unwrap();
    assert!(engine.locks_of(Sid(1)).await.unwrap().is_empty());
    assert_eq!(server.keys(), ["locked12", "lockf3", "lockp5"]);
    assert_eq!(engine.locks_of(Sid(12)).await.unwrap().len(), 2);
    engine.release_locks(Sid(99)).await.unwrap();
}

#[tokio::test]
async fn sustained_inodes_are_listed() {
    let server = Server::start();
    let engine = server.engine().await;
    put(&engine, &[Change::AddSustained(Sid(1), Ino(10)), Change::AddSustained(Sid(1), Ino(11))])
        .await;
    let mut inodes = engine.sustained(Sid(1)).await.unwrap();
    inodes.sort_unstable();
    assert_eq!(inodes, [Ino(10), Ino(11)]);
    assert!(engine.sustained(Sid(2)).await.unwrap().is_empty());
}
