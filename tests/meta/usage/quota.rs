//! Limits of the volume, of directories, of users and groups.

use crate::on_every_store;
use crate::support::store::Store;
use jfs::error::Error;
use jfs::meta::client::{Limits, NodeKind};
use jfs::meta::record::{FileKind, Quota, QuotaKey};
use jfs::meta::{Caller, EntryRef, Ino, Meta, Name, RenameMode};

on_every_store! {
    a_full_volume_refuses_more_space,
    a_volume_without_free_inodes_refuses_more,
    a_new_quota_counts_existing_usage,
    a_quota_limits_everything_below,
    the_tightest_quota_above_decides,
    removed_usage_can_be_used_again,
    the_trash_counts_for_no_quota,
    a_limit_of_zero_is_no_limit,
    a_quota_changes_one_limit_at_a_time,
    invalid_quotas_are_refused,
    quota_usage_is_sent_to_the_store,
    another_client_loads_a_quota_and_its_usage,
    usage_below_unknown_ancestors_is_settled,
    moving_a_tree_moves_its_usage,
    a_tree_too_large_for_a_quota_does_not_move_there,
    moving_within_a_full_quota_is_allowed,
    exchanging_trees_exchanges_their_usage,
    a_removed_directory_loses_its_quota,
    a_deleted_quota_limits_nothing,
    a_leftover_record_is_no_quota,
    setting_a_quota_enables_dir_stats,
    a_wrong_usage_is_found_and_repaired,
    statfs_shows_the_quotas_above,
    a_user_is_limited,
    a_group_is_limited_by_the_group_of_the_new_node,
    the_first_owner_quota_counts_the_whole_volume,
    a_deleted_owner_quota_still_counts,
    usage_moves_to_a_new_owner,
    wrong_owner_usage_is_found_and_repaired,
}

const ROOT: Ino = Ino::ROOT;
const PAGE: i64 = 4096;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn space(max: i64) -> Limits {
    Limits { space: Some(max), inodes: None }
}

fn inodes(max: i64) -> Limits {
    Limits { space: None, inodes: Some(max) }
}

async fn mkdir(meta: &Meta, dir: Ino, text: &str) -> Ino {
    try_mkdir(meta, dir, text).await.unwrap()
}

async fn try_mkdir(meta: &Meta, dir: Ino, text: &str) -> Result<Ino, Error> {
    Ok(meta.mkdir(&Caller::root(), dir, &name(text), 0o777, 0).await?.0)
}

async fn try_create(meta: &Meta, caller: &Caller, dir: Ino, text: &str) -> Result<Ino, Error> {
    let node = NodeKind { kind: FileKind::File, rdev: 0 };
    Ok(meta.mknod(caller, dir, &name(text), node, 0o666, 0).await?.0)
}

async fn create(meta: &Meta, dir: Ino, text: &str) -> Ino {
    try_create(meta, &Caller::root(), dir, text).await.unwrap()
}

async fn rename(meta: &Meta, from: (Ino, &str), to: (Ino, &str)) -> Result<(), Error> {
    let (old, new) = (name(from.1), name(to.1));
    let mode = RenameMode::NoReplace;
    meta.rename(&Caller::root(), EntryRef::new(from.0, &old), EntryRef::new(to.0, &new), mode)
        .await
        .map(drop)
}

async fn limit_dir(meta: &Meta, dir: Ino, limits: Limits) -> Quota {
    meta.quota_set(QuotaKey::Dir(dir), limits, false).await.unwrap()
}

/// The usage of a quota as this client knows it.
fn used(meta: &Meta, key: QuotaKey) -> (i64, i64) {
    let quota = meta.context().quotas.quota(key).unwrap();
    (quota.used_space, quota.used_inodes)
}

/// The usage of a quota as stored.
async fn stored(store: &Store, key: QuotaKey) -> (i64, i64) {
    let quota = store.engine().await.quota(key).await.unwrap().unwrap();
    (quota.used_space, quota.used_inodes)
}

#[track_caller]
fn assert_full<T: std::fmt::Debug>(result: &Result<T, Error>) {
    assert!(matches!(result, Err(Error::QuotaExceeded)), "{result:?}");
}

// The volume.

async fn a_full_volume_refuses_more_space(store: Store) {
    store.format(|setting| setting.capacity = 2 * 4096).await;
    let meta = store.start().await;
    create(&meta, ROOT, "a").await;
    create(&meta, ROOT, "b").await;
    let third = try_create(&meta, &Caller::root(), ROOT, "c").await;
    assert!(matches!(third, Err(Error::NoSpace)), "{third:?}");
    meta.flush().await.unwrap();
    meta.heartbeat().await.unwrap();
    let third = try_create(&meta, &Caller::root(), ROOT, "c").await;
    assert!(matches!(third, Err(Error::NoSpace)), "{third:?}");
    meta.unlink_with(&Caller::root(), ROOT, &name("a"), true).await.unwrap();
    create(&meta, ROOT, "c").await;
    meta.close().await.unwrap();
}

async fn a_volume_without_free_inodes_refuses_more(store: Store) {
    store.format(|setting| setting.inodes = 1).await;
    let meta = store.start().await;
    create(&meta, ROOT, "a").await;
    let second = try_mkdir(&meta, ROOT, "b").await;
    assert!(matches!(second, Err(Error::NoSpace)), "{second:?}");
    meta.close().await.unwrap();
}

// Directories.

async fn a_new_quota_counts_existing_usage(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    let sub = mkdir(&meta, dir, "sub").await;
    create(&meta, sub, "f").await;
    for strict in [false, true] {
        let key = QuotaKey::Dir(dir);
        let quota = meta.quota_set(key, space(1 << 20), strict).await.unwrap();
        assert_eq!((quota.used_space, quota.used_inodes), (2 * PAGE, 2));
        assert_eq!(stored(&store, key).await, (2 * PAGE, 2));
        meta.quota_delete(key).await.unwrap();
    }
    meta.close().await.unwrap();
}

async fn a_quota_limits_everything_below(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    let deep = mkdir(&meta, dir, "deep").await;
    limit_dir(&meta, dir, space(3 * PAGE)).await;
    create(&meta, deep, "a").await;
    create(&meta, dir, "b").await;
    assert_full(&try_create(&meta, &Caller::root(), deep, "c").await);
    assert_full(&try_mkdir(&meta, dir, "c").await);
    create(&meta, ROOT, "outside").await;
    meta.close().await.unwrap();
}

async fn the_tightest_quota_above_decides(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let outer = mkdir(&meta, ROOT, "outer").await;
    let inner = mkdir(&meta, outer, "inner").await;
    limit_dir(&meta, inner, inodes(100)).await;
    limit_dir(&meta, outer, inodes(2)).await;
    create(&meta, inner, "a").await;
    assert_full(&try_create(&meta, &Caller::root(), inner, "b").await);
    limit_dir(&meta, outer, inodes(3)).await;
    create(&meta, inner, "b").await;
    assert_eq!(used(&meta, QuotaKey::Dir(inner)), (2 * PAGE, 2));
    assert_eq!(used(&meta, QuotaKey::Dir(outer)), (3 * PAGE, 3));
    meta.close().await.unwrap();
}

async fn removed_usage_can_be_used_again(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    limit_dir(&meta, dir, inodes(1)).await;
    for _ in 0..3 {
        create(&meta, dir, "f").await;
        assert_full(&try_create(&meta, &Caller::root(), dir, "g").await);
        meta.unlink_with(&Caller::root(), dir, &name("f"), true).await.unwrap();
    }
    meta.close().await.unwrap();
}

async fn the_trash_counts_for_no_quota(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    limit_dir(&meta, ROOT, inodes(10)).await;
    limit_dir(&meta, dir, inodes(1)).await;
    create(&meta, dir, "f").await;
    meta.unlink(&Caller::root(), dir, &name("f")).await.unwrap();
    create(&meta, dir, "g").await;
    meta.flush().await.unwrap();
    assert_eq!(stored(&store, QuotaKey::Dir(dir)).await, (PAGE, 1));
    assert_eq!(stored(&store, QuotaKey::Dir(ROOT)).await, (2 * PAGE, 2));
    let far = jfs::meta::Timestamp::now().sec + 30 * 86_400;
    assert_eq!(meta.clean_trash(far).await.unwrap(), 1);
    meta.flush().await.unwrap();
    assert_eq!(stored(&store, QuotaKey::Dir(ROOT)).await, (2 * PAGE, 2));
    meta.close().await.unwrap();
}

async fn a_limit_of_zero_is_no_limit(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    limit_dir(&meta, dir, Limits { space: Some(PAGE), inodes: Some(1) }).await;
    create(&meta, dir, "a").await;
    limit_dir(&meta, dir, Limits { space: Some(0), inodes: Some(0) }).await;
    create(&meta, dir, "b").await;
    assert_eq!(used(&meta, QuotaKey::Dir(dir)), (2 * PAGE, 2));
    meta.close().await.unwrap();
}

async fn a_quota_changes_one_limit_at_a_time(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, dir, "f").await;
    limit_dir(&meta, dir, space(1 << 20)).await;
    create(&meta, dir, "g").await;
    let quota = limit_dir(&meta, dir, inodes(7)).await;
    let want = Quota { max_space: 1 << 20, max_inodes: 7, used_space: 2 * PAGE, used_inodes: 2 };
    assert_eq!(quota, want);
    assert_eq!(meta.quota(QuotaKey::Dir(dir)).await.unwrap(), Some(want));
    assert_eq!(meta.quota_list().await.unwrap(), [(QuotaKey::Dir(dir), want)]);
    meta.close().await.unwrap();
}

async fn invalid_quotas_are_refused(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let file = create(&meta, ROOT, "f").await;
    let set = |ino, limits| meta.quota_set(QuotaKey::Dir(ino), limits, false);
    assert!(matches!(set(ROOT, Limits::default()).await, Err(Error::BadInput(_))));
    assert!(matches!(set(ROOT, space(-5)).await, Err(Error::BadInput(_))));
    assert!(matches!(set(Ino::TRASH, space(5)).await, Err(Error::BadInput(_))));
    assert!(matches!(set(file, space(5)).await, Err(Error::NotDirectory)));
    assert!(matches!(set(Ino(99_999), space(5)).await, Err(Error::NotFound)));
    assert!(meta.quota_list().await.unwrap().is_empty());
    let check = meta.quota_check(ROOT, false, false).await;
    assert!(matches!(check, Err(Error::BadInput(_))), "{check:?}");
    meta.close().await.unwrap();
}

async fn quota_usage_is_sent_to_the_store(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    limit_dir(&meta, dir, space(1 << 20)).await;
    create(&meta, dir, "a").await;
    meta.flush_quotas().await.unwrap();
    meta.flush_quotas().await.unwrap();
    assert_eq!(stored(&store, QuotaKey::Dir(dir)).await, (PAGE, 1));
    meta.heartbeat().await.unwrap();
    create(&meta, dir, "b").await;
    assert_eq!(used(&meta, QuotaKey::Dir(dir)), (2 * PAGE, 2));
    meta.close().await.unwrap();
    assert_eq!(stored(&store, QuotaKey::Dir(dir)).await, (2 * PAGE, 2));
}

async fn another_client_loads_a_quota_and_its_usage(store: Store) {
    store.format(|_| {}).await;
    let (one, two) = (store.start().await, store.start().await);
    let dir = mkdir(&one, ROOT, "d").await;
    limit_dir(&one, dir, inodes(2)).await;
    create(&one, dir, "a").await;
    one.flush().await.unwrap();
    two.heartbeat().await.unwrap();
    create(&two, dir, "b").await;
    assert_full(&try_create(&two, &Caller::root(), dir, "c").await);
    two.flush().await.unwrap();
    one.heartbeat().await.unwrap();
    assert_full(&try_create(&one, &Caller::root(), dir, "c").await);
    assert_eq!(stored(&store, QuotaKey::Dir(dir)).await, (2 * PAGE, 2));
    one.quota_delete(QuotaKey::Dir(dir)).await.unwrap();
    two.heartbeat().await.unwrap();
    create(&two, dir, "c").await;
    one.close().await.unwrap();
    two.close().await.unwrap();
    assert_eq!(store.engine().await.quota(QuotaKey::Dir(dir)).await.unwrap(), None);
}

async fn usage_below_unknown_ancestors_is_settled(store: Store) {
    store.format(|_| {}).await;
    let (one, two) = (store.start().await, store.start().await);
    let dir = mkdir(&one, ROOT, "d").await;
    let deep = mkdir(&one, mkdir(&one, dir, "x").await, "y").await;
    create(&one, deep, "f").await;
    // A record without limits: the removal checks no quota, so the ancestors are not known after
    // it.
    limit_dir(&one, dir, Limits { space: Some(0), inodes: Some(0) }).await;
    two.heartbeat().await.unwrap();
    two.unlink_with(&Caller::root(), deep, &name("f"), true).await.unwrap();
    two.flush_quotas().await.unwrap();
    assert_eq!(stored(&store, QuotaKey::Dir(dir)).await, (2 * PAGE, 2));
    one.close().await.unwrap();
    two.close().await.unwrap();
}

async fn moving_a_tree_moves_its_usage(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let (a, b) = (mkdir(&meta, ROOT, "a").await, mkdir(&meta, ROOT, "b").await);
    let tree = mkdir(&meta, a, "tree").await;
    let sub = mkdir(&meta, tree, "sub").await;
    create(&meta, sub, "f").await;
    create(&meta, a, "loose").await;
    limit_dir(&meta, a, space(1 << 20)).await;
    limit_dir(&meta, b, space(1 << 20)).await;
    rename(&meta, (a, "tree"), (b, "tree")).await.unwrap();
    rename(&meta, (a, "loose"), (ROOT, "loose")).await.unwrap();
    create(&meta, sub, "g").await;
    assert_eq!(used(&meta, QuotaKey::Dir(a)), (0, 0));
    assert_eq!(used(&meta, QuotaKey::Dir(b)), (4 * PAGE, 4));
    meta.flush().await.unwrap();
    for dir in [a, b] {
        assert!(meta.quota_check(dir, true, false).await.unwrap().is_right());
    }
    meta.close().await.unwrap();
}

async fn a_tree_too_large_for_a_quota_does_not_move_there(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let (a, b) = (mkdir(&meta, ROOT, "a").await, mkdir(&meta, ROOT, "b").await);
    let tree = mkdir(&meta, a, "tree").await;
    create(&meta, tree, "f").await;
    limit_dir(&meta, b, inodes(1)).await;
    assert_full(&rename(&meta, (a, "tree"), (b, "tree")).await);
    rename(&meta, (tree, "f"), (b, "f")).await.unwrap();
    assert_full(&rename(&meta, (a, "tree"), (b, "tree")).await);
    assert_eq!(used(&meta, QuotaKey::Dir(b)), (PAGE, 1));
    meta.close().await.unwrap();
}

async fn moving_within_a_full_quota_is_allowed(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    let (one, two) = (mkdir(&meta, dir, "one").await, mkdir(&meta, dir, "two").await);
    create(&meta, one, "f").await;
    limit_dir(&meta, dir, inodes(3)).await;
    limit_dir(&meta, two, inodes(5)).await;
    rename(&meta, (one, "f"), (two, "f")).await.unwrap();
    assert_eq!(used(&meta, QuotaKey::Dir(dir)), (3 * PAGE, 3));
    assert_eq!(used(&meta, QuotaKey::Dir(two)), (PAGE, 1));
    meta.close().await.unwrap();
}

async fn exchanging_trees_exchanges_their_usage(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let (a, b) = (mkdir(&meta, ROOT, "a").await, mkdir(&meta, ROOT, "b").await);
    let (big, small) = (mkdir(&meta, a, "t").await, mkdir(&meta, b, "t").await);
    for i in 0..3 {
        create(&meta, big, &format!("f{i}")).await;
    }
    create(&meta, small, "f").await;
    limit_dir(&meta, a, inodes(100)).await;
    limit_dir(&meta, b, inodes(100)).await;
    let t = name("t");
    meta.rename(&Caller::root(), EntryRef::new(a, &t), EntryRef::new(b, &t), RenameMode::Exchange)
        .await
        .unwrap();
    assert_eq!(used(&meta, QuotaKey::Dir(a)), (2 * PAGE, 2));
    assert_eq!(used(&meta, QuotaKey::Dir(b)), (4 * PAGE, 4));
    create(&meta, big, "more").await;
    assert_eq!(used(&meta, QuotaKey::Dir(b)), (5 * PAGE, 5));
    meta.close().await.unwrap();
}

async fn a_removed_directory_loses_its_quota(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    limit_dir(&meta, dir, inodes(1)).await;
    meta.rmdir(&Caller::root(), ROOT, &name("d")).await.unwrap();
    assert_eq!(meta.quota(QuotaKey::Dir(dir)).await.unwrap(), None);
    assert!(!meta.context().quotas.has_dirs());
    meta.close().await.unwrap();
}

async fn a_deleted_quota_limits_nothing(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    limit_dir(&meta, dir, inodes(1)).await;
    create(&meta, dir, "a").await;
    meta.quota_delete(QuotaKey::Dir(dir)).await.unwrap();
    create(&meta, dir, "b").await;
    assert!(meta.quota_list().await.unwrap().is_empty());
    meta.close().await.unwrap();
}

async fn a_leftover_record_is_no_quota(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, dir, "a").await;
    let leftover = Quota { used_space: 7, used_inodes: 7, ..Quota::UNLIMITED };
    meta.engine().put_quota(QuotaKey::Dir(dir), &leftover, true).await.unwrap();
    meta.heartbeat().await.unwrap();
    assert_eq!(meta.quota(QuotaKey::Dir(dir)).await.unwrap(), None);
    assert!(meta.quota_list().await.unwrap().is_empty());
    assert!(!meta.context().quotas.limits_dirs());
    let quota = limit_dir(&meta, dir, inodes(1)).await;
    assert_eq!((quota.used_space, quota.used_inodes), (PAGE, 1));
    meta.close().await.unwrap();
}

async fn setting_a_quota_enables_dir_stats(store: Store) {
    store.format(|setting| setting.dir_stats = false).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, dir, "a").await;
    let quota = limit_dir(&meta, dir, inodes(2)).await;
    assert_eq!(quota.used_inodes, 1);
    assert!(meta.context().setting().dir_stats);
    assert!(meta.stored_setting().await.unwrap().unwrap().dir_stats);
    create(&meta, dir, "b").await;
    assert_full(&try_create(&meta, &Caller::root(), dir, "c").await);
    meta.close().await.unwrap();
}

async fn a_wrong_usage_is_found_and_repaired(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, dir, "a").await;
    let right = limit_dir(&meta, dir, inodes(9)).await;
    let wrong = Quota { used_space: 1, used_inodes: 2, ..right };
    meta.engine().put_quota(QuotaKey::Dir(dir), &wrong, true).await.unwrap();
    let check = meta.quota_check(dir, false, false).await.unwrap();
    assert!(!check.is_right());
    assert_eq!((check.space, check.inodes), (PAGE, 1));
    assert_eq!(meta.quota(QuotaKey::Dir(dir)).await.unwrap(), Some(wrong));
    meta.quota_check(dir, true, true).await.unwrap();
    assert_eq!(meta.quota(QuotaKey::Dir(dir)).await.unwrap(), Some(right));
    assert!(meta.quota_check(dir, true, false).await.unwrap().is_right());
    meta.close().await.unwrap();
}

async fn statfs_shows_the_quotas_above(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let outer = mkdir(&meta, ROOT, "outer").await;
    let inner = mkdir(&meta, outer, "inner").await;
    let file = create(&meta, inner, "f").await;
    limit_dir(&meta, outer, space(100 * PAGE)).await;
    limit_dir(&meta, inner, inodes(10)).await;
    let page = PAGE.cast_unsigned();
    for place in [inner, file] {
        let stat = meta.statfs(place).await.unwrap();
        assert_eq!((stat.available, stat.total), (98 * page, 99 * page), "{place}");
        assert_eq!((stat.used_inodes, stat.available_inodes), (1, 9), "{place}");
    }
    assert_eq!(meta.statfs(ROOT).await.unwrap().total, 1 << 50);
    meta.close().await.unwrap();
}

// Users and groups.

async fn a_user_is_limited(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let (ann, bob) = (Caller::user(1000, 100), Caller::user(1001, 100));
    meta.quota_set(QuotaKey::User(1000), inodes(1), false).await.unwrap();
    try_create(&meta, &ann, ROOT, "a").await.unwrap();
    assert_full(&try_create(&meta, &ann, ROOT, "b").await);
    try_create(&meta, &bob, ROOT, "b").await.unwrap();
    meta.flush().await.unwrap();
    assert_eq!(stored(&store, QuotaKey::User(1000)).await, (PAGE, 1));
    assert_eq!(stored(&store, QuotaKey::User(1001)).await, (PAGE, 1));
    assert_eq!(stored(&store, QuotaKey::Group(100)).await, (2 * PAGE, 2));
    meta.unlink_with(&ann, ROOT, &name("a"), true).await.unwrap();
    try_create(&meta, &ann, ROOT, "c").await.unwrap();
    meta.close().await.unwrap();
}

async fn a_group_is_limited_by_the_group_of_the_new_node(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let staff = Caller::user(1000, 100);
    let made = meta.mkdir(&Caller::user(0, 200), ROOT, &name("setgid"), 0o2777, 0).await;
    let dir = made.unwrap().0;
    meta.quota_set(QuotaKey::Group(200), inodes(2), false).await.unwrap();
    try_create(&meta, &staff, dir, "a").await.unwrap();
    assert_full(&try_create(&meta, &staff, dir, "b").await);
    try_create(&meta, &staff, ROOT, "b").await.unwrap();
    meta.close().await.unwrap();
}

async fn the_first_owner_quota_counts_the_whole_volume(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let ann = Caller::user(1000, 100);
    let dir = meta.mkdir(&ann, ROOT, &name("d"), 0o777, 0).await.unwrap().0;
    let file = try_create(&meta, &ann, dir, "f").await.unwrap();
    meta.link(&ann, file, dir, &name("g")).await.unwrap();
    meta.symlink(&ann, dir, &name("s"), "f".into()).await.unwrap();
    try_create(&meta, &ann, dir, "t").await.unwrap();
    meta.unlink(&ann, dir, &name("t")).await.unwrap();
    meta.quota_set(QuotaKey::User(1000), inodes(4), false).await.unwrap();
    assert!(meta.context().setting().user_group_quota);
    assert_eq!(used(&meta, QuotaKey::User(1000)), (4 * PAGE, 4));
    assert_eq!(stored(&store, QuotaKey::Group(100)).await, (4 * PAGE, 4));
    assert_full(&try_create(&meta, &ann, dir, "more").await);
    assert!(meta.quota_check_owners(false).await.unwrap().is_empty());
    meta.close().await.unwrap();
}

async fn a_deleted_owner_quota_still_counts(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let ann = Caller::user(1000, 100);
    meta.quota_set(QuotaKey::User(1000), inodes(1), false).await.unwrap();
    try_create(&meta, &ann, ROOT, "a").await.unwrap();
    meta.flush().await.unwrap();
    meta.quota_delete(QuotaKey::User(1000)).await.unwrap();
    try_create(&meta, &ann, ROOT, "b").await.unwrap();
    meta.flush().await.unwrap();
    assert_eq!(stored(&store, QuotaKey::User(1000)).await, (2 * PAGE, 2));
    assert!(meta.quota_list().await.unwrap().is_empty());
    meta.close().await.unwrap();
}

async fn usage_moves_to_a_new_owner(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    meta.quota_set(QuotaKey::User(1000), inodes(9), false).await.unwrap();
    let file = try_create(&meta, &Caller::user(1000, 100), ROOT, "f").await.unwrap();
    let set = jfs::meta::AttrSet { uid: Some(1001), gid: Some(101), ..Default::default() };
    meta.setattr(&Caller::root(), file, set).await.unwrap();
    assert_eq!(used(&meta, QuotaKey::User(1000)), (0, 0));
    assert_eq!(used(&meta, QuotaKey::User(1001)), (PAGE, 1));
    assert_eq!(used(&meta, QuotaKey::Group(100)), (0, 0));
    assert_eq!(used(&meta, QuotaKey::Group(101)), (PAGE, 1));
    assert!(meta.quota_check_owners(false).await.unwrap().is_empty());
    meta.close().await.unwrap();
}

async fn wrong_owner_usage_is_found_and_repaired(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    meta.quota_set(QuotaKey::User(1000), inodes(9), false).await.unwrap();
    try_create(&meta, &Caller::user(1000, 100), ROOT, "f").await.unwrap();
    meta.flush().await.unwrap();
    let wrong = Quota { max_space: -1, max_inodes: 9, used_space: 5, used_inodes: 5 };
    meta.engine().put_quota(QuotaKey::User(1000), &wrong, true).await.unwrap();
    meta.engine()
        .put_quota(QuotaKey::Group(7), &Quota { max_inodes: -1, max_space: -1, ..wrong }, true)
        .await
        .unwrap();
    let found = meta.quota_check_owners(false).await.unwrap();
    let keys: Vec<_> = found.iter().map(|check| check.key).collect();
    assert_eq!(keys, [QuotaKey::User(1000), QuotaKey::Group(7)]);
    meta.quota_check_owners(true).await.unwrap();
    assert!(meta.quota_check_owners(false).await.unwrap().is_empty());
    let quota = meta.quota(QuotaKey::User(1000)).await.unwrap().unwrap();
    assert_eq!((quota.max_inodes, quota.used_inodes), (9, 1));
    assert_eq!(stored(&store, QuotaKey::Group(7)).await, (0, 0));
    meta.close().await.unwrap();
}
