use super::fixtures::Server;
use super::*;
use crate::meta::engine::{DelayedSlices, DeletedFile};
use crate::meta::record::SliceSize;

#[tokio::test]
async fn deleted_files_are_listed_up_to_a_time() {
    let server = Server::start();
    let engine = server.engine().await;
    let delete = |ino, at| Change::PutDeletedFile { ino: Ino(ino), length: 7, at };
    put(&engine, &[delete(1, 10), delete(2, 20), delete(3, 30)]).await;
    let found = engine.deleted_files(20, 10).await.unwrap();
    let file = |ino, at| DeletedFile { ino: Ino(ino), length: 7, at };
    assert_eq!(found, [file(1, 10), file(2, 20)]);
    assert_eq!(engine.deleted_files(100, 2).await.unwrap().len(), 2);
}

#[tokio::test]
async fn deleted_files_of_old_clients_are_rewritten_so_that_they_can_be_removed() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run::<i64>(&["ZADD", "delfiles", "10", "5"]);
    server.run::<i64>(&["ZADD", "delfiles", "11", "6:3:77"]);
    let found = engine.deleted_files(100, 10).await.unwrap();
    let five = DeletedFile { ino: Ino(5), length: 1 << 30, at: 10 };
    let six = DeletedFile { ino: Ino(6), length: 77, at: 11 };
    assert_eq!(found, [five, six]);
    for file in found {
        put(&engine, &[Change::RemoveDeletedFile { ino: file.ino, length: file.length }]).await;
    }
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn slices_without_references_are_dead() {
    let server = Server::start();
    let engine = server.engine().await;
    for i in 1..=30 {
        let (field, value) = (format!("k{i}_9"), (i64::from(i % 3) - 1).to_string());
        server.run::<i64>(&["HSET", "sliceRef", &field, &value]);
    }
    let dead = engine.dead_slices(100).await.unwrap();
    assert_eq!(dead.len(), 10);
    assert_eq!(dead[0], SliceSize { id: SliceId(3), size: 9 });
    assert_eq!(engine.dead_slices(4).await.unwrap().len(), 4);
    engine.drop_single_refs().await.unwrap();
    let left: Vec<i64> = server.run(&["HVALS", "sliceRef"]);
    assert_eq!(left.len(), 20);
    assert!(left.iter().all(|refs| *refs != 0), "{left:?}");
}

#[tokio::test]
async fn delayed_slices_are_listed_up_to_a_time() {
    let server = Server::start();
    let engine = server.engine().await;
    let slices = vec![SliceSize { id: SliceId(5), size: 1000 }];
    let delay = |id, at| Change::PutDelayed { id: SliceId(id), at, slices: slices.clone() };
    put(&engine, &[delay(8, 10), delay(9, 20), delay(10, 30)]).await;
    let mut found = engine.delayed_slices(20, 10).await.unwrap();
    found.sort_by_key(|list| list.at);
    let list = |id, at| DelayedSlices { id: SliceId(id), at, slices: slices.clone() };
    assert_eq!(found, [list(8, 10), list(9, 20)]);
    assert_eq!(engine.delayed_slices(100, 2).await.unwrap().len(), 2);
}

#[tokio::test]
async fn detached_nodes_are_listed_up_to_a_time() {
    let server = Server::start();
    let engine = server.engine().await;
    put(&engine, &[Change::PutDetached(Ino(8), 10), Change::PutDetached(Ino(9), 30)]).await;
    assert_eq!(engine.detached(10).await.unwrap(), [Ino(8)]);
}
