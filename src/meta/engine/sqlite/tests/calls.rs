//! Calls of the record traits.

use super::*;
use crate::meta::engine::{HeldKind, StoredSession};
use crate::meta::record::{AclEntry, AclRule, Counter, DirStat, LockKind, Quota, QuotaKey};
use crate::meta::{LockOwner, Sid};

#[tokio::test]
async fn a_counter_without_a_row_counts_from_zero() {
    let volume = Volume::new().await;
    let engine = &volume.engine;
    assert_eq!(engine.add_counter(Counter::NextInode, 1024).await.unwrap(), 1026);
    assert_eq!(engine.counter(Counter::NextTrash).await.unwrap(), 0);
    assert_eq!(engine.add_counter(Counter::NextTrash, 1).await.unwrap(), 1);
    assert_eq!(engine.add_counter(Counter::UsedSpace, -4096).await.unwrap(), -4096);
    assert_eq!(engine.counter(Counter::UsedSpace).await.unwrap(), -4096);
}

#[tokio::test]
async fn a_job_is_claimed_once_per_interval() {
    let volume = Volume::new().await;
    let claim = |now| volume.engine.claim(Counter::LastCleanupTrash, now, 100);
    assert!(claim(1000).await.unwrap());
    assert!(!claim(1000).await.unwrap());
    assert!(!claim(1099).await.unwrap());
    assert!(claim(1100).await.unwrap());
    assert_eq!(volume.engine.counter(Counter::LastCleanupTrash).await.unwrap(), 1100);
}

#[tokio::test]
async fn sessions_are_added_extended_and_removed() {
    let volume = Volume::new().await;
    let engine = &volume.engine;
    engine.put_session(Sid(1), 100, b"{}").await.unwrap();
    engine.put_session(Sid(2), 200, b"{}").await.unwrap();
    assert!(engine.extend_session(Sid(1), 150).await.unwrap());
    assert!(!engine.extend_session(Sid(3), 150).await.unwrap());
    let one = StoredSession { sid: Sid(1), expire: 150, info: b"{}".to_vec() };
    assert_eq!(engine.session(Sid(1)).await.unwrap(), Some(one));
    assert_eq!(engine.session(Sid(3)).await.unwrap(), None);
    assert_eq!(engine.sessions().await.unwrap().len(), 2);
    assert_eq!(engine.stale_sessions(150, 10).await.unwrap(), []);
    assert_eq!(engine.stale_sessions(151, 10).await.unwrap(), [Sid(1)]);
    assert_eq!(engine.stale_sessions(1000, 1).await.unwrap().len(), 1);
    engine.remove_session(Sid(1)).await.unwrap();
    assert_eq!(engine.session(Sid(1)).await.unwrap(), None);
}

#[tokio::test]
async fn sessions_of_old_clients_are_listed_and_removed() {
    let volume = Volume::new().await;
    volume
        .other_connection()
        .execute_batch(
            "CREATE TABLE `jfs_session` (`sid` INTEGER PRIMARY KEY NOT NULL, \
             `heartbeat` INTEGER NOT NULL, `info` BLOB NULL);
             INSERT INTO jfs_session VALUES (7, 1000, NULL);",
        )
        .unwrap();
    let engine = &volume.engine;
    let old = StoredSession { sid: Sid(7), expire: 1300, info: vec![] };
    assert_eq!(engine.session(Sid(7)).await.unwrap(), Some(old.clone()));
    assert_eq!(engine.sessions().await.unwrap(), [old]);
    assert_eq!(engine.stale_sessions(1300, 10).await.unwrap(), []);
    assert_eq!(engine.stale_sessions(1301, 10).await.unwrap(), [Sid(7)]);
    engine.remove_session(Sid(7)).await.unwrap();
    assert_eq!(engine.sessions().await.unwrap(), []);
}

#[tokio::test]
async fn a_sessions_locks_are_listed_and_released_together() {
    let volume = Volume::new().await;
    let (ino, owner) = (Ino(5), LockOwner(9));
    let lock = |sid| Change::PutFlock { ino, sid: Sid(sid), owner, kind: LockKind::Read };
    let ranges = Change::PutPlock { ino, sid: Sid(1), owner, ranges: vec![] };
    volume.apply(&[lock(1), lock(2), ranges]).await.unwrap();
    let held = volume.engine.locks_of(Sid(1)).await.unwrap();
    let kinds: Vec<HeldKind> = held.into_iter().map(|lock| lock.kind).collect();
    assert_eq!(kinds, [HeldKind::Flock(LockKind::Read), HeldKind::Plock(vec![])]);
    volume.engine.release_locks(Sid(1)).await.unwrap();
    assert_eq!(volume.engine.locks_of(Sid(1)).await.unwrap(), []);
    assert_eq!(volume.engine.locks_of(Sid(2)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn rules_get_the_next_id() {
    let volume = Volume::new().await;
    let named = |id| AclEntry { id, perm: 7 };
    let rule = AclRule {
        owner: 6,
        group: 4,
        mask: 7,
        other: AclRule::UNSET,
        users: vec![named(1000), named(u32::MAX)],
        groups: vec![],
    };
    assert_eq!(volume.engine.insert_acl(&rule).await.unwrap(), 1);
    assert_eq!(volume.engine.insert_acl(&rule).await.unwrap(), 2);
    assert_eq!(volume.read(Key::Acl(2)).await, Record::Acl(Some(rule.clone())));
    assert_eq!(volume.engine.acls().await.unwrap(), [(1, rule.clone()), (2, rule)]);
}

#[tokio::test]
async fn dir_stats_that_are_missing_or_would_turn_negative_are_returned() {
    let volume = Volume::new().await;
    let engine = &volume.engine;
    let stat = |length, space, inodes| DirStat { length, space, inodes };
    for ino in [Ino(2), Ino(3)] {
        volume.apply(&[Change::PutAttr(ino, dir_attr(0o755))]).await.unwrap();
        engine.put_dir_stat(ino, &stat(10, 4096, 1)).await.unwrap();
    }
    let deltas = [(Ino(2), stat(5, 4096, 1)), (Ino(3), stat(-11, 0, 0)), (Ino(4), stat(1, 1, 1))];
    assert_eq!(engine.add_dir_stats(&deltas).await.unwrap(), [Ino(3), Ino(4)]);
    assert_eq!(volume.read(Key::DirStat(Ino(2))).await, Record::DirStat(Some(stat(15, 8192, 2))));
    assert_eq!(volume.read(Key::DirStat(Ino(3))).await, Record::DirStat(Some(stat(10, 4096, 1))));
    engine.clear_dir_stats().await.unwrap();
    assert_eq!(volume.read(Key::DirStat(Ino(2))).await, Record::DirStat(None));
}

#[tokio::test]
async fn quotas_of_directories_users_and_groups_are_kept_apart() {
    let volume = Volume::new().await;
    let engine = &volume.engine;
    let (dir, user, group) = (QuotaKey::Dir(Ino(5)), QuotaKey::User(5), QuotaKey::Group(5));
    let quota =
        |max, used| Quota { max_space: max, max_inodes: max, used_space: used, used_inodes: used };
    for (key, max) in [(dir, 1), (user, 2), (group, 3)] {
        assert!(engine.put_quota(key, &quota(max, 10), true).await.unwrap());
        assert!(!engine.put_quota(key, &quota(max * 100, 77), false).await.unwrap());
    }
    let all = [(dir, quota(100, 10)), (user, quota(200, 10)), (group, quota(300, 10))];
    assert_eq!(engine.quotas().await.unwrap(), all);

    let more =
        [(dir, 5, 5), (user, 5, 5), (QuotaKey::User(0), 1, 1), (QuotaKey::Dir(Ino(6)), 1, 1)];
    engine.add_quota_usage(&more).await.unwrap();
    assert_eq!(engine.quota(dir).await.unwrap(), Some(quota(100, 15)));
    assert_eq!(engine.quota(user).await.unwrap(), Some(quota(200, 15)));
    // Usage is counted for every user, but only for directories with a quota.
    let counted = Quota { max_space: -1, max_inodes: -1, used_space: 1, used_inodes: 1 };
    assert_eq!(engine.quota(QuotaKey::User(0)).await.unwrap(), Some(counted));
    assert_eq!(engine.quota(QuotaKey::Dir(Ino(6))).await.unwrap(), None);

    engine.remove_quota(dir).await.unwrap();
    engine.remove_quota(user).await.unwrap();
    assert_eq!(engine.quota(dir).await.unwrap(), None);
    let unlimited = Quota { max_space: -1, max_inodes: -1, used_space: 15, used_inodes: 15 };
    assert_eq!(engine.quota(user).await.unwrap(), Some(unlimited));
    engine.clear_owner_quotas().await.unwrap();
    assert_eq!(engine.quotas().await.unwrap(), []);
}

#[tokio::test]
async fn the_change_log_is_read_from_a_version_on_and_trimmed() {
    let volume = Volume::new().await;
    let lines: Vec<Change> = (0..2500)
        .map(|i| Change::Log(format!("{}.{:09}|CREATE({i}):2|(1,{i})", 1000 + i / 100, i)))
        .collect();
    volume.apply(&lines).await.unwrap();
    let engine = &volume.engine;
    let first = engine.change_log(0, 2).await.unwrap();
    assert_eq!(first[0], (1, "1000.000000000|CREATE(0):2|(1,0)".to_owned()));
    assert_eq!(engine.change_log(first[1].0, 1).await.unwrap()[0].0, 3);

    engine.trim_change_log(Some(1015), None).await.unwrap();
    assert_eq!(engine.change_log(0, 1).await.unwrap()[0].0, 1501);
    engine.trim_change_log(Some(0), Some(10)).await.unwrap();
    let left = engine.change_log(0, 100).await.unwrap();
    assert_eq!((left.len(), left[0].0), (10, 2491));
    engine.trim_change_log(None, None).await.unwrap();
    assert_eq!(engine.change_log(0, 100).await.unwrap().len(), 10);
}

#[tokio::test]
async fn a_wiped_volume_can_be_formatted_again() {
    let volume = Volume::new().await;
    volume.apply(&[Change::PutAttr(Ino(5), file_attr())]).await.unwrap();
    volume.engine.wipe().await.unwrap();
    assert_eq!(volume.engine.load_setting().await.unwrap(), None);
    let tables: i64 = volume.value("SELECT count(*) FROM sqlite_master WHERE name LIKE 'jfs%'");
    assert_eq!(tables, 0);
    volume.engine.prepare().await.unwrap();
    volume.engine.store_setting(b"{}", &dir_attr(0o777), None).await.unwrap();
    assert_eq!(volume.read(Key::Attr(Ino(5))).await, Record::Attr(None));
    assert_eq!(volume.read(Key::Attr(Ino::TRASH)).await, Record::Attr(None));
    assert_eq!(volume.engine.counter(Counter::NextInode).await.unwrap(), 2);
}
