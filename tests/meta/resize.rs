//! Changes of a file's length and of whole ranges, each behaviour once, on every engine.

use jfs::meta::record::attr::flag;
use jfs::meta::record::{Attr, CHUNK_SIZE, FileKind, Slice};
use jfs::meta::{Caller, Ino, NodeKind};
use nix::errno::Errno;
use nix::fcntl::FallocateFlags;

use crate::on_every_engine;
use crate::support::data::{
    Blobs, MIB, flagged, length, moved_to_trash, name, new_dir, new_file, open_new, punch,
    read_bytes, records, refused, resize, used_space, write, write_bytes,
};
use crate::support::records::stored_attr;
use crate::support::volume::{Volume, setting};

on_every_engine! { super::setting();
    a_resized_file_gets_zero_records_where_they_are_needed,
    bytes_cut_off_do_not_come_back,
    a_truncated_file_frees_its_space,
    truncating_to_the_same_length_changes_the_times_only,
    forbidden_truncates_fail,
    a_very_long_file_is_truncated_without_visiting_every_chunk,
    lengths_past_the_largest_file_are_refused,
    fallocate_grows_the_file_and_stores_nothing,
    fallocate_can_keep_the_size,
    a_punched_hole_reads_as_zeros,
    punching_past_the_end_stores_nothing_there,
    a_zeroed_range_may_grow_the_file,
    a_hole_over_very_many_chunks_touches_only_those_that_exist,
    forbidden_allocations_fail,
}

async fn a_resized_file_gets_zero_records_where_they_are_needed(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let mib = |n: u64| u32::try_from(n * MIB).unwrap();
    let hole = |pos, len| Slice::hole(mib(pos), mib(len));
    resize(&meta, ino, 200 * MIB).await;
    let low = write(&meta, ino, 63 * MIB, MIB).await;
    let high = write(&meta, ino, 64 * MIB, 2 * MIB).await;
    resize(&meta, ino, 65 * MIB).await;
    resize(&meta, ino, 70 * MIB).await;
    assert_eq!(records(&meta, ino, 0).await, [hole(0, 64), low]);
    assert_eq!(records(&meta, ino, 1).await, [high, hole(1, 63), hole(1, 5)]);
    assert_eq!(records(&meta, ino, 2).await, []);
    assert_eq!(records(&meta, ino, 3).await, [hole(0, 8), hole(0, 8)]);
    let seen = Slice { len: mib(1), ..high };
    assert_eq!(*meta.read(ino, 1).await.unwrap(), [seen, hole(1, 5), hole(6, 58)]);
}

async fn bytes_cut_off_do_not_come_back(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = open_new(&meta, "f").await;
    let base = CHUNK_SIZE - 4;
    write_bytes(&meta, &blobs, ino, base, b"abcdefgh").await;
    resize(&meta, ino, base + 2).await;
    resize(&meta, ino, base + 8).await;
    assert_eq!(read_bytes(&meta, &blobs, ino, base, 8).await, b"ab\0\0\0\0\0\0");
}

async fn a_truncated_file_frees_its_space(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    resize(&meta, ino, 10 * 4096).await;
    let full = used_space(&meta).await;
    resize(&meta, ino, 4097).await;
    assert_eq!(full - used_space(&meta).await, 8 * 4096);
    assert_eq!(meta.dir_stat(Ino::ROOT).await.unwrap().length, 4097);
}

async fn truncating_to_the_same_length_changes_the_times_only(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    resize(&meta, ino, 100).await;
    let before = stored_attr(&meta, ino).await;
    resize(&meta, ino, 100).await;
    let after = stored_attr(&meta, ino).await;
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    assert_eq!(Attr { mtime: before.mtime, ctime: before.ctime, ..after }, before);
    assert_eq!(records(&meta, ino, 0).await.len(), 1);
}

async fn forbidden_truncates_fail(vol: Volume) {
    let meta = vol.client().await;
    let root = Caller::root();
    let dir = new_dir(&meta, "d").await;
    assert_eq!(refused(meta.truncate(&root, dir, 1).await), Errno::EPERM);
    assert_eq!(refused(meta.truncate(&root, Ino(999), 1).await), Errno::ENOENT);
    for flags in [flag::IMMUTABLE, flag::APPEND] {
        let ino = flagged(&meta, flags).await;
        assert_eq!(refused(meta.truncate(&root, ino, 1).await), Errno::EPERM);
        assert_eq!(refused(meta.truncate_open(&root, ino, 1).await), Errno::EPERM);
    }
    let trashed = moved_to_trash(&meta).await;
    assert_eq!(refused(meta.truncate(&root, trashed, 1).await), Errno::EPERM);
    meta.truncate_open(&root, trashed, 1).await.unwrap();
}

async fn a_very_long_file_is_truncated_without_visiting_every_chunk(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let far = 3_000_000;
    resize(&meta, ino, 1 << 50).await;
    let middle = write(&meta, ino, far * CHUNK_SIZE, 10).await;
    resize(&meta, ino, 5).await;
    resize(&meta, ino, 1 << 50).await;
    let index = u32::try_from(far).unwrap();
    let whole = Slice::hole(0, u32::try_from(CHUNK_SIZE).unwrap());
    assert_eq!(records(&meta, ino, index).await, [middle, whole, whole]);
    assert_eq!(records(&meta, ino, index - 1).await, []);
    assert_eq!(length(&meta, ino).await, 1 << 50);
}

async fn lengths_past_the_largest_file_are_refused(vol: Volume) {
    let meta = vol.client().await;
    let (ino, root) = (new_file(&meta, "f").await, Caller::root());
    let none = FallocateFlags::empty();
    assert_eq!(refused(meta.truncate(&root, ino, 1 << 57).await), Errno::EFBIG);
    assert_eq!(refused(meta.fallocate(&root, ino, none, 1 << 57, 1).await), Errno::EFBIG);
    assert_eq!(refused(meta.fallocate(&root, ino, none, u64::MAX, 2).await), Errno::EFBIG);
    meta.truncate(&root, ino, (1 << 57) - 1).await.unwrap();
}

async fn fallocate_grows_the_file_and_stores_nothing(vol: Volume) {
    let meta = vol.client().await;
    let (ino, root) = (new_file(&meta, "f").await, Caller::root());
    let attr = meta.fallocate(&root, ino, FallocateFlags::empty(), 100, 200).await.unwrap();
    assert_eq!(attr.length, 300);
    assert_eq!(length(&meta, ino).await, 300);
    assert_eq!(records(&meta, ino, 0).await, []);
    let attr = meta.fallocate(&root, ino, FallocateFlags::empty(), 0, 10).await.unwrap();
    assert_eq!(attr.length, 300, "never shorter");
}

async fn fallocate_can_keep_the_size(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let before = stored_attr(&meta, ino).await;
    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let after = meta.fallocate(&Caller::root(), ino, keep, 0, 100).await.unwrap();
    assert_eq!(after.length, 0);
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
}

async fn a_punched_hole_reads_as_zeros(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = open_new(&meta, "f").await;
    let base = CHUNK_SIZE - 4;
    write_bytes(&meta, &blobs, ino, base, b"abcdefgh").await;
    punch(&meta, ino, base + 2, 4).await;
    assert_eq!(read_bytes(&meta, &blobs, ino, base, 8).await, b"ab\0\0\0\0gh");
}

async fn punching_past_the_end_stores_nothing_there(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let slice = write(&meta, ino, 0, 100).await;
    punch(&meta, ino, 90, 4 * CHUNK_SIZE).await;
    assert_eq!(records(&meta, ino, 0).await, [slice, Slice::hole(90, 10)]);
    assert_eq!(records(&meta, ino, 1).await, []);
    punch(&meta, ino, 200, 10).await;
    assert_eq!(records(&meta, ino, 0).await.len(), 2);
    assert_eq!(length(&meta, ino).await, 100);
}

async fn a_zeroed_range_may_grow_the_file(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let slice = write(&meta, ino, 0, 100).await;
    let zero = FallocateFlags::FALLOC_FL_ZERO_RANGE;
    let attr = meta.fallocate(&Caller::root(), ino, zero, 50, 100).await.unwrap();
    assert_eq!(attr.length, 150);
    assert_eq!(records(&meta, ino, 0).await, [slice, Slice::hole(50, 50)]);
}

async fn a_hole_over_very_many_chunks_touches_only_those_that_exist(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    resize(&meta, ino, 1 << 50).await;
    let middle = write(&meta, ino, 3_000_000 * CHUNK_SIZE, 10).await;
    punch(&meta, ino, 5, (1 << 50) - 10).await;
    let whole = Slice::hole(0, u32::try_from(CHUNK_SIZE).unwrap());
    assert_eq!(records(&meta, ino, 3_000_000).await, [middle, whole]);
    assert_eq!(records(&meta, ino, 3_000_001).await, []);
}

async fn forbidden_allocations_fail(vol: Volume) {
    let meta = vol.client().await;
    let root = Caller::root();
    let (none, keep) = (FallocateFlags::empty(), FallocateFlags::FALLOC_FL_KEEP_SIZE);
    let hole = keep | FallocateFlags::FALLOC_FL_PUNCH_HOLE;
    let ino = new_file(&meta, "f").await;
    assert_eq!(refused(meta.fallocate(&root, ino, none, 0, 0).await), Errno::EINVAL);
    assert_eq!(refused(meta.fallocate(&root, Ino(999), none, 0, 1).await), Errno::ENOENT);
    let dir = new_dir(&meta, "d").await;
    assert_eq!(refused(meta.fallocate(&root, dir, none, 0, 1).await), Errno::EPERM);
    let kind = NodeKind { kind: FileKind::Fifo, rdev: 0 };
    let (fifo, _) = meta.mknod(&root, Ino::ROOT, &name("p"), kind, 0o644, 0).await.unwrap();
    assert_eq!(refused(meta.fallocate(&root, fifo, none, 0, 1).await), Errno::EPIPE);
    let frozen = flagged(&meta, flag::IMMUTABLE).await;
    assert_eq!(refused(meta.fallocate(&root, frozen, none, 0, 1).await), Errno::EPERM);
    let only_append = flagged(&meta, flag::APPEND).await;
    assert_eq!(refused(meta.fallocate(&root, only_append, hole, 0, 1).await), Errno::EPERM);
    meta.fallocate(&root, only_append, keep, 0, 1).await.unwrap();
    meta.fallocate(&root, only_append, none, 0, 1).await.unwrap();
}
