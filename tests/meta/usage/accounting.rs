//! Usage of the volume, of directories and of subtrees, and paths of nodes.

use crate::on_every_store;
use crate::support::store::{Store, quiet};
use jfs::error::Error;
use jfs::meta::client::{StatFs, Summary};
use jfs::meta::record::{Counter, DirStat, Setting};
use jfs::meta::{Caller, EntryRef, Ino, Meta, Name, Options, RenameMode};

on_every_store! {
    volume_usage_is_sent_to_the_store,
    usage_is_sent_at_close,
    a_dir_stat_counts_its_entries,
    stats_of_several_changes_add_up,
    a_missing_stat_is_counted,
    regression_entries_created_during_the_first_count_of_the_root_count_once,
    a_stat_that_would_turn_negative_is_counted,
    regression_usage_that_another_client_has_not_sent_counts_once,
    a_removed_directory_gets_no_stat,
    disabled_stats_are_not_kept,
    enabling_stats_drops_old_ones,
    a_read_only_client_counts_without_storing,
    usage_stored_by_another_client_is_seen,
    a_summary_adds_up_a_subtree,
    a_summary_of_a_file_counts_the_file,
    wrong_stats_are_found_and_repaired,
    statfs_shows_a_volume_without_limits_as_large,
    statfs_shows_capacity_and_inodes,
    paths_lead_to_nodes_and_back,
    a_path_through_a_file_is_refused,
    directories_of_a_path_are_created_once,
    a_node_is_below_a_directory_by_any_of_its_names,
}

const ROOT: Ino = Ino::ROOT;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

async fn mkdir(meta: &Meta, dir: Ino, text: &str) -> Ino {
    meta.mkdir(&Caller::root(), dir, &name(text), 0o755, 0).await.unwrap().0
}

async fn create(meta: &Meta, dir: Ino, text: &str) -> Ino {
    let node = jfs::meta::client::NodeKind { kind: jfs::meta::record::FileKind::File, rdev: 0 };
    meta.mknod(&Caller::root(), dir, &name(text), node, 0o644, 0).await.unwrap().0
}

async fn unlink(meta: &Meta, dir: Ino, text: &str) {
    meta.unlink_with(&Caller::root(), dir, &name(text), true).await.unwrap();
}

async fn stored_usage(store: &Store) -> (i64, i64) {
    let engine = store.engine().await;
    let space = engine.counter(Counter::UsedSpace).await.unwrap();
    (space, engine.counter(Counter::TotalInodes).await.unwrap())
}

/// The stored dir stat of a directory, without counting it if it is missing.
async fn stored_stat(store: &Store, dir: Ino) -> Option<DirStat> {
    use jfs::meta::engine::{Key, Record};
    match store.engine().await.read(&[Key::DirStat(dir)]).await.unwrap().remove(0) {
        Record::DirStat(stat) => stat,
        other => panic!("{other:?}"),
    }
}

fn stat(length: i64, pages: i64, inodes: i64) -> DirStat {
    DirStat { length, space: pages * 4096, inodes }
}

// The volume.

async fn volume_usage_is_sent_to_the_store(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, dir, "f").await;
    assert_eq!(meta.context().usage.now(), (8192, 2));
    meta.flush_usage().await.unwrap();
    meta.flush_usage().await.unwrap();
    assert_eq!(stored_usage(&store).await, (8192, 2));
    unlink(&meta, dir, "f").await;
    meta.flush_usage().await.unwrap();
    assert_eq!(stored_usage(&store).await, (4096, 1));
    assert_eq!(meta.context().usage.now(), (4096, 1));
    meta.close().await.unwrap();
}

async fn usage_is_sent_at_close(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    mkdir(&meta, ROOT, "d").await;
    meta.close().await.unwrap();
    assert_eq!(stored_usage(&store).await, (4096, 1));
    assert_eq!(stored_stat(&store, ROOT).await, Some(stat(0, 1, 1)));
}

// Directories.

async fn a_dir_stat_counts_its_entries(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, dir, "f").await;
    mkdir(&meta, dir, "sub").await;
    assert_eq!(meta.dir_stat(dir).await.unwrap(), stat(0, 2, 2));
    meta.flush_dir_stats().await.unwrap();
    assert_eq!(stored_stat(&store, dir).await, Some(stat(0, 2, 2)));
    assert_eq!(meta.dir_stat(dir).await.unwrap(), stat(0, 2, 2));
    meta.close().await.unwrap();
}

async fn stats_of_several_changes_add_up(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let (one, two) = (mkdir(&meta, ROOT, "one").await, mkdir(&meta, ROOT, "two").await);
    for i in 0..10 {
        create(&meta, one, &format!("f{i}")).await;
    }
    for i in 0..4 {
        let (from, to) = (name(&format!("f{i}")), name(&format!("g{i}")));
        let (from, to) = (EntryRef::new(one, &from), EntryRef::new(two, &to));
        meta.rename(&Caller::root(), from, to, RenameMode::Replace).await.unwrap();
    }
    unlink(&meta, one, "f9").await;
    meta.flush().await.unwrap();
    assert_eq!(stored_stat(&store, one).await, Some(stat(0, 5, 5)));
    assert_eq!(stored_stat(&store, two).await, Some(stat(0, 4, 4)));
    assert_eq!(stored_stat(&store, ROOT).await, Some(stat(0, 2, 2)));
    assert!(meta.check_dir_stats(ROOT, false).await.unwrap().is_empty());
    meta.close().await.unwrap();
}

async fn a_missing_stat_is_counted(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, dir, "a").await;
    meta.flush().await.unwrap();
    meta.engine().clear_dir_stats().await.unwrap();
    create(&meta, dir, "b").await;
    meta.flush_dir_stats().await.unwrap();
    assert_eq!(stored_stat(&store, dir).await, Some(stat(0, 2, 2)));
    assert!(meta.counts().recounts() > 0);
    meta.engine().clear_dir_stats().await.unwrap();
    assert_eq!(meta.dir_stat(dir).await.unwrap(), stat(0, 2, 2));
    assert_eq!(stored_stat(&store, dir).await, Some(stat(0, 2, 2)));
    meta.close().await.unwrap();
}

/// The root of a new volume has no record, so the first flush would count it while others create
/// entries.
async fn regression_entries_created_during_the_first_count_of_the_root_count_once(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let makers: Vec<_> = (0..4)
        .map(|maker| {
            let meta = std::sync::Arc::clone(&meta);
            tokio::spawn(async move {
                for number in 0..25 {
                    create(&meta, ROOT, &format!("{maker}-{number}")).await;
                }
            })
        })
        .collect();
    while !makers.iter().all(tokio::task::JoinHandle::is_finished) {
        meta.flush_dir_stats().await.unwrap();
    }
    for maker in makers {
        maker.await.unwrap();
    }
    meta.flush_dir_stats().await.unwrap();
    assert_eq!(stored_stat(&store, ROOT).await, Some(stat(0, 100, 100)));
    meta.close().await.unwrap();
}

async fn a_stat_that_would_turn_negative_is_counted(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, dir, "a").await;
    create(&meta, dir, "b").await;
    meta.flush().await.unwrap();
    meta.engine().put_dir_stat(dir, &stat(0, 0, 0)).await.unwrap();
    unlink(&meta, dir, "a").await;
    meta.flush_dir_stats().await.unwrap();
    assert_eq!(stored_stat(&store, dir).await, Some(stat(0, 1, 1)));
    meta.close().await.unwrap();
}

async fn regression_usage_that_another_client_has_not_sent_counts_once(store: Store) {
    store.format(|_| {}).await;
    let (one, two) = (store.start().await, store.start().await);
    let dir = mkdir(&one, ROOT, "d").await;
    one.flush().await.unwrap();
    for file in ["a", "b", "c"] {
        create(&one, dir, file).await;
    }
    unlink(&two, dir, "a").await;
    let flush = tokio::spawn(async move { two.flush_dir_stats().await.map(|()| two) });
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    one.flush_dir_stats().await.unwrap();
    let two = flush.await.unwrap().unwrap();
    assert_eq!(stored_stat(&store, dir).await, Some(stat(0, 2, 2)));
    assert_eq!(two.counts().recounts(), 0);
    one.close().await.unwrap();
    two.close().await.unwrap();
}

async fn a_removed_directory_gets_no_stat(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, dir, "a").await;
    unlink(&meta, dir, "a").await;
    meta.rmdir_with(&Caller::root(), ROOT, &name("d"), true).await.unwrap();
    meta.flush().await.unwrap();
    assert_eq!(stored_stat(&store, dir).await, None);
    assert_eq!(meta.dir_stat(ROOT).await.unwrap(), stat(0, 0, 0));
    meta.close().await.unwrap();
}

async fn disabled_stats_are_not_kept(store: Store) {
    store.format(|setting| setting.dir_stats = false).await;
    let meta = store.start().await;
    create(&meta, ROOT, "f").await;
    meta.flush().await.unwrap();
    assert_eq!(stored_stat(&store, ROOT).await, None);
    assert!(meta.check_dir_stats(ROOT, false).await.is_err());
    let sum = meta.summary(ROOT, false).await.unwrap();
    assert_eq!(sum, Summary { files: 1, dirs: 1, length: 0, size: 8192 });
    meta.close().await.unwrap();
}

async fn enabling_stats_drops_old_ones(store: Store) {
    let setting = store.format(|setting| setting.dir_stats = false).await;
    let meta = store.start().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    create(&meta, dir, "f").await;
    meta.engine().put_dir_stat(dir, &stat(0, 9, 9)).await.unwrap();
    meta.init(Setting { dir_stats: true, ..setting }, false).await.unwrap();
    assert_eq!(stored_stat(&store, dir).await, None);
    assert_eq!(meta.dir_stat(dir).await.unwrap(), stat(0, 1, 1));
    meta.close().await.unwrap();
}

async fn a_read_only_client_counts_without_storing(store: Store) {
    store.format(|_| {}).await;
    let writer = store.start().await;
    let dir = mkdir(&writer, ROOT, "d").await;
    create(&writer, dir, "f").await;
    writer.close().await.unwrap();
    store.engine().await.clear_dir_stats().await.unwrap();
    let reader = store.start_with(Options { read_only: true, ..quiet() }).await;
    assert_eq!(reader.dir_stat(dir).await.unwrap(), stat(0, 1, 1));
    assert_eq!(stored_stat(&store, dir).await, None);
    reader.close().await.unwrap();
}

async fn usage_stored_by_another_client_is_seen(store: Store) {
    store.format(|_| {}).await;
    let (one, two) = (store.start().await, store.start().await);
    let dir = mkdir(&one, ROOT, "d").await;
    create(&one, dir, "a").await;
    create(&two, dir, "b").await;
    one.flush().await.unwrap();
    two.flush().await.unwrap();
    assert_eq!(one.dir_stat(dir).await.unwrap(), stat(0, 2, 2));
    one.heartbeat().await.unwrap();
    assert_eq!(one.context().usage.now(), (3 * 4096, 3));
    one.close().await.unwrap();
    two.close().await.unwrap();
    assert_eq!(stored_usage(&store).await, (3 * 4096, 3));
}

// Subtrees.

async fn a_summary_adds_up_a_subtree(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let top = mkdir(&meta, ROOT, "top").await;
    create(&meta, ROOT, "outside").await;
    for i in 0..5 {
        let dir = mkdir(&meta, top, &format!("d{i}")).await;
        for j in 0..7 {
            create(&meta, dir, &format!("f{j}")).await;
        }
        mkdir(&meta, dir, "deep").await;
    }
    meta.symlink(&Caller::root(), top, &name("link"), "target".into()).await.unwrap();
    let want = Summary { files: 36, dirs: 11, length: 0, size: 47 * 4096 };
    assert_eq!(meta.summary(top, true).await.unwrap(), want);
    assert_eq!(meta.summary(top, false).await.unwrap(), want);
    meta.flush().await.unwrap();
    assert_eq!(meta.summary(top, false).await.unwrap(), want);
    meta.close().await.unwrap();
}

async fn a_summary_of_a_file_counts_the_file(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let file = create(&meta, ROOT, "f").await;
    let want = Summary { files: 1, dirs: 0, length: 0, size: 4096 };
    assert_eq!(meta.summary(file, false).await.unwrap(), want);
    let missing = meta.summary(Ino(99_999), false).await;
    assert!(matches!(missing, Err(Error::NotFound)), "{missing:?}");
    meta.close().await.unwrap();
}

async fn wrong_stats_are_found_and_repaired(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let (one, two) = (mkdir(&meta, ROOT, "one").await, mkdir(&meta, ROOT, "two").await);
    create(&meta, one, "f").await;
    meta.flush().await.unwrap();
    meta.engine().put_dir_stat(one, &stat(7, 7, 7)).await.unwrap();
    let wrong = meta.check_dir_stats(ROOT, false).await.unwrap();
    assert_eq!(wrong.len(), 1);
    assert_eq!((wrong[0].dir, wrong[0].stored), (one, Some(stat(7, 7, 7))));
    assert_eq!(wrong[0].counted, stat(0, 1, 1));
    assert_eq!(meta.check_dir_stats(two, true).await.unwrap(), []);
    assert_eq!(meta.check_dir_stats(ROOT, true).await.unwrap().len(), 1);
    assert_eq!(stored_stat(&store, one).await, Some(stat(0, 1, 1)));
    assert_eq!(meta.check_dir_stats(ROOT, false).await.unwrap(), []);
    meta.close().await.unwrap();
}

async fn statfs_shows_a_volume_without_limits_as_large(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    create(&meta, ROOT, "f").await;
    let stat = meta.statfs(ROOT).await.unwrap();
    let want = StatFs {
        total: 1 << 50,
        available: (1 << 50) - 4096,
        used_inodes: 1,
        available_inodes: 10 << 20,
    };
    assert_eq!(stat, want);
    meta.close().await.unwrap();
}

async fn statfs_shows_capacity_and_inodes(store: Store) {
    store.format(|setting| (setting.capacity, setting.inodes) = (1 << 20, 10)).await;
    let meta = store.start_with(Options { fast_statfs: true, ..quiet() }).await;
    create(&meta, ROOT, "f").await;
    let stat = meta.statfs(ROOT).await.unwrap();
    let want =
        StatFs { total: 1 << 20, available: (1 << 20) - 4096, used_inodes: 1, available_inodes: 9 };
    assert_eq!(stat, want);
    meta.close().await.unwrap();
}

// Paths.

async fn paths_lead_to_nodes_and_back(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let a = mkdir(&meta, ROOT, "a").await;
    let b = mkdir(&meta, a, "b").await;
    let file = create(&meta, b, "f").await;
    meta.link(&Caller::root(), file, a, &name("g")).await.unwrap();
    for (path, ino) in [
        ("/", ROOT),
        ("", ROOT),
        ("/a/b", b),
        ("a//b/", b),
        ("./a/./b/f", file),
        ("/a/g", file),
        ("/.trash", Ino::TRASH),
    ] {
        assert_eq!(meta.resolve(path).await.unwrap().0, ino, "{path}");
    }
    assert_eq!(meta.paths(ROOT).await.unwrap(), ["/"]);
    assert_eq!(meta.paths(b).await.unwrap(), ["/a/b"]);
    assert_eq!(meta.paths(file).await.unwrap(), ["/a/b/f", "/a/g"]);
    assert_eq!(meta.paths(Ino::TRASH).await.unwrap(), ["/.trash"]);
    meta.close().await.unwrap();
}

async fn a_path_through_a_file_is_refused(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    create(&meta, ROOT, "f").await;
    assert!(matches!(meta.resolve("/f/x").await, Err(Error::NotDirectory)));
    assert!(matches!(meta.resolve("/x").await, Err(Error::NotFound)));
    assert!(matches!(meta.resolve("/f/../f").await, Err(Error::BadInput(_))));
    assert!(matches!(meta.ensure_dir("/f/x").await, Err(Error::NotDirectory)));
    meta.close().await.unwrap();
}

async fn directories_of_a_path_are_created_once(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let dir = meta.ensure_dir("/pvc/one").await.unwrap();
    assert_eq!(meta.resolve("/pvc/one").await.unwrap().0, dir);
    assert_eq!(meta.getattr(dir).await.unwrap().mode, 0o777);
    assert_eq!(meta.ensure_dir("pvc//one/").await.unwrap(), dir);
    assert!(matches!(meta.ensure_dir("/.trash").await, Err(Error::BadInput(_))));
    meta.close().await.unwrap();
}

async fn a_node_is_below_a_directory_by_any_of_its_names(store: Store) {
    store.format(|_| {}).await;
    let meta = store.start().await;
    let (one, two) = (mkdir(&meta, ROOT, "one").await, mkdir(&meta, ROOT, "two").await);
    let (inside, outside) = (create(&meta, one, "f").await, create(&meta, two, "f").await);
    assert!(meta.is_below(one, inside).await.unwrap() && meta.is_below(one, one).await.unwrap());
    assert!(!meta.is_below(one, outside).await.unwrap());
    assert!(!meta.is_below(one, ROOT).await.unwrap() && !meta.is_below(one, two).await.unwrap());
    meta.link(&Caller::root(), outside, one, &name("g")).await.unwrap();
    assert!(meta.is_below(one, outside).await.unwrap());
    let paths = meta.paths_below(one, outside).await.unwrap();
    assert_eq!(paths, [Some("/g".to_owned()), None]);
    meta.close().await.unwrap();
}

// A failed flush is repeated.

#[tokio::test]
async fn usage_that_cannot_be_sent_stays_unsent() {
    use jfs::meta::engine::kv::memory::{Fault, MemoryStore};
    let store = Store::memory();
    store.format(|_| {}).await;
    // Not started, so that no task flushes; the heartbeat loads the quotas.
    let meta = store.open().await;
    let dir = mkdir(&meta, ROOT, "d").await;
    let key = jfs::meta::record::QuotaKey::Dir(dir);
    let limits = jfs::meta::client::Limits { space: Some(1 << 20), inodes: None };
    meta.quota_set(key, limits, false).await.unwrap();
    meta.flush().await.unwrap();
    create(&meta, dir, "f").await;

    let memory = MemoryStore::named(store.url().trim_start_matches("memkv://"));
    for _ in 0..3 {
        memory.faults().push(Fault::LostUnapplied);
    }
    assert!(meta.flush_usage().await.is_err());
    assert!(meta.flush_dir_stats().await.is_err());
    assert!(meta.flush_quotas().await.is_err());
    assert_eq!(stored_usage(&store).await, (4096, 1));
    assert_eq!(stored_stat(&store, dir).await, Some(stat(0, 0, 0)));

    meta.flush().await.unwrap();
    assert_eq!(stored_usage(&store).await, (8192, 2));
    assert_eq!(stored_stat(&store, dir).await, Some(stat(0, 1, 1)));
    let quota = meta.engine().quota(key).await.unwrap().unwrap();
    assert_eq!((quota.used_space, quota.used_inodes), (4096, 1));
    meta.close().await.unwrap();
}
