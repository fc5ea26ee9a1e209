//! Counters, claims of periodic jobs, directory statistics, quotas, the change log.

use super::fixtures::Server;
use super::*;
use crate::meta::record::{Counter, DirStat, Quota, QuotaKey};

#[tokio::test]
async fn counters_of_ids_return_the_next_free_id() {
    let server = Server::start();
    let engine = server.engine().await;
    assert_eq!(engine.add_counter(Counter::NextInode, 1024).await.unwrap(), 1025);
    assert_eq!(server.run::<String>(&["GET", "nextinode"]), "1024");
    assert_eq!(engine.counter(Counter::NextInode).await.unwrap(), 1025);
    assert_eq!(engine.add_counter(Counter::NextChunk, 4096).await.unwrap(), 4097);
    assert_eq!(server.run::<String>(&["GET", "nextchunk"]), "4096");
    assert_eq!(engine.add_counter(Counter::NextSession, 1).await.unwrap(), 1);
    assert_eq!(engine.add_counter(Counter::NextTrash, 1).await.unwrap(), 1);
    assert_eq!(engine.counter(Counter::UsedSpace).await.unwrap(), 0);
}

#[tokio::test]
async fn a_job_is_claimed_once_per_period() {
    let server = Server::start();
    let engine = server.engine().await;
    let claim = |now| engine.claim(Counter::LastCleanupFiles, now, 100);
    assert!(claim(1000).await.unwrap());
    assert!(!claim(1000).await.unwrap());
    assert!(!claim(1099).await.unwrap());
    assert!(claim(1100).await.unwrap());
    assert_eq!(server.run::<String>(&["GET", "lastCleanupFiles"]), "1100");
}

#[tokio::test]
async fn one_of_many_concurrent_claims_succeeds() {
    let server = Server::start();
    let engine = server.engine().await;
    let claims = (0..20).map(|_| engine.claim(Counter::LastCleanupTrash, 5000, 100));
    let claimed = futures::future::join_all(claims).await;
    assert_eq!(claimed.into_iter().filter(|claimed| *claimed.as_ref().unwrap()).count(), 1);
}

#[tokio::test]
async fn stats_are_added_and_invalid_ones_are_returned() {
    let server = Server::start();
    let engine = server.engine().await;
    let stat = |length, space, inodes| DirStat { length, space, inodes };
    for ino in [1, 2, 3] {
        put(&engine, &[Change::PutDirStat(Ino(ino), stat(10, 4096, 1))]).await;
    }
    server.run::<i64>(&["HDEL", "dirDataLength", "3"]);
    let deltas = [
        (Ino(1), stat(5, 4096, 1)),
        (Ino(2), stat(0, -8192, -1)),
        (Ino(3), stat(1, 1, 1)),
        (Ino(4), stat(1, 1, 1)),
    ];
    assert_eq!(engine.add_dir_stats(&deltas).await.unwrap(), [Ino(2), Ino(3), Ino(4)]);
    let record = read_one(&engine, Key::DirStat(Ino(1))).await;
    assert_eq!(record, Record::DirStat(Some(stat(15, 8192, 2))));
    let record = read_one(&engine, Key::DirStat(Ino(2))).await;
    assert_eq!(record, Record::DirStat(Some(stat(10, 4096, 1))));
    assert_eq!(read_one(&engine, Key::DirStat(Ino(3))).await, Record::DirStat(None));
    engine.clear_dir_stats().await.unwrap();
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn a_removed_directory_gets_no_stat() {
    let server = Server::start();
    let engine = server.engine().await;
    let stat = DirStat { length: 1, space: 4096, inodes: 1 };
    engine.put_dir_stat(Ino(5), &stat).await.unwrap();
    assert!(server.keys().is_empty());
    put(&engine, &[Change::PutAttr(Ino(5), file())]).await;
    engine.put_dir_stat(Ino(5), &stat).await.unwrap();
    assert_eq!(read_one(&engine, Key::DirStat(Ino(5))).await, Record::DirStat(Some(stat)));
}

fn quota(max_space: i64, max_inodes: i64, used_space: i64, used_inodes: i64) -> Quota {
    Quota { max_space, max_inodes, used_space, used_inodes }
}

#[tokio::test]
async fn limits_and_usage_of_quotas_are_written_separately() {
    let server = Server::start();
    let engine = server.engine().await;
    let key = QuotaKey::Dir(Ino(2));
    assert!(engine.put_quota(key, &quota(100, 10, 7, 7), false).await.unwrap());
    assert_eq!(engine.quota(key).await.unwrap(), Some(quota(100, 10, 0, 0)));
    assert!(!engine.put_quota(key, &quota(200, 20, 9, 3), true).await.unwrap());
    assert_eq!(engine.quota(key).await.unwrap(), Some(quota(200, 20, 9, 3)));
    assert!(!engine.put_quota(key, &quota(300, 30, 0, 0), false).await.unwrap());
    assert_eq!(engine.quota(key).await.unwrap(), Some(quota(300, 30, 9, 3)));
    engine.remove_quota(key).await.unwrap();
    assert_eq!(engine.quota(key).await.unwrap(), None);
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn removing_the_quota_of_a_user_keeps_the_usage() {
    let server = Server::start();
    let engine = server.engine().await;
    let key = QuotaKey::User(1000);
    engine.put_quota(key, &quota(100, -1, 9, 3), true).await.unwrap();
    engine.remove_quota(key).await.unwrap();
    assert_eq!(engine.quota(key).await.unwrap(), Some(quota(-1, -1, 9, 3)));
    engine.clear_owner_quotas().await.unwrap();
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn usage_creates_quotas_of_owners_but_not_of_directories() {
    let server = Server::start();
    let engine = server.engine().await;
    let (dir, gone) = (QuotaKey::Dir(Ino(2)), QuotaKey::Dir(Ino(3)));
    engine.put_quota(dir, &quota(100, 10, 0, 0), true).await.unwrap();
    let deltas = [
        (dir, 4096, 1),
        (QuotaKey::User(0), 4096, 1),
        (gone, 4096, 1),
        (QuotaKey::Group(5), -4096, -1),
    ];
    engine.add_quota_usage(&deltas).await.unwrap();
    engine.add_quota_usage(&deltas).await.unwrap();
    assert_eq!(engine.quota(gone).await.unwrap(), None);
    let expected = [
        (dir, quota(100, 10, 8192, 2)),
        (QuotaKey::User(0), quota(-1, -1, 8192, 2)),
        (QuotaKey::Group(5), quota(-1, -1, -8192, -2)),
    ];
    assert_eq!(engine.quotas().await.unwrap(), expected);
}

#[tokio::test]
async fn a_directory_quota_without_limits_does_not_exist_and_can_be_set_again() {
    let server = Server::start();
    let engine = server.engine().await;
    server.run_raw::<i64>(&[b"HSET", b"dirQuota", b"2", &[0xFF; 16]]);
    server.run::<i64>(&["HSET", "dirQuotaUsedSpace", "2", "4096"]);
    server.run::<i64>(&["HSET", "dirQuotaUsedInodes", "2", "1"]);
    let key = QuotaKey::Dir(Ino(2));
    assert_eq!(engine.quota(key).await.unwrap(), None);
    assert!(engine.quotas().await.unwrap().is_empty());
    assert!(engine.put_quota(key, &quota(100, 10, 0, 0), false).await.unwrap(), "it is new");
    assert_eq!(engine.quota(key).await.unwrap(), Some(quota(100, 10, 0, 0)));
}

#[tokio::test]
async fn many_quotas_are_loaded() {
    let server = Server::start();
    let engine = server.engine().await;
    let deltas: Vec<_> = (0..25_000).map(|uid| (QuotaKey::User(uid), 4096, 1)).collect();
    engine.add_quota_usage(&deltas).await.unwrap();
    assert_eq!(engine.quotas().await.unwrap().len(), 25_000);
}

#[tokio::test]
async fn trimming_the_change_log_keeps_the_versions_of_lines() {
    let server = Server::start();
    let engine = server.engine().await;
    assert!(engine.change_log(0, 10).await.unwrap().is_empty());
    for second in 1..=10 {
        put(&engine, &[Change::Log(format!("{second}.000000000|OP()|(1,2)"))]).await;
    }
    assert_eq!(server.run::<i64>(&["LLEN", "txnLog"]), 10);
    assert_eq!(server.run::<String>(&["GET", "txnLastLog"]), "10");
    let lines = engine.change_log(7, 2).await.unwrap();
    let versions: Vec<i64> = lines.iter().map(|(version, _)| *version).collect();
    assert_eq!(versions, [8, 9]);
    assert_eq!(lines[0].1, "8.000000000|OP()|(1,2)");

    engine.trim_change_log(Some(4), None).await.unwrap();
    assert_eq!(engine.change_log(0, 100).await.unwrap()[0].0, 4);
    engine.trim_change_log(Some(2), Some(3)).await.unwrap();
    assert_eq!(engine.change_log(0, 100).await.unwrap()[0].0, 8);
    engine.trim_change_log(None, Some(100)).await.unwrap();
    assert_eq!(engine.change_log(0, 100).await.unwrap().len(), 3);
    engine.trim_change_log(Some(1000), None).await.unwrap();
    assert!(engine.change_log(0, 100).await.unwrap().is_empty());
    put(&engine, &[Change::Log("11.0|OP()|(1,2)".to_owned())]).await;
    assert_eq!(engine.change_log(0, 100).await.unwrap()[0].0, 11);
}
