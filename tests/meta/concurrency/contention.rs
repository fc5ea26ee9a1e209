//! Many tasks and two clients work on one directory or file: nothing is lost, no operation fails.

use std::collections::HashSet;
use std::sync::Arc;

use futures::future::join_all;
use jfs::Error;
use jfs::meta::engine::{Key, Record};
use jfs::meta::record::{Counter, Slice};
use jfs::meta::{Caller, Ino, Meta, Options, Registration, SliceId, Timestamp};
use tokio::task::JoinHandle;

use crate::support::tree::{Tree, name};
use crate::support::volume::{Volume, setting};

crate::on_every_engine! { super::setting();
    sixty_four_tasks_create_in_one_directory,
    sixty_four_tasks_create_directories_in_one_directory,
    sixty_four_tasks_append_slices_to_one_file,
    two_clients_create_in_one_directory,
    two_clients_append_to_one_file,
    racing_for_one_name_has_one_winner,
    creating_in_a_removed_directory_leaves_no_orphan,
}

const TASKS: usize = 64;
const EACH: usize = 8;

async fn all<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    join_all(tasks).await.into_iter().map(|done| done.expect("no task panics")).collect()
}

/// 64 tasks that create eight nodes each.
fn creators(meta: &Arc<Meta>, dir: Ino, who: &'static str, dirs: bool) -> Vec<JoinHandle<()>> {
    (0..TASKS)
        .map(|task| {
            let meta = meta.clone();
            tokio::spawn(async move {
                for i in 0..EACH {
                    let called = name(format!("{who}-{task}-{i}"));
                    let root = Caller::root();
                    if dirs {
                        meta.mkdir(&root, dir, &called, 0o755, 0).await.expect("mkdir");
                    } else {
                        let made = meta.create(&root, dir, &called, 0o644, 0, true).await;
                        meta.close_file(made.expect("create").0).await.expect("close");
                    }
                }
            })
        })
        .collect()
}

/// 64 tasks that append eight slices each; they return the slices.
fn writers(meta: &Arc<Meta>, ino: Ino) -> Vec<JoinHandle<Vec<SliceId>>> {
    (0..TASKS)
        .map(|_| {
            let meta = meta.clone();
            tokio::spawn(async move {
                let mut written = Vec::new();
                for _ in 0..EACH {
                    let id = meta.new_slice().await.expect("slice id");
                    let slice = Slice { pos: 0, id, size: 10, off: 0, len: 10 };
                    meta.write(ino, 0, 0, slice, Timestamp::now()).await.expect("write");
                    written.push(id);
                }
                written
            })
        })
        .collect()
}

async fn slices_of(meta: &Meta, ino: Ino) -> Vec<SliceId> {
    match meta.engine().read(&[Key::Chunk(ino, 0)]).await.expect("chunk").pop() {
        Some(Record::Chunk(slices)) => slices.iter().map(|slice| slice.id).collect(),
        other => panic!("{other:?}"),
    }
}

async fn sixty_four_tasks_create_in_one_directory(vol: Volume) {
    let dir = vol.meta.dir("d").await;
    all(creators(&vol.meta, dir, "a", false)).await;
    assert_eq!(vol.meta.names("d").await.len(), TASKS * EACH);
    vol.meta.flush().await.expect("flush");
    let inodes = vol.meta.engine().counter(Counter::TotalInodes).await.expect("counter");
    assert_eq!(usize::try_from(inodes).expect("positive"), TASKS * EACH + 1);
    // Different names do not conflict: the few conflicts are resolved by one or two retries.
    let conflicts = vol.meta.counts().conflicts();
    assert!(conflicts < (TASKS * EACH) as u64 / 4, "{conflicts} conflicts");
}

async fn sixty_four_tasks_create_directories_in_one_directory(vol: Volume) {
    let dir = vol.meta.dir("d").await;
    all(creators(&vol.meta, dir, "a", true)).await;
    assert_eq!(vol.meta.names("d").await.len(), TASKS * EACH);
    assert_eq!(vol.meta.attr("d").await.nlink as usize, 2 + TASKS * EACH);
}

async fn sixty_four_tasks_append_slices_to_one_file(vol: Volume) {
    let ino = vol.meta.file("f").await;
    let written: HashSet<SliceId> =
        all(writers(&vol.meta, ino)).await.into_iter().flatten().collect();
    let stored = slices_of(&vol.meta, ino).await;
    assert_eq!(stored.len(), TASKS * EACH);
    assert_eq!(stored.into_iter().collect::<HashSet<_>>(), written);
    // Writers of one file in this process are serialized, so none of them has to plan again.
    assert_eq!(vol.meta.counts().conflicts(), 0);
}

async fn two_clients_create_in_one_directory(vol: Volume) {
    let other = vol.client().await;
    let dir = vol.meta.dir("d").await;
    let mut tasks = creators(&vol.meta, dir, "a", true);
    tasks.extend(creators(&other, dir, "b", true));
    all(tasks).await;
    assert_eq!(vol.meta.names("d").await.len(), 2 * TASKS * EACH);
    assert_eq!(vol.meta.attr("d").await.nlink as usize, 2 + 2 * TASKS * EACH);
}

async fn two_clients_append_to_one_file(vol: Volume) {
    let other = vol.client().await;
    let ino = vol.meta.file("f").await;
    let mut tasks = writers(&vol.meta, ino);
    tasks.extend(writers(&other, ino));
    let written: HashSet<SliceId> = all(tasks).await.into_iter().flatten().collect();
    let stored = slices_of(&vol.meta, ino).await;
    assert_eq!(stored.len(), 2 * TASKS * EACH);
    assert_eq!(stored.into_iter().collect::<HashSet<_>>(), written);
}

async fn racing_for_one_name_has_one_winner(vol: Volume) {
    let other = vol.client().await;
    for round in 0..20 {
        let racers: Vec<_> = [&vol.meta, &other, &vol.meta, &other]
            .into_iter()
            .map(|meta| {
                let (meta, called) = (meta.clone(), name(format!("n{round}")));
                tokio::spawn(async move {
                    meta.mkdir(&Caller::root(), Ino::ROOT, &called, 0o755, 0).await.map(drop)
                })
            })
            .collect();
        let outcomes = all(racers).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        assert!(outcomes.iter().all(|o| matches!(o, Ok(()) | Err(Error::Exists))), "{outcomes:?}");
    }
}

async fn creating_in_a_removed_directory_leaves_no_orphan(vol: Volume) {
    let other = vol.client().await;
    for round in 0..30 {
        let path = format!("d{round}");
        let dir = vol.meta.dir(&path).await;
        let maker = {
            let meta = other.clone();
            tokio::spawn(async move {
                meta.mkdir(&Caller::root(), dir, &name("in"), 0o755, 0).await.map(drop)
            })
        };
        let removed = vol.meta.rm_dir(&path).await;
        let made = maker.await.expect("no task panics");
        match (&made, &removed) {
            (Ok(()), Err(Error::NotEmpty)) | (Err(Error::NotFound), Ok(())) => {}
            other => panic!("one must win and the other see it: {other:?}"),
        }
    }
}

/// The work of one process: creates nodes in `shared` and appends to `file`.
async fn work(meta: &Arc<Meta>, who: &'static str) {
    let (dir, ino) = (meta.ino("shared").await, meta.ino("file").await);
    let creators = creators(meta, dir, who, true);
    all(writers(meta, ino)).await;
    all(creators).await;
    meta.close().await.expect("close");
}

async fn prepare(vol: &Volume) {
    vol.meta.dir("shared").await;
    vol.meta.file("file").await;
}

async fn assert_work_of(processes: usize, meta: &Meta) {
    assert_eq!(meta.names("shared").await.len(), processes * TASKS * EACH);
    assert_eq!(meta.attr("shared").await.nlink as usize, 2 + processes * TASKS * EACH);
    let ino = meta.ino("file").await;
    let stored: HashSet<SliceId> = slices_of(meta, ino).await.into_iter().collect();
    assert_eq!(stored.len(), processes * TASKS * EACH);
}

/// The environment variable with the volume that this program uses as the second process.
const SHARED_VOLUME: &str = "JFS_TEST_SHARED_VOLUME";

/// Uses a volume of its own; as the second process of the tests below, theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_creates_and_appends() {
    if let Ok(url) = std::env::var(SHARED_VOLUME) {
        let meta = Meta::connect(&url, Options::default()).await.expect("connect");
        meta.start(Registration::New).await.expect("session");
        work(&meta, "second").await;
        return;
    }
    let vol = Volume::memory().await;
    prepare(&vol).await;
    work(&vol.client().await, "first").await;
    assert_work_of(1, &vol.meta).await;
}

async fn two_processes(vol: Volume) {
    prepare(&vol).await;
    let second = tokio::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "concurrency::contention::one_process_creates_and_appends"])
        .env(SHARED_VOLUME, &vol.url)
        .stdout(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("second process");
    let client = vol.client().await;
    let (ended, ()) = tokio::join!(second.wait_with_output(), work(&client, "first"));
    assert!(ended.expect("second process").status.success());
    assert_work_of(2, &vol.meta).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_work_on_one_redis_volume() {
    two_processes(Volume::redis().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_work_on_one_sqlite_volume() {
    two_processes(Volume::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_work_on_one_tikv_volume() {
    two_processes(Volume::tikv_with(setting()).await).await;
}
