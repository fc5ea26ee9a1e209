//! Commits whose reply is lost: each operation succeeds once, whether or not the commit arrived.

use std::sync::Arc;

use jfs::Error;
use jfs::meta::engine::kv::MemoryStore;
use jfs::meta::engine::kv::memory::Fault;
use jfs::meta::engine::{Key, Record};
use jfs::meta::record::{Counter, Slice};
use jfs::meta::{AttrSet, Caller, Ino, Meta, RenameMode, Timestamp, XattrMode};

use crate::support::tree::{Tree, name, refused};
use crate::support::volume::Volume;

const FAULTS: [Fault; 2] = [Fault::LostApplied, Fault::LostUnapplied];

/// A client that flushes nothing on its own, so that the next commit is the test's.
struct Wire {
    meta: Arc<Meta>,
    store: Arc<MemoryStore>,
    _volume: Volume,
}

impl Wire {
    async fn new() -> Self {
        let volume = Volume::memory().await;
        let name = volume.url.strip_prefix("memkv://").expect("in memory");
        let store = MemoryStore::named(name);
        let meta = volume.visitor().await;
        // Ids are already allocated.
        meta.dir("d").await;
        meta.new_slice().await.expect("slice id");
        Self { meta, store, _volume: volume }
    }

    fn lose(&self, fault: Fault) {
        self.store.faults().push(fault);
    }

    async fn inodes(&self) -> i64 {
        self.meta.flush().await.expect("flush");
        self.meta.engine().counter(Counter::TotalInodes).await.expect("counter")
    }
}

#[tokio::test]
async fn a_create_is_done_once() {
    for fault in FAULTS {
        let wire = Wire::new().await;
        let before = wire.inodes().await;
        wire.lose(fault);
        let (ino, _) = wire
            .meta
            .create(&Caller::root(), Ino::ROOT, &name("f"), 0o644, 0, true)
            .await
            .expect("no error for its creator");
        assert_eq!(wire.meta.ino("f").await, ino);
        assert_eq!(wire.inodes().await, before + 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_mkdir_adds_one_link() {
    for fault in FAULTS {
        let wire = Wire::new().await;
        wire.lose(fault);
        wire.meta.dir("d/sub").await;
        assert_eq!(wire.meta.attr("d").await.nlink, 3, "{fault:?}");
    }
}

#[tokio::test]
async fn a_link_counts_once() {
    for fault in FAULTS {
        let wire = Wire::new().await;
        wire.meta.file("f").await;
        wire.lose(fault);
        wire.meta.hard_link("f", "g").await.expect("link");
        assert_eq!(wire.meta.attr("f").await.nlink, 2, "{fault:?}");
    }
}

#[tokio::test]
async fn an_unlink_does_not_fail_with_not_found() {
    for fault in FAULTS {
        let wire = Wire::new().await;
        wire.meta.file("f").await;
        let before = wire.inodes().await;
        wire.lose(fault);
        wire.meta.rm("f").await.expect("unlink");
        assert!(matches!(refused(wire.meta.at("f").await), Error::NotFound));
        assert_eq!(wire.inodes().await, before - 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_rmdir_removes_one_link() {
    for fault in FAULTS {
        let wire = Wire::new().await;
        wire.meta.dir("d/sub").await;
        wire.lose(fault);
        wire.meta.rm_dir("d/sub").await.expect("rmdir");
        assert_eq!(wire.meta.attr("d").await.nlink, 2, "{fault:?}");
    }
}

#[tokio::test]
async fn a_rename_takes_effect() {
    for fault in FAULTS {
        let wire = Wire::new().await;
        let ino = wire.meta.file("f").await;
        wire.lose(fault);
        wire.meta.mv("f", "d/g").await.expect("rename");
        assert_eq!(wire.meta.ino("d/g").await, ino, "{fault:?}");
        assert_eq!(wire.meta.names("").await, ["d"]);
    }
}

#[tokio::test]
async fn an_exchange_is_not_undone() {
    for fault in FAULTS {
        let wire = Wire::new().await;
        let (one, two) = (wire.meta.file("f").await, wire.meta.file("g").await);
        wire.lose(fault);
        let swapped = wire.meta.mv_as(&Caller::root(), "f", "g", RenameMode::Exchange).await;
        swapped.expect("exchange");
        assert_eq!((wire.meta.ino("f").await, wire.meta.ino("g").await), (two, one), "{fault:?}");
    }
}

#[tokio::test]
async fn a_write_is_appended_once() {
    for fault in FAULTS {
        let wire = Wire::new().await;
        let ino = wire.meta.file("f").await;
        let id = wire.meta.new_slice().await.expect("slice id");
        wire.lose(fault);
        let slice = Slice { pos: 0, id, size: 100, off: 0, len: 100 };
        wire.meta.write(ino, 0, 0, slice, Timestamp::now()).await.expect("write");
        let stored = wire.meta.engine().read(&[Key::Chunk(ino, 0)]).await.expect("chunk");
        assert_eq!(stored, [Record::Chunk(vec![slice])], "{fault:?}");
        assert_eq!(wire.meta.attr("f").await.length, 100);
    }
}

#[tokio::test]
async fn a_truncate_adds_its_hole_once() {
    for fault in FAULTS {
        let wire = Wire::new().await;
        let ino = wire.meta.file("f").await;
        wire.lose(fault);
        wire.meta.truncate(&Caller::root(), ino, 5000).await.expect("truncate");
        let stored = wire.meta.engine().read(&[Key::Chunk(ino, 0)]).await.expect("chunk");
        assert_eq!(stored, [Record::Chunk(vec![Slice::hole(0, 5000)])], "{fault:?}");
    }
}

#[tokio::test]
async fn a_setattr_and_a_setxattr_take_effect() {
    for fault in FAULTS {
        let wire = Wire::new().await;
        let ino = wire.meta.file("f").await;
        wire.lose(fault);
        let set = AttrSet { mode: Some(0o600), ..AttrSet::default() };
        wire.meta.setattr(&Caller::root(), ino, set).await.expect("setattr");
        assert_eq!(wire.meta.attr("f").await.mode, 0o600, "{fault:?}");
        wire.lose(fault);
        let put = wire.meta.set_xattr(ino, b"user.x", b"value", XattrMode::Create).await;
        put.expect("no error for its creator");
    }
}

#[tokio::test]
async fn conflicts_in_a_row_are_planned_again() {
    let wire = Wire::new().await;
    for _ in 0..5 {
        wire.store.faults().conflict_once();
    }
    wire.meta.file("f").await;
    assert_eq!(wire.meta.names("").await, ["d", "f"]);
    assert!(wire.meta.counts().conflicts() >= 5);
}
