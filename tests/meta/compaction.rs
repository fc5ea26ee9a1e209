//! Compaction, each behaviour once, on every engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use jfs::meta::engine::kv::memory::Fault;
use jfs::meta::engine::{Change, Key};
use jfs::meta::record::{Setting, SliceSize};
use jfs::meta::{Caller, Ino, Meta, Timestamp};
use nix::fcntl::OFlag;

use crate::on_every_engine;
use crate::support::data::{
    Blobs, Gate, assert_nothing_left, copy, fragile, fresh, many_slices, new_file, read_bytes,
    records, references, remove, sizes, write, write_bytes,
};
use crate::support::records::stored;
use crate::support::volume::{Volume, setting};

on_every_engine! { super::setting();
    many_small_slices_become_one,
    leading_large_slices_are_kept,
    holes_stay_holes,
    a_read_of_many_slices_starts_a_compaction,
    the_99th_write_starts_a_compaction,
    slices_replaced_without_trash_are_deleted,
    a_shared_slice_survives_the_compaction_of_one_file,
    records_appended_during_a_compaction_are_kept,
    a_compaction_of_changed_records_is_discarded,
    a_compaction_of_a_removed_file_is_discarded,
    a_compaction_that_arrives_late_cannot_use_an_abandoned_slice,
    a_failed_rewrite_changes_nothing,
    one_chunk_is_compacted_once_at_a_time,
    the_cached_view_of_a_compacted_chunk_is_dropped,
}

mod with_trash {
    use super::*;

    on_every_engine! { super::super::keeping(2);
        replaced_slices_are_kept_as_long_as_the_trash,
        a_list_of_replaced_slices_is_dropped_once,
    }

    async fn replaced_slices_are_kept_as_long_as_the_trash(vol: Volume) {
        let meta = vol.client().await;
        let blobs = Blobs::serve(&meta);
        let (ino, slices) = many_slices(&meta, &blobs, 4).await;
        let now = Timestamp::now().sec;
        assert!(meta.compact(ino, 0, true).await.unwrap());
        assert!(blobs.deleted().is_empty());
        for slice in &slices {
            assert_eq!(references(&meta, *slice).await, 1);
        }
        let [list] = &meta.engine().delayed_slices(now + 60, 10).await.unwrap()[..] else {
            panic!("one list")
        };
        assert_eq!(list.id, records(&meta, ino, 0).await[0].id);
        assert_eq!(list.slices, sizes(&slices));

        let two_days = 2 * 86_400;
        assert_eq!(meta.clean_delayed_slices(list.at + two_days).await.unwrap(), 0);
        assert_eq!(meta.clean_delayed_slices(list.at + two_days + 1).await.unwrap(), 4);
        assert_eq!(blobs.deleted().len(), 4);
        assert!(meta.engine().delayed_slices(now + 60, 10).await.unwrap().is_empty());
        assert!(meta.engine().dead_slices(10).await.unwrap().is_empty());
        assert_eq!(read_bytes(&meta, &blobs, ino, 0, 13).await, b"0011223333333");
    }

    async fn a_list_of_replaced_slices_is_dropped_once(vol: Volume) {
        let (here, there) = (vol.client().await, vol.client().await);
        let blobs = Blobs::serve(&here);
        there.attach_slice_store(blobs.clone());
        let (ino, slices) = many_slices(&here, &blobs, 4).await;
        // A second reference for each slice, so that one release too many would show.
        let other = new_file(&here, "copy").await;
        copy(&here, (ino, 0), (other, 0), 13).await.unwrap();
        assert!(here.compact(ino, 0, true).await.unwrap());
        let later = Timestamp::now().sec + 10 * 86_400;
        let (one, two) =
            tokio::join!(here.clean_delayed_slices(later), there.clean_delayed_slices(later));
        assert_eq!(one.unwrap() + two.unwrap(), 0);
        assert!(blobs.deleted().is_empty());
        for slice in &slices {
            assert_eq!(references(&here, *slice).await, 1);
        }
    }
}

fn keeping(days: i64) -> Setting {
    Setting { trash_days: days, ..setting() }
}

async fn many_small_slices_become_one(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (ino, slices) = many_slices(&meta, &blobs, 4).await;
    let before = stored(&meta, Key::Attr(ino)).await;
    assert!(meta.compact(ino, 0, true).await.unwrap());
    let [new] = records(&meta, ino, 0).await[..] else { panic!("one record") };
    assert!(slices.iter().all(|slice| slice.id != new.id));
    assert_eq!((new.pos, new.size, new.off, new.len), (0, 13, 0, 13));
    assert_eq!(references(&meta, new).await, 1);
    assert_eq!(read_bytes(&meta, &blobs, ino, 0, 13).await, b"0011223333333");
    assert_eq!(stored(&meta, Key::Attr(ino)).await, before, "unchanged content");
    assert!(!meta.compact(ino, 0, true).await.unwrap(), "nothing left to compact");
    meta.idle().await;
    assert_nothing_left(&meta).await;
}

async fn leading_large_slices_are_kept(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = new_file(&meta, "f").await;
    let large = vec![b'L'; 2 << 20];
    write_bytes(&meta, &blobs, ino, 0, &large).await;
    for at in 0..3 {
        write_bytes(&meta, &blobs, ino, (2 << 20) + at, b"s").await;
    }
    let first = records(&meta, ino, 0).await[0];
    assert!(meta.compact(ino, 0, true).await.unwrap());
    let [kept, new] = records(&meta, ino, 0).await[..] else { panic!("two records") };
    assert_eq!(kept, first);
    assert_eq!((new.pos, new.len), (2 << 20, 3));
    assert!(blobs.ids().contains(&kept.id));
}

async fn holes_stay_holes(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = new_file(&meta, "f").await;
    for at in [0, 10_000, 20_000] {
        write_bytes(&meta, &blobs, ino, at, b"one").await;
        write_bytes(&meta, &blobs, ino, at + 3, b"two").await;
    }
    // Each range of data has two records, so that there is something to compact.
    meta.read(ino, 0).await.unwrap();
    meta.idle().await;
    assert!(meta.compact(ino, 0, true).await.unwrap());
    let [new, first, second] = records(&meta, ino, 0).await[..] else { panic!("three records") };
    assert_eq!((new.pos, new.len), (0, 20_006));
    assert!(first.id.is_hole() && second.id.is_hole());
    assert_eq!([(first.pos, first.len), (second.pos, second.len)], [(6, 9994), (10_006, 9994)]);
    let content = read_bytes(&meta, &blobs, ino, 0, 20_006).await;
    let data: Vec<u8> = content.iter().copied().filter(|byte| *byte != 0).collect();
    assert_eq!(data, b"onetwoonetwoonetwo");
    // Records that only represent holes are no reason to compact again.
    for _ in 0..3 {
        meta.forget_view(ino, 0);
        meta.read(ino, 0).await.unwrap();
    }
    meta.idle().await;
    assert_eq!(records(&meta, ino, 0).await[0], new);
    assert_nothing_left(&meta).await;
}

async fn a_read_of_many_slices_starts_a_compaction(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (ino, _) = many_slices(&meta, &blobs, 4).await;
    meta.read(ino, 0).await.unwrap();
    meta.idle().await;
    assert_eq!(records(&meta, ino, 0).await.len(), 4, "few enough");
    write_bytes(&meta, &blobs, ino, 13, b"!").await;
    meta.read(ino, 0).await.unwrap();
    meta.idle().await;
    assert_eq!(records(&meta, ino, 0).await.len(), 1);
    assert_eq!(read_bytes(&meta, &blobs, ino, 0, 14).await, b"0011223333333!");
}

async fn the_99th_write_starts_a_compaction(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = new_file(&meta, "f").await;
    for at in 0..98 {
        write_bytes(&meta, &blobs, ino, at, b"x").await;
    }
    meta.idle().await;
    assert_eq!(records(&meta, ino, 0).await.len(), 98);
    write_bytes(&meta, &blobs, ino, 98, b"x").await;
    meta.idle().await;
    assert_eq!(records(&meta, ino, 0).await.len(), 1);
    assert_eq!(read_bytes(&meta, &blobs, ino, 0, 99).await, [b'x'; 99]);
}

async fn slices_replaced_without_trash_are_deleted(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (ino, slices) = many_slices(&meta, &blobs, 4).await;
    assert!(meta.compact(ino, 0, true).await.unwrap());
    meta.idle().await;
    let mut deleted = blobs.deleted();
    deleted.sort_unstable();
    assert_eq!(deleted, sizes(&slices));
    assert_eq!(blobs.ids().len(), 1);
    assert_nothing_left(&meta).await;
}

async fn a_shared_slice_survives_the_compaction_of_one_file(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (ino, slices) = many_slices(&meta, &blobs, 4).await;
    let other = new_file(&meta, "copy").await;
    copy(&meta, (ino, 0), (other, 0), 13).await.unwrap();
    assert!(meta.compact(ino, 0, true).await.unwrap());
    meta.idle().await;
    assert!(blobs.deleted().is_empty());
    for slice in &slices {
        assert_eq!(references(&meta, *slice).await, 1);
    }
    assert_eq!(read_bytes(&meta, &blobs, other, 0, 13).await, b"0011223333333");
}

async fn records_appended_during_a_compaction_are_kept(vol: Volume) {
    let (meta, blobs, ino, compaction) = stopped_compaction(&vol).await;
    let appended = write(&meta, ino, 1, 2).await;
    blobs.put(appended.id, b"!!".to_vec());
    assert!(compaction.finish().await);
    assert_eq!(records(&meta, ino, 0).await[1..], [appended]);
    assert_eq!(read_bytes(&meta, &blobs, ino, 0, 13).await, b"0!!1223333333");
}

async fn a_compaction_of_changed_records_is_discarded(vol: Volume) {
    let (meta, blobs, ino, compaction) = stopped_compaction(&vol).await;
    // Another client is faster.
    let other = vol.client().await;
    other.attach_slice_store(blobs.clone());
    assert!(other.compact(ino, 0, true).await.unwrap());
    other.idle().await;
    let winner = records(&meta, ino, 0).await;
    assert!(!compaction.finish().await);
    meta.idle().await;
    assert_eq!(records(&meta, ino, 0).await, winner);
    assert_eq!(blobs.ids(), [winner[0].id], "the loser's slice is gone");
    assert_nothing_left(&meta).await;
}

async fn a_compaction_of_a_removed_file_is_discarded(vol: Volume) {
    let (meta, blobs, _, compaction) = stopped_compaction(&vol).await;
    remove(&meta, "f").await;
    meta.idle().await;
    assert!(!compaction.finish().await);
    meta.idle().await;
    assert!(blobs.ids().is_empty());
    assert_nothing_left(&meta).await;
}

async fn a_compaction_that_arrives_late_cannot_use_an_abandoned_slice(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (ino, slices) = many_slices(&meta, &blobs, 4).await;
    let new = fresh(&meta, 13).await;
    let slice = SliceSize { id: new.id, size: new.size };
    let mut late = meta.engine().begin();
    let keys = [Key::Chunk(ino, 0), Key::SliceRef(slice.id, slice.size)];
    late.read(&keys).await.unwrap();
    let abandon = [Change::NewSlice(slice), Change::AddSliceRef { slice, by: -1 }];
    meta.engine().begin().commit(&abandon).await.unwrap();
    assert_eq!(meta.engine().dead_slices(10).await.unwrap(), [slice]);
    let replace = [
        Change::ReplaceSlices { ino, index: 0, count: 4, with: vec![new] },
        Change::TrackSlice(slice),
    ];
    assert!(late.commit(&replace).await.is_err());
    assert_eq!(records(&meta, ino, 0).await, slices);
}

async fn a_failed_rewrite_changes_nothing(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (ino, slices) = many_slices(&meta, &blobs, 4).await;
    blobs.broken.store(true, Ordering::Relaxed);
    assert!(meta.compact(ino, 0, true).await.is_err());
    assert_eq!(records(&meta, ino, 0).await, slices);
    // Objects that the rewrite may have stored are deleted once the store works again.
    blobs.broken.store(false, Ordering::Relaxed);
    assert_eq!(meta.clean_slices().await.unwrap(), 1);
    assert_eq!(blobs.ids().len(), 4);
    assert_nothing_left(&meta).await;
}

async fn one_chunk_is_compacted_once_at_a_time(vol: Volume) {
    let (meta, blobs, ino, compaction) = stopped_compaction(&vol).await;
    assert!(!meta.compact(ino, 0, false).await.unwrap(), "already being compacted");
    let waiting = tokio::spawn({
        let meta = meta.clone();
        async move { meta.compact(ino, 0, true).await.unwrap() }
    });
    assert!(compaction.finish().await);
    assert!(!waiting.await.unwrap(), "nothing left to do");
    meta.idle().await;
    assert_eq!(blobs.ids().len(), 1);
}

async fn the_cached_view_of_a_compacted_chunk_is_dropped(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (ino, _) = many_slices(&meta, &blobs, 4).await;
    meta.open_file(&Caller::root(), ino, OFlag::O_RDONLY).await.unwrap();
    assert_eq!(meta.read(ino, 0).await.unwrap().len(), 4);
    assert!(meta.compact(ino, 0, true).await.unwrap());
    assert_eq!(meta.read(ino, 0).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_compaction_keeps_its_slice_if_the_reply_is_lost() {
    for fault in [Fault::LostApplied, Fault::LostUnapplied, Fault::Conflict] {
        let (vol, store) = fragile().await;
        let (meta, blobs, ino, compaction) = stopped_compaction(&vol).await;
        store.faults().push(fault);
        compaction.finish().await;
        meta.idle().await;
        assert_eq!(read_bytes(&meta, &blobs, ino, 0, 13).await, b"0011223333333", "{fault:?}");
        meta.clean_slices().await.unwrap();
        assert_eq!(read_bytes(&meta, &blobs, ino, 0, 13).await, b"0011223333333", "{fault:?}");
        assert_nothing_left(&meta).await;
    }
}

/// A compaction whose slice is written but not yet part of the file.
struct Stopped {
    gate: Arc<Gate>,
    task: tokio::task::JoinHandle<bool>,
}

impl Stopped {
    /// Lets it continue; returns whether the records changed.
    async fn finish(self) -> bool {
        self.gate.open.notify_one();
        self.task.await.unwrap()
    }
}

async fn stopped_compaction(vol: &Volume) -> (Arc<Meta>, Arc<Blobs>, Ino, Stopped) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (ino, _) = many_slices(&meta, &blobs, 4).await;
    let gate = blobs.stop_rewrite();
    let task = tokio::spawn({
        let meta = meta.clone();
        async move { meta.compact(ino, 0, false).await.unwrap() }
    });
    gate.reached.notified().await;
    (meta, blobs, ino, Stopped { gate, task })
}
