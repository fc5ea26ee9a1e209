//! Faults of the connection and of the server.

use std::time::Duration;

use bytes::Bytes;

use super::super::super::connect;
use super::super::super::tests::fixtures::{LossyProxy, Server, free_port};
use super::*;
use crate::error::Error;
use crate::meta::record::{Counter, DirStat};
use crate::outage::testing::Log;

fn target(text: &'static str) -> [Change; 1] {
    [Change::PutSymlink(Ino(5), Bytes::from_static(text.as_bytes()))]
}

#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_unknown_and_not_repeated() {
    let server = Server::start();
    let proxy = LossyProxy::start(server.port).await;
    let engine = connect(&proxy.url(), &|_| None).await.unwrap();
    let usage = [Change::AddUsage { space: 4096, inodes: 1 }];
    engine.begin().commit(&usage).await.unwrap();
    proxy.cut_next_reply();
    let result = engine.begin().commit(&usage).await;
    assert!(matches!(result, Err(CommitError::Unknown(Error::Unreachable { .. }))), "{result:?}");
    assert_eq!(engine.counter(Counter::UsedSpace).await.unwrap(), 8192, "executed once");
}

#[tokio::test]
async fn a_read_whose_reply_is_lost_is_repeated() {
    let server = Server::start();
    let proxy = LossyProxy::start(server.port).await;
    let engine = connect(&proxy.url(), &|_| None).await.unwrap();
    put(&engine, &target("here")).await;
    proxy.cut_next_reply();
    let record = read_one(&engine, Key::Symlink(Ino(5))).await;
    assert_eq!(record, Record::Symlink(Some(Bytes::from_static(b"here"))));
}

#[tokio::test]
async fn an_update_of_usage_whose_reply_is_lost_is_unknown() {
    let server = Server::start();
    let proxy = LossyProxy::start(server.port).await;
    let engine = connect(&proxy.url(), &|_| None).await.unwrap();
    proxy.cut_next_reply();
    let stat = DirStat { length: 1, space: 4096, inodes: 1 };
    let error = engine.add_dir_stats(&[(Ino(1), stat)]).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
}

#[tokio::test]
async fn the_connection_to_a_server_that_stops_replying_is_replaced() {
    let server = Server::start();
    let proxy = LossyProxy::start(server.port).await;
    let url = format!("{}?read-timeout=300ms", proxy.url());
    let engine = connect(&url, &|_| None).await.unwrap();
    proxy.drop_replies();
    let result = engine.begin().commit(&target("slow")).await;
    assert!(matches!(result, Err(CommitError::Unknown(_))), "{result:?}");
    proxy.forward();
    let record = read_one(&engine, Key::Symlink(Ino(5))).await;
    assert_eq!(record, Record::Symlink(Some(Bytes::from_static(b"slow"))));
}

#[tokio::test]
async fn reads_and_commits_survive_a_restart_of_the_server() {
    let mut server = Server::start_durable();
    let engine = std::sync::Arc::new(server.engine().await);
    put(&engine, &target("before")).await;
    server.stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let reader = tokio::spawn({
        let engine = engine.clone();
        async move { engine.read(&[Key::Symlink(Ino(5))]).await }
    });
    // The commit has not been sent yet, so it waits for the server as well.
    let writer = tokio::spawn({
        let engine = engine.clone();
        async move { engine.begin().commit(&[Change::PutAttr(Ino(6), file())]).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.start_again();
    let record = reader.await.unwrap().unwrap().pop().unwrap();
    assert_eq!(record, Record::Symlink(Some(Bytes::from_static(b"before"))));
    writer.await.unwrap().unwrap();
    assert_eq!(read_one(&engine, Key::Attr(Ino(6))).await, Record::Attr(Some(file())));
}

#[tokio::test]
async fn an_idle_connection_that_the_server_closed_is_replaced() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    engine.begin().commit(&target("again")).await.unwrap();
}

#[tokio::test]
async fn scripts_that_the_server_lost_are_reloaded() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run::<()>(&["SCRIPT", "FLUSH"]);
    put(&engine, &target("there")).await;
    server.run::<()>(&["SCRIPT", "FLUSH"]);
    let keys = [Key::Symlink(Ino(5)), Key::Lookup(Ino(1), name("none"))];
    let records = engine.read(&keys).await.unwrap();
    assert_eq!(records[1], Record::Lookup(None));
}

#[tokio::test]
async fn a_commit_waits_while_the_server_is_read_only() {
    let server = Server::start();
    let engine = std::sync::Arc::new(server.engine().await);
    let master = Server::start();
    server.run::<()>(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]);
    let writer = tokio::spawn({
        let engine = engine.clone();
        async move { engine.begin().commit(&target("late")).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!writer.is_finished());
    server.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    writer.await.unwrap().unwrap();
    assert_eq!(server.run::<String>(&["GET", "s5"]), "late");
}

#[tokio::test]
async fn writes_to_a_server_without_memory_fail_with_no_space() {
    let server = Server::start();
    let engine = server.engine().await;
    put(&engine, &[Change::PutEntry(Ino(1), name("a"), entry(5))]).await;
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let result = engine.begin().commit(&target("more")).await;
    assert!(matches!(result, Err(CommitError::Failed(Error::NoSpace))), "{result:?}");
    let error = engine.add_counter(Counter::NextInode, 1024).await.unwrap_err();
    assert!(matches!(error, Error::NoSpace), "{error}");
    // Commits that free memory succeed.
    engine.begin().commit(&[Change::RemoveEntry(Ino(1), name("a"))]).await.unwrap();
}

#[tokio::test]
async fn the_error_for_a_key_of_the_wrong_type_names_it() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run::<i64>(&["RPUSH", "d1", "x"]);
    let error = engine.read(&[Key::Entry(Ino(1), name("a"))]).await.unwrap_err();
    assert!(matches!(&error, Error::Damaged { record, .. } if record == "d1"), "{error}");
    let error = engine.read(&[Key::Lookup(Ino(1), name("a"))]).await.unwrap_err();
    assert!(matches!(&error, Error::Damaged { record, .. } if record == "d1"), "{error}");
}

#[tokio::test]
async fn a_key_of_the_wrong_type_fails_a_commit_before_anything_is_applied() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run::<i64>(&["RPUSH", "dirUsedSpace", "x"]);
    let changes = [
        Change::AddUsage { space: 4096, inodes: 1 },
        Change::PutAttr(Ino(5), file()),
        Change::PutDirStat(Ino(5), DirStat::default()),
    ];
    let result = engine.begin().commit(&changes).await;
    assert!(
        matches!(&result, Err(CommitError::Failed(Error::Damaged { record, .. })) if record == "dirUsedSpace"),
        "{result:?}"
    );
    assert_eq!(server.keys(), ["dirUsedSpace"]);
}

#[tokio::test]
async fn a_broken_counter_fails_the_commit_before_anything_is_applied() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run::<()>(&["SET", "usedSpace", "much"]);
    let changes = [Change::PutAttr(Ino(5), file()), Change::AddUsage { space: 4096, inodes: 1 }];
    let result = engine.begin().commit(&changes).await;
    assert!(matches!(result, Err(CommitError::Failed(Error::Engine { .. }))), "{result:?}");
    assert_eq!(server.keys(), ["usedSpace"]);
}

#[tokio::test]
async fn a_commit_that_stopped_half_way_is_unknown() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run::<i64>(&["HSET", "sliceRef", "k1_2", "many"]);
    let slice = crate::meta::record::SliceSize { id: SliceId(1), size: 2 };
    let changes = [Change::PutAttr(Ino(5), file()), Change::AddSliceRef { slice, by: -1 }];
    let result = engine.begin().commit(&changes).await;
    let Err(CommitError::Unknown(error)) = result else { panic!("{result:?}") };
    assert!(error.to_string().contains("sliceRef"), "{error}");
}

#[tokio::test]
async fn the_error_for_a_record_that_does_not_decode_names_it() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run::<()>(&["SET", "i5", "short"]);
    let error = engine.read(&[Key::Attr(Ino(5))]).await.unwrap_err();
    assert!(error.to_string().contains("i5"), "{error}");
    server.run::<i64>(&["RPUSH", "c5_0", "short"]);
    let error = engine.read(&[Key::Chunk(Ino(5), 0)]).await.unwrap_err();
    assert!(error.to_string().contains("c5_0"), "{error}");
    server.run::<i64>(&["HSET", "d1", "a", "short"]);
    for key in [Key::Entry(Ino(1), name("a")), Key::Lookup(Ino(1), name("a"))] {
        let error = engine.read(&[key]).await.unwrap_err();
        assert!(error.to_string().contains("d1"), "{error}");
    }
}

/// Fails if the future hangs. The limit is generous, for busy machines.
async fn within_a_minute<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), future).await.unwrap()
}

#[tokio::test]
async fn a_refused_connection_is_reported_at_once() {
    let port = free_port();
    let url = format!("redis://:topsecret@127.0.0.1:{port}/1");
    let error = within_a_minute(connect(&url, &|_| None)).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&port.to_string()) && text.contains("refused"), "{text}");
    assert!(!text.contains("topsecret"), "{text}");
}

#[tokio::test]
async fn connecting_to_a_server_that_never_replies_times_out() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("redis://127.0.0.1:{port}/1?dial-timeout=300ms");
    let error = within_a_minute(connect(&url, &|_| None)).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn requests_on_a_closed_engine_fail() {
    let server = Server::start();
    let engine = server.engine().await;
    engine.close().await.unwrap();
    assert!(within_a_minute(engine.read(&[Key::Attr(Ino(1))])).await.is_err());
}

#[tokio::test]
async fn running_out_of_memory_logs_one_line_and_recovering_another() {
    let (log, _guard) = Log::begin();
    let server = Server::start();
    let engine = server.engine().await;
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..5 {
        let result = engine.begin().commit(&[Change::PutAttr(Ino(5), file())]).await;
        assert!(matches!(result, Err(CommitError::Failed(Error::NoSpace))), "{result:?}");
        engine.add_counter(Counter::NextInode, 1).await.unwrap_err();
    }
    server.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    for _ in 0..2 {
        put(&engine, &[Change::PutAttr(Ino(5), file())]).await;
    }
    let lines: Vec<String> =
        log.lines().into_iter().filter(|line| line.contains("the metadata server")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("out of memory") && lines[0].contains("OOM"), "{lines:?}");
    assert!(lines[1].contains("accepts writes again"), "{lines:?}");
}
