use std::collections::HashSet;

use super::fixtures::Server;
use super::*;
use crate::meta::engine::Cursor;
use crate::meta::record::CHUNK_SIZE;

async fn fill(engine: &RedisEngine, count: u64) {
    let changes: Vec<Change> = (0..count)
        .map(|i| Change::PutEntry(Ino(1), name(&format!("f{i}")), entry(i + 10)))
        .collect();
    for some in changes.chunks(5000) {
        put(engine, some).await;
    }
}

#[tokio::test]
async fn a_small_directory_is_listed_in_one_round_trip() {
    let server = Server::start();
    let engine = server.engine().await;
    fill(&engine, 100).await;
    let before = engine.round_trips();
    let page = engine.list(Ino(1), &Cursor::Start, 10).await.unwrap();
    assert_eq!(engine.round_trips() - before, 1);
    assert_eq!((page.entries.len(), page.next), (100, Cursor::End));
}

#[tokio::test]
async fn a_large_directory_is_listed_in_pages() {
    let server = Server::start();
    let engine = server.engine().await;
    fill(&engine, 50_000).await;
    let mut seen = HashSet::new();
    let mut cursor = Cursor::Start;
    while cursor != Cursor::End {
        let page = engine.list(Ino(1), &cursor, 1000).await.unwrap();
        assert!(page.entries.len() < 1200, "{}", page.entries.len());
        for (name, entry) in page.entries {
            assert_eq!(name.to_string(), format!("f{}", entry.ino.0 - 10));
            seen.insert(name);
        }
        cursor = page.next;
    }
    assert_eq!(seen.len(), 50_000);
}

#[tokio::test]
async fn an_empty_directory_has_one_empty_page() {
    let server = Server::start();
    let engine = server.engine().await;
    let page = engine.list(Ino(1), &Cursor::Start, 10).await.unwrap();
    assert_eq!((page.entries.len(), page.next), (0, Cursor::End));
    assert!(engine.list(Ino(1), &Cursor::End, 10).await.unwrap().entries.is_empty());
}

#[tokio::test]
async fn an_entry_with_an_empty_name_is_skipped() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run_raw::<i64>(&[b"HSET", b"d1", b"", &entry(5).encode()]);
    assert!(engine.list(Ino(1), &Cursor::Start, 10).await.unwrap().entries.is_empty());
}

async fn append(engine: &RedisEngine, index: u32) {
    let slices = vec![slice(1, 0)];
    put(engine, &[Change::AppendSlices { ino: Ino(5), index, slices, if_present: false }]).await;
}

#[tokio::test]
async fn chunks_within_the_length_are_found() {
    let server = Server::start();
    let engine = server.engine().await;
    for index in [0, 3, 7] {
        append(&engine, index).await;
    }
    put(&engine, &[Change::PutAttr(Ino(5), file())]).await;
    assert_eq!(engine.chunk_indexes(Ino(5), 7 * CHUNK_SIZE).await.unwrap(), [0, 3]);
    assert_eq!(engine.chunk_indexes(Ino(5), 7 * CHUNK_SIZE + 1).await.unwrap(), [0, 3, 7]);
    assert!(engine.chunk_indexes(Ino(5), 0).await.unwrap().is_empty());
}

#[tokio::test]
async fn chunks_of_a_huge_sparse_file_are_found_without_checking_each() {
    let server = Server::start();
    let engine = server.engine().await;
    for index in [2_000_000_000, 0, 70_000] {
        append(&engine, index).await;
    }
    let before = engine.round_trips();
    let found = engine.chunk_indexes(Ino(5), 1 << 57).await.unwrap();
    assert_eq!(found, [0, 70_000, 2_000_000_000]);
    assert!(engine.round_trips() - before < 5);
    assert_eq!(engine.chunk_indexes(Ino(5), 70_000 * CHUNK_SIZE).await.unwrap(), [0]);
}
