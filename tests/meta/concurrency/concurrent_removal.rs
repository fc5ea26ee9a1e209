//! Removing a tree while others move, link and open files in it: each file is either gone or
//! intact.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use jfs::meta::client::Limits;
use jfs::meta::engine::{Key, Record};
use jfs::meta::record::{Attr, Counter, FileKind, QuotaKey};
use jfs::meta::{Caller, EntryRef, Ino, Meta, NodeKind, RenameMode};
use jfs::{Error, Result};
use nix::fcntl::OFlag;

use crate::support::records::stored;
use crate::support::tree::{Tree, name};
use crate::support::volume::{Volume, setting, setting_with_trash};

/// Files in each directory: more than one commit removes.
const FILES: usize = 550;
const LENGTH: u64 = 5000;

crate::on_every_engine! { super::setting();
    moved_linked_and_open_files_survive_the_removal_of_their_tree,
}

/// What happens to a file, by its number, while its tree is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Another client moves it out.
    Moved,
    /// Another client links it elsewhere.
    Linked,
    /// It was linked elsewhere before.
    LinkedBefore,
    /// The removing client has it open.
    Open,
    Plain,
}

fn part(number: usize) -> Part {
    match number % 11 {
        1 => Part::Moved,
        3 => Part::Linked,
        5 => Part::LinkedBefore,
        7 => Part::Open,
        _ => Part::Plain,
    }
}

/// The files of a tree, by the numbers in their names.
struct Scene {
    dirs: Vec<Ino>,
    files: Vec<Ino>,
    kept: Ino,
}

impl Scene {
    async fn make(meta: &Meta) -> Self {
        meta.dir("top").await;
        let kept = meta.dir("kept").await;
        let limits = Limits { space: None, inodes: Some(1_000_000) };
        meta.quota_set(QuotaKey::Dir(kept), limits, false).await.unwrap();
        let dirs = [meta.dir("top/a").await, meta.dir("top/b").await].to_vec();
        let (root, node) = (Caller::root(), NodeKind { kind: FileKind::File, rdev: 0 });
        let make = async |number: usize| {
            let (dir, at) = (dirs[number % 2], name(format!("f{number}")));
            meta.mknod(&root, dir, &at, node, 0o644, 0).await.unwrap().0
        };
        let files = stream::iter(0..2 * FILES).map(make).buffered(32).collect::<Vec<Ino>>().await;
        let scene = Self { dirs, files, kept };
        for (number, ino) in scene.files.iter().enumerate() {
            if part(number) == Part::Plain {
                continue;
            }
            let (dir, at) = scene.place(number);
            meta.fill(
                &format!("top/{}/{at}", if dir == scene.dirs[0] { "a" } else { "b" }),
                LENGTH,
            )
            .await;
            if part(number) == Part::LinkedBefore {
                meta.link(&root, *ino, kept, &at).await.unwrap();
            }
        }
        scene
    }

    fn place(&self, number: usize) -> (Ino, jfs::meta::Name) {
        (self.dirs[number % 2], name(format!("f{number}")))
    }

    fn all(&self, wanted: Part) -> impl Iterator<Item = (usize, Ino)> {
        let files = self.files.iter().copied().enumerate();
        files.filter(move |(number, _)| part(*number) == wanted)
    }
}

/// Whether the operation was in time. It may only fail by being too late.
fn in_time<T>(outcome: Result<T>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(Error::NotFound) => false,
        Err(error) => panic!("neither done nor too late: {error}"),
    }
}

async fn moved_linked_and_open_files_survive_the_removal_of_their_tree(vol: Volume) {
    remove_concurrently(&vol, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_and_linked_files_survive_moving_their_tree_to_the_trash() {
    remove_concurrently(&Volume::redis_with(setting_with_trash()).await, false).await;
}

async fn remove_concurrently(vol: &Volume, for_good: bool) {
    let (meta, root, top) = (&vol.meta, &Caller::root(), &name("top"));
    let scene = &Scene::make(meta).await;
    // The client loads the quota when it starts.
    let other = &vol.client().await;
    for (_, ino) in scene.all(Part::Open) {
        meta.open_file(root, ino, OFlag::O_RDONLY).await.unwrap();
    }
    let moving = async {
        let mut moved = BTreeMap::new();
        for (number, ino) in scene.all(Part::Moved) {
            let (dir, at) = scene.place(number);
            let to = EntryRef::new(scene.kept, &at);
            let outcome =
                Box::pin(other.rename(root, EntryRef::new(dir, &at), to, RenameMode::Replace))
                    .await;
            if in_time(outcome) {
                moved.insert(at.to_string(), ino);
            }
        }
        moved
    };
    let linking = async {
        let mut linked = BTreeMap::new();
        for (number, ino) in scene.all(Part::Linked) {
            let (_, at) = scene.place(number);
            if in_time(other.link(root, ino, scene.kept, &at).await) {
                linked.insert(at.to_string(), ino);
            }
        }
        linked
    };
    let removing = meta.remove_tree(root, Ino::ROOT, top, for_good);
    let (removed, moved, linked) = tokio::join!(removing, moving, linking);
    removed.unwrap();

    assert_eq!(meta.names("").await, ["kept"]);
    let mut expected = moved;
    expected.extend(linked);
    for (number, ino) in scene.all(Part::LinkedBefore) {
        expected.insert(scene.place(number).1.to_string(), ino);
    }
    assert_eq!(meta.names("kept").await, expected.keys().cloned().collect::<Vec<_>>());
    for (at, ino) in &expected {
        assert_eq!(meta.ino(&format!("kept/{at}")).await, *ino, "{at}");
        assert_whole(meta, *ino, if for_good { 1 } else { 2 }).await;
    }
    if for_good {
        let open = scene.all(Part::Open).map(|(_, ino)| ino).collect();
        assert_open_files_exist_until_closed(meta, open).await;
    }
    for client in [meta, other] {
        client.idle().await;
        client.flush().await.unwrap();
        client.flush_quotas().await.unwrap();
    }
    assert_counted(meta, scene.kept, expected.len(), for_good).await;
}

/// Asserts that the file has its content; in the trash it may have a second name.
async fn assert_whole(meta: &Meta, ino: Ino, most_links: u32) {
    let attr = meta.getattr(ino).await.unwrap();
    assert!((1..=most_links).contains(&attr.nlink), "{ino}: {} links", attr.nlink);
    assert_readable(meta, ino, &attr).await;
}

async fn assert_readable(meta: &Meta, ino: Ino, attr: &Attr) {
    assert_eq!(attr.length, LENGTH);
    let shown: u64 = meta.read(ino, 0).await.unwrap().iter().map(|it| u64::from(it.len)).sum();
    assert_eq!(shown, LENGTH, "{ino}: not all of it is shown");
}

async fn assert_open_files_exist_until_closed(meta: &Meta, open: Vec<Ino>) {
    for ino in open {
        let Record::Attr(Some(attr)) = stored(meta, Key::Attr(ino)).await else {
            panic!("{ino} is gone, and this client has it open");
        };
        assert_eq!(attr.nlink, 0);
        assert_readable(meta, ino, &attr).await;
        meta.close_file(ino).await.unwrap();
        assert_eq!(stored(meta, Key::Attr(ino)).await, Record::Attr(None), "{ino} stays");
    }
}

/// Asserts that the usage of the volume, of directories and of the quota matches the files.
async fn assert_counted(meta: &Meta, kept: Ino, files: usize, for_good: bool) {
    let wrong = meta.check_dir_stats(Ino::ROOT, false).await.unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    let counted = meta.summary(kept, true).await.unwrap();
    assert_eq!(meta.summary(kept, false).await.unwrap(), counted);
    let inodes = i64::try_from(files).unwrap();
    let space = inodes * 8192;
    let quota = meta.quota(QuotaKey::Dir(kept)).await.unwrap().unwrap();
    assert_eq!((quota.used_inodes, quota.used_space), (inodes, space));
    if for_good {
        let engine = meta.engine();
        // The directory itself is one more.
        assert_eq!(engine.counter(Counter::TotalInodes).await.unwrap(), inodes + 1);
        assert_eq!(engine.counter(Counter::UsedSpace).await.unwrap(), space + 4096);
        let files = engine.deleted_files(i64::MAX, 10).await.unwrap();
        assert!(files.is_empty(), "still to be deleted: {files:?}");
    }
}
