//! Trees that are deep, damaged or no trees at all: every walk through them ends.

use std::fmt::Write;
use std::time::Instant;

use jfs::Error;
use jfs::meta::client::{Limits, Progress, Removal, TreeSummaryOptions};
use jfs::meta::engine::{Change, Key, Record};
use jfs::meta::record::{Attr, DirStat, Entry, FileKind, QuotaKey};
use jfs::meta::{
    Caller, CloneMode, EntryRef, Ino, Meta, NodeKind, Options, Registration, RenameMode, Timestamp,
};

use crate::support::fixture::long;
use crate::support::records::{put_node, stored, stored_attr};
use crate::support::redis::RedisServer;
use crate::support::tree::{Tree, name, refused};
use crate::support::volume::{Volume, setting, setting_with_trash};

/// Levels of a deep tree; recursive futures overflow a stack at some hundreds.
const DEEP: u64 = 20_000;
const MODE: CloneMode = CloneMode { preserve: true, umask: 0 };

crate::on_every_engine! { super::setting();
    a_directory_that_is_listed_below_itself_is_not_entered,
    directories_in_a_cycle_are_skipped,
    a_directory_with_two_names_is_removed_once,
    a_removal_skips_directories_with_another_parent,
    an_entry_whose_directory_is_missing_is_removed,
}

fn dir_in(parent: Ino, nlink: u32) -> Attr {
    let attr = Attr::new(FileKind::Dir, 0o755, 0, 0, parent, Timestamp::from_secs(1_000_000));
    Attr { nlink, ..attr }
}

fn entry(dir: Ino, at: &str, ino: Ino) -> Change {
    Change::PutEntry(dir, name(at), Entry { kind: FileKind::Dir, ino })
}

async fn commit(meta: &Meta, changes: &[Change]) {
    meta.engine().begin().commit(changes).await.unwrap();
}

/// Creates nested directories; returns the deepest.
async fn nest_dirs(meta: &Meta, top: Ino, levels: u64) -> Ino {
    let first = 1_000_000;
    let mut changes = vec![
        Change::TouchDir { ino: top, links: 1, at: None },
        Change::PutDirStat(top, DirStat { length: 0, space: 4096, inodes: 1 }),
    ];
    let mut above = top;
    for level in 0..levels {
        let ino = Ino(first + level);
        changes.push(entry(above, "d", ino));
        changes.push(Change::PutAttr(ino, dir_in(above, if level + 1 == levels { 2 } else { 3 })));
        let inodes = i64::from(level + 1 != levels);
        changes.push(Change::PutDirStat(ino, DirStat { length: 0, space: 4096 * inodes, inodes }));
        above = ino;
        if changes.len() >= 3000 {
            commit(meta, &std::mem::take(&mut changes)).await;
        }
    }
    commit(meta, &changes).await;
    above
}

#[tokio::test]
async fn a_deep_tree_is_summarized_cloned_compacted_and_removed() {
    let vol = Volume::memory_with(setting()).await;
    run_on_deep_tree(&vol, DEEP).await;
}

/// With `--nocapture`, it prints what each depth costs.
#[tokio::test]
async fn the_cost_per_level_does_not_grow_with_depth_on_any_engine() {
    let depths = if long() { [25_000, 50_000, 100_000] } else { [200, 400, 800] };
    for levels in depths {
        for vol in [
            Volume::memory_with(setting()).await,
            Volume::sqlite_with(setting()).await,
            Volume::redis_with(setting()).await,
        ] {
            let took = run_on_deep_tree(&vol, levels).await;
            println!("{levels} levels, {}: {took}", vol.meta.engine().name());
        }
    }
}

/// All operations on a deep tree; returns how long each took.
async fn run_on_deep_tree(vol: &Volume, levels: u64) -> String {
    let (meta, root) = (&vol.meta, Caller::root());
    let mut took = String::new();
    let mut begun = Instant::now();
    let mut record = |what: &str| {
        let _ = write!(took, "{what} {:.2} s, ", begun.elapsed().as_secs_f64());
        begun = Instant::now();
    };
    let top = meta.dir("top").await;
    let bottom = nest_dirs(meta, top, levels).await;
    record("nested directories");
    for strict in [false, true] {
        let sum = meta.summary(top, strict).await.unwrap();
        assert_eq!((sum.files, sum.dirs), (0, levels + 1), "strict: {strict}");
    }
    record("summed twice");
    let how = TreeSummaryOptions { depth: 255, top: 255, strict: false };
    let tree = meta.tree_summary(&root, top, how, &Progress::default()).await.unwrap();
    assert_eq!(tree.dirs, levels + 1);
    record("summary");
    let paths = meta.paths(bottom).await.unwrap();
    assert_eq!(paths, [format!("/top{}", "/d".repeat(usize::try_from(levels).unwrap()))]);
    assert!(meta.is_below(top, bottom).await.unwrap());
    record("paths");
    meta.compact_tree(&root, top, 4, &Progress::default()).await.unwrap();
    record("compacted");
    let copy = name("copy");
    let to = EntryRef::new(Ino::ROOT, &copy);
    let copy = meta.clone_tree(&root, top, to, MODE, 0, &Progress::default()).await.unwrap();
    record("cloned");
    assert_eq!(meta.summary(copy, true).await.unwrap().dirs, levels + 1);
    record("summed again");
    for tree in ["top", "copy"] {
        let removed = meta.remove_tree(&root, Ino::ROOT, &name(tree), true).await.unwrap();
        assert_eq!(removed, levels + 1);
        record("removed");
    }
    assert!(meta.names("").await.is_empty());
    assert!(meta.getattr(bottom).await.is_err());
    took
}

#[tokio::test]
async fn a_quota_counts_usage_at_any_depth() {
    let vol = Volume::memory_with(setting()).await;
    let (meta, root) = (&vol.meta, Caller::root());
    let top = meta.dir("top").await;
    let limits = Limits { space: None, inodes: Some(6000) };
    meta.quota_set(QuotaKey::Dir(top), limits, false).await.unwrap();
    let mut dir = top;
    for _ in 0..6000 {
        dir = meta.mkdir(&root, dir, &name("d"), 0o755, 0).await.unwrap().0;
    }
    meta.flush_quotas().await.unwrap();
    let quota = meta.quota(QuotaKey::Dir(top)).await.unwrap().unwrap();
    assert_eq!((quota.used_inodes, quota.used_space), (6000, 6000 * 4096));
    let full = meta.mkdir(&root, dir, &name("d"), 0o755, 0).await;
    assert!(matches!(refused(full), Error::QuotaExceeded));
}

async fn within(job: &str, work: impl Future<Output = ()>) {
    let patience = std::time::Duration::from_mins(1);
    tokio::time::timeout(patience, work).await.unwrap_or_else(|_| panic!("{job} does not end"));
}

/// All operations that walk a tree.
async fn walk_all(meta: &Meta, top: Ino) {
    let (root, progress) = (Caller::root(), Progress::default());
    within("a summary", async {
        let _ = meta.summary(top, false).await.unwrap();
    })
    .await;
    within("a strict summary", async {
        let _ = meta.summary(top, true).await.unwrap();
    })
    .await;
    let how = TreeSummaryOptions { depth: 3, top: 10, strict: false };
    let work = meta.tree_summary(&root, top, how, &progress);
    within("a summary of a tree", async {
        let _ = work.await.unwrap();
    })
    .await;
    let work = meta.compact_tree(&root, top, 4, &progress);
    within("compaction", async { work.await.unwrap() }).await;
    within("dir stats", async {
        let _ = meta.check_dir_stats(top, false).await.unwrap();
    })
    .await;
    let at = name("copy");
    let work = meta.clone_tree(&root, top, EntryRef::new(Ino::ROOT, &at), MODE, 0, &progress);
    within("a clone", async {
        let _ = work.await.unwrap();
    })
    .await;
    let work = meta.remove_tree(&root, Ino::ROOT, &at, true);
    within("removing the clone", async {
        let _ = work.await.unwrap();
    })
    .await;
}

async fn a_directory_that_is_listed_below_itself_is_not_entered(vol: Volume) {
    let meta = &vol.meta;
    let (top, below) = (meta.dir("top").await, meta.dir("top/below").await);
    meta.file("top/below/f").await;
    commit(meta, &[entry(below, "loop", top), entry(below, "self", below)]).await;
    walk_all(meta, top).await;
    within("a removal", async {
        meta.remove_tree(&Caller::root(), Ino::ROOT, &name("top"), true).await.unwrap();
    })
    .await;
    assert!(meta.names("").await.is_empty());
}

async fn directories_in_a_cycle_are_skipped(vol: Volume) {
    let meta = &vol.meta;
    let limits = Limits { space: None, inodes: Some(1000) };
    meta.quota_set(QuotaKey::Dir(Ino::ROOT), limits, false).await.unwrap();
    let (a, b) = (Ino(1_000_001), Ino(1_000_002));
    put_node(meta, a, &dir_in(b, 3)).await;
    put_node(meta, b, &dir_in(a, 3)).await;
    commit(meta, &[entry(a, "b", b), entry(b, "a", a)]).await;
    let client = vol.client().await;
    within("creating in a cycle", async {
        let _ = client.mkdir(&Caller::root(), a, &name("new"), 0o755, 0).await;
        client.flush().await.unwrap();
    })
    .await;
    within("looking for paths", async {
        assert_eq!(client.paths(b).await.unwrap(), Vec::<String>::new());
        assert!(!client.is_below(Ino(5), b).await.unwrap());
    })
    .await;
    let dir = meta.dir("dir").await;
    let (root, at) = (Caller::root(), name("dir"));
    let moved = Box::pin(client.rename(
        &root,
        EntryRef::new(Ino::ROOT, &at),
        EntryRef::new(b, &at),
        RenameMode::Replace,
    ));
    within("moving into a cycle", async {
        let _ = moved.await;
    })
    .await;
    assert!(meta.getattr(dir).await.is_ok());
    // With an entry in the root, the cycle is a tree whose top is listed below itself.
    commit(meta, &[entry(Ino::ROOT, "cycle", a)]).await;
    within("adding it up", async {
        let _ = client.summary(a, true).await.unwrap();
    })
    .await;
    within("removing it", async {
        let _ = client.remove_tree(&Caller::root(), Ino::ROOT, &name("cycle"), true).await;
    })
    .await;
}

async fn a_directory_with_two_names_is_removed_once(vol: Volume) {
    let meta = &vol.meta;
    let top = meta.dir("top").await;
    let twice = meta.dir("top/twice").await;
    meta.file("top/twice/f").await;
    commit(meta, &[entry(top, "again", twice)]).await;
    within("a removal", async {
        meta.remove_tree(&Caller::root(), Ino::ROOT, &name("top"), true).await.unwrap();
    })
    .await;
    assert!(meta.names("").await.is_empty());
}

async fn a_removal_skips_directories_with_another_parent(vol: Volume) {
    let meta = &vol.meta;
    let top = meta.dir("top").await;
    let other = meta.dir("other").await;
    meta.file("other/f").await;
    commit(meta, &[entry(top, "foreign", other), entry(top, "root", Ino::ROOT)]).await;
    meta.remove_tree(&Caller::root(), Ino::ROOT, &name("top"), true).await.unwrap();
    assert_eq!(meta.names("").await, ["other"]);
    assert_eq!(meta.names("other").await, ["f"]);
}

async fn an_entry_whose_directory_is_missing_is_removed(vol: Volume) {
    let meta = &vol.meta;
    let top = meta.dir("top").await;
    commit(meta, &[entry(top, "lost", Ino(1_234_567))]).await;
    meta.remove_tree(&Caller::root(), Ino::ROOT, &name("top"), true).await.unwrap();
    assert!(meta.names("").await.is_empty());
}

/// A volume on a Redis server whose records can be written past every check.
async fn raw() -> (Volume, impl Fn(&str) -> String) {
    let vol = Volume::redis_with(setting()).await;
    let database = vol.url.rsplit('/').next().unwrap().to_owned();
    let ask =
        move |command: &str| RedisServer::shared().ask(&format!("SELECT {database}\r\n{command}"));
    (vol, ask)
}

fn raw_entry(kind: u8, ino: Ino) -> String {
    let bytes = [&[kind][..], &ino.0.to_be_bytes()].concat();
    bytes.iter().fold(String::new(), |text, byte| format!("{text}\\x{byte:02x}"))
}

#[tokio::test]
async fn invalid_names_are_not_listed_and_are_removed_with_their_directory() {
    let (vol, ask) = raw().await;
    let meta = &vol.meta;
    let (top, other) = (meta.dir("top").await, meta.dir("other").await);
    meta.file("other/f").await;
    meta.file("top/f").await;
    // As a clone to the name `..` once left it: a directory of its own.
    let own = Ino(1_000_001);
    put_node(meta, own, &dir_in(top, 2)).await;
    for (at, kind, ino) in [
        ("..", 2, own),
        (".", 2, other),
        ("", 1, Ino(1_000_002)),
        ("a/b", 2, Ino::ROOT),
        ("nul\\x00", 1, Ino(1_000_003)),
    ] {
        ask(&format!("HSET d{top} \"{at}\" \"{}\"", raw_entry(kind, ino)));
    }
    ask(&format!("HSET d{top} {} \"{}\"", "x".repeat(300), raw_entry(1, Ino(1_000_004))));
    ask(&format!("HSET d{top} damaged \"\\x01\\x02\""));
    assert_eq!(meta.names("top").await, ["f"]);
    let sum = meta.summary(top, true).await.unwrap();
    assert_eq!((sum.files, sum.dirs), (1, 1));
    let removed = within("a removal", async {
        meta.remove_tree(&Caller::root(), Ino::ROOT, &name("top"), true).await.unwrap();
    });
    removed.await;
    assert_eq!(meta.names("").await, ["other"]);
    assert_eq!(meta.names("other").await, ["f"]);
    assert_eq!(stored(meta, Key::Attr(own)).await, Record::Attr(None), "its directory is gone");
}

#[tokio::test]
async fn a_damaged_attr_or_entry_hides_nothing_else() {
    let (vol, ask) = raw().await;
    let meta = &vol.meta;
    let top = meta.dir("top").await;
    for number in 0..20 {
        meta.file(&format!("top/f{number}")).await;
    }
    let (bad, good) = (meta.ino("top/f7").await, meta.ino("top/f8").await);
    ask(&format!("SET i{bad} \"\\x01\\x02\\x03\""));
    ask(&format!("HSET d{top} f9 oops"));
    let meta = &vol.client_with(Options::default()).await;
    let listed = meta.entries(top, true).await.unwrap();
    assert_eq!(listed.len(), 19);
    for entry in &listed {
        assert_eq!(entry.attr.is_some(), entry.ino != bad, "{}", entry.name);
    }
    assert!(meta.getattr(good).await.is_ok());
    // Other entries are removed with their directory, and so are these.
    meta.remove_tree(&Caller::root(), Ino::ROOT, &name("top"), true).await.unwrap();
    assert!(meta.names("").await.is_empty());
}

#[tokio::test]
async fn a_failure_in_one_trash_hour_does_not_block_the_others() {
    let vol = Volume::memory_with(setting_with_trash()).await;
    let meta = &vol.meta;
    for number in 0..50 {
        meta.file(&format!("f{number}")).await;
    }
    let kept = meta.ino("f20").await;
    for number in 0..50 {
        meta.rm(&format!("f{number}")).await.unwrap();
    }
    let attr = stored_attr(meta, kept).await;
    let frozen = Attr { flags: jfs::meta::record::attr::flag::IMMUTABLE, ..attr };
    put_node(meta, kept, &frozen).await;
    let now = Timestamp::now().sec;
    let outcome = meta.clean_trash_before(now + 7200).await;
    assert!(matches!(refused(outcome), Error::NotPermitted));
    let hours = meta.hours().await.unwrap();
    let left = meta.entries(hours[0].2, false).await.unwrap();
    assert_eq!(left.iter().map(|entry| entry.ino).collect::<Vec<_>>(), [kept]);
}

#[tokio::test]
async fn a_removal_that_continues_on_errors_removes_everything_else() {
    let vol = Volume::memory_with(setting()).await;
    let (meta, root) = (&vol.meta, Caller::root());
    for path in ["top", "top/a", "top/b", "top/b/c"] {
        meta.dir(path).await;
    }
    for path in ["top/f", "top/a/f", "top/b/c/f", "top/b/c/kept"] {
        meta.file(path).await;
    }
    let kept = meta.ino("top/b/c/kept").await;
    let attr = stored_attr(meta, kept).await;
    let flags = jfs::meta::record::attr::flag::IMMUTABLE;
    put_node(meta, kept, &Attr { flags, ..attr }).await;
    let meta = vol.client().await;
    let how = Removal { skip_trash: true, keeps_going: true, ..Removal::default() };
    let at = name("top");
    let tree = EntryRef::new(Ino::ROOT, &at);
    let outcome = meta.remove_tree_with(&root, tree, how, &Progress::default()).await;
    assert!(matches!(refused(outcome), Error::NotPermitted));
    assert_eq!(meta.names("top").await, ["b"]);
    assert_eq!(meta.names("top/b").await, ["c"]);
    assert_eq!(meta.names("top/b/c").await, ["kept"]);
}

#[tokio::test]
async fn a_cancelled_removal_ends_between_two_steps() {
    let vol = Volume::memory_with(setting()).await;
    let meta = &vol.meta;
    meta.dir("top").await;
    for number in 0..200 {
        meta.dir(&format!("top/d{number}")).await;
        meta.file(&format!("top/d{number}/f")).await;
    }
    let progress = Progress::default();
    let (root, at) = (Caller::root(), name("top"));
    let how = Removal { skip_trash: true, at_once: 1, ..Removal::default() };
    let removal = meta.remove_tree_with(&root, EntryRef::new(Ino::ROOT, &at), how, &progress);
    let stop = async {
        while progress.done() < 20 {
            tokio::task::yield_now().await;
        }
        progress.cancel();
    };
    let (outcome, ()) = tokio::join!(removal, stop);
    assert!(matches!(refused(outcome), Error::Interrupted));
    assert!(meta.names("top").await.len() > 100);
    let usage = meta.summary(Ino::ROOT, true).await.unwrap();
    assert_eq!(meta.summary(Ino::ROOT, false).await.unwrap(), usage);
}

/// The commands that a server has executed, including those of scripts.
fn commands(server: &RedisServer) -> u64 {
    let stats = server.ask("INFO commandstats");
    let calls = stats.lines().filter_map(|line| line.split_once("calls=")?.1.split_once(','));
    calls.map(|(count, _)| count.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn many_files_are_removed_by_few_commands() {
    const COUNT: usize = 3000;
    let server = RedisServer::start();
    let url = server.url(0);
    let options = Options { no_background_jobs: true, ..Options::default() };
    let meta = Meta::attach(&url, options).await.unwrap();
    meta.init(setting(), false).await.unwrap();
    meta.load().await.unwrap();
    meta.start(Registration::New).await.unwrap();
    let dir = meta.dir("top").await;
    let (root, node) = (Caller::root(), NodeKind { kind: FileKind::File, rdev: 0 });
    let names: Vec<_> = (0..COUNT).map(|number| name(format!("f{number}"))).collect();
    for name in &names {
        meta.mknod(&root, dir, name, node, 0o644, 0).await.unwrap();
    }
    meta.flush().await.unwrap();
    let before = commands(&server);
    assert_eq!(meta.remove_tree(&root, Ino::ROOT, &name("top"), true).await.unwrap(), 3001);
    meta.idle().await;
    let taken = commands(&server) - before;
    assert!(taken < COUNT as u64 / 2, "{taken} commands");
    let files = meta.engine().deleted_files(i64::MAX, COUNT).await.unwrap();
    assert!(files.is_empty(), "{} files are still to be deleted", files.len());
    meta.close().await.unwrap();
}
