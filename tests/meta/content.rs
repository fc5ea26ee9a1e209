//! Operations on file content, each behaviour once, on every engine.

use crate::on_every_engine;
use crate::support::data::{
    Blobs, MIB, copy, fresh, length, name, new_dir, new_file, open_new, put, read_bytes, records,
    references, refused, remove, used_space, write, write_bytes,
};
use jfs::meta::op::setattr::AttrSet;
use jfs::meta::record::attr::flag;
use jfs::meta::record::{CHUNK_SIZE, DirStat, FileKind, Setting, Slice};
use jfs::meta::{AtimeMode, Caller, Ino, Meta, NodeKind, Options, Timestamp};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag};

use crate::support::records::{log, put_node, stored_attr};
use crate::support::volume::{Volume, setting};

on_every_engine! { super::setting();
    a_new_file_has_no_slices,
    only_files_are_read,
    a_written_slice_is_seen,
    later_slices_hide_earlier_ones,
    a_foreign_write_is_seen_once_the_attr_is_read_again,
    an_own_write_is_seen_at_once,
    a_write_grows_the_file_and_what_it_is_charged_to,
    a_write_inside_the_file_changes_only_its_times,
    a_hard_linked_file_is_charged_to_each_directory_as_often_as_it_is_in_it,
    a_removed_open_file_grows_in_no_directory,
    only_files_are_written,
    a_slice_that_does_not_fit_is_refused,
    a_resized_file_gets_zero_records_where_they_are_needed,
    bytes_cut_off_do_not_come_back,
    a_truncated_file_gives_its_space_back,
    truncating_to_the_same_length_changes_nothing,
    what_may_not_be_truncated_is_not,
    a_very_long_file_is_cut_and_grown_without_walking_over_its_chunks,
    lengths_past_the_largest_file_are_refused,
    fallocate_grows_the_file_and_stores_nothing,
    fallocate_can_keep_the_size,
    a_punched_hole_reads_as_zeros,
    punching_past_the_end_stores_nothing_there,
    a_zeroed_range_may_grow_the_file,
    a_hole_over_very_many_chunks_touches_only_those_that_exist,
    what_may_not_be_allocated_is_not,
    a_copy_shares_the_slices_of_its_source,
    a_copy_ends_with_its_source,
    a_copy_splits_slices_at_chunk_boundaries,
    a_copy_of_a_hole_hides_what_was_there,
    a_copy_goes_from_file_to_file_only,
    overlapping_ranges_of_one_file_are_refused,
    an_unchanged_file_keeps_its_cache_when_opened_again,
    a_file_changed_by_another_client_does_not_keep_its_cache,
    flags_of_a_file_decide_how_it_is_opened,
    a_trashed_file_is_only_read,
    permissions_are_asked_if_this_client_checks_them,
    a_read_only_client_opens_for_reading_only,
    an_access_is_written_if_it_is_due,
}

fn with_change_log() -> Setting {
    Setting { change_log: true, ..setting() }
}

async fn a_new_file_has_no_slices(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    assert!(meta.read(ino, 0).await.unwrap().is_empty());
    assert!(meta.read(ino, 9).await.unwrap().is_empty());
}

async fn only_files_are_read(vol: Volume) {
    let meta = vol.client().await;
    assert_eq!(refused(meta.read(Ino::ROOT, 0).await), Errno::EPERM);
    assert_eq!(refused(meta.read(Ino(999), 0).await), Errno::ENOENT);
}

async fn a_written_slice_is_seen(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let slice = write(&meta, ino, CHUNK_SIZE + 7, 100).await;
    assert_eq!(*meta.read(ino, 1).await.unwrap(), [Slice::hole(0, 7), slice]);
    assert!(meta.read(ino, 0).await.unwrap().is_empty());
    assert_eq!(length(&meta, ino).await, CHUNK_SIZE + 107);
}

async fn later_slices_hide_earlier_ones(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = new_file(&meta, "f").await;
    write_bytes(&meta, &blobs, ino, 0, b"aaaaaaaa").await;
    write_bytes(&meta, &blobs, ino, 2, b"bbb").await;
    write_bytes(&meta, &blobs, ino, 4, b"cc").await;
    assert_eq!(read_bytes(&meta, &blobs, ino, 0, 8).await, b"aabbccaa");
}

async fn a_foreign_write_is_seen_once_the_attr_is_read_again(vol: Volume) {
    let (here, there) = (vol.client().await, vol.client().await);
    let ino = open_new(&here, "f").await;
    let first = write(&here, ino, 0, 10).await;
    assert_eq!(*here.read(ino, 0).await.unwrap(), [first]);
    let second = write(&there, ino, 0, 10).await;
    here.getattr(ino).await.unwrap();
    assert_eq!(*here.read(ino, 0).await.unwrap(), [second]);
}

async fn an_own_write_is_seen_at_once(vol: Volume) {
    let meta = vol.client().await;
    let ino = open_new(&meta, "f").await;
    for _ in 0..3 {
        let slice = write(&meta, ino, 0, 10).await;
        assert_eq!(*meta.read(ino, 0).await.unwrap(), [slice]);
    }
}

async fn a_write_grows_the_file_and_what_it_is_charged_to(vol: Volume) {
    let meta = vol.client().await;
    let before = used_space(&meta).await;
    let ino = new_file(&meta, "f").await;
    write(&meta, ino, 0, 5000).await;
    assert_eq!(length(&meta, ino).await, 5000);
    assert_eq!(used_space(&meta).await - before, 8192);
    assert_eq!(
        meta.dir_stat(Ino::ROOT).await.unwrap(),
        DirStat { length: 5000, space: 8192, inodes: 1 }
    );
}

async fn a_write_inside_the_file_changes_only_its_times(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    write(&meta, ino, 0, 5000).await;
    let before = stored_attr(&meta, ino).await;
    let mtime = Timestamp { sec: 77, nsec: 7 };
    let slice = fresh(&meta, 10).await;
    meta.write(ino, 0, 100, slice, mtime).await.unwrap();
    let after = stored_attr(&meta, ino).await;
    assert_eq!((after.length, after.mtime), (5000, mtime));
    assert!(after.ctime > before.ctime, "the time of the commit");
    assert_eq!(after.atime, before.atime);
}

async fn a_hard_linked_file_is_charged_to_each_directory_as_often_as_it_is_in_it(vol: Volume) {
    let meta = vol.client().await;
    let root = Caller::root();
    let (ino, dir) = (new_file(&meta, "a").await, new_dir(&meta, "d").await);
    for other in ["b", "c"] {
        meta.link(&root, ino, dir, &name(other)).await.unwrap();
    }
    write(&meta, ino, 0, 5000).await;
    meta.flush().await.unwrap();
    let stat = |dir| meta.dir_stat(dir);
    assert_eq!(stat(dir).await.unwrap(), DirStat { length: 10_000, space: 16_384, inodes: 2 });
    let top = stat(Ino::ROOT).await.unwrap();
    assert_eq!(top, DirStat { length: 5000, space: 8192 + 4096, inodes: 2 });
}

async fn a_removed_open_file_grows_in_no_directory(vol: Volume) {
    let meta = vol.client().await;
    let ino = open_new(&meta, "f").await;
    remove(&meta, "f").await;
    write(&meta, ino, 0, 5000).await;
    meta.flush().await.unwrap();
    assert_eq!(meta.dir_stat(Ino::ROOT).await.unwrap(), DirStat::default());
}

async fn only_files_are_written(vol: Volume) {
    let meta = vol.client().await;
    let slice = fresh(&meta, 10).await;
    let dir = new_dir(&meta, "d").await;
    assert_eq!(refused(put(&meta, dir, 0, slice).await), Errno::EPERM);
    assert_eq!(refused(put(&meta, Ino(999), 0, slice).await), Errno::ENOENT);
}

async fn a_slice_that_does_not_fit_is_refused(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let slice = fresh(&meta, 10).await;
    for (at, slice) in [
        (CHUNK_SIZE - 9, slice),
        (0, Slice { off: 1, ..slice }),
        (0, Slice { len: 11, ..slice }),
        (0, Slice { len: 0, ..slice }),
    ] {
        assert_eq!(refused(put(&meta, ino, at, slice).await), Errno::EINVAL, "{slice:?}");
    }
    assert_eq!(records(&meta, ino, 0).await, []);
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

async fn a_truncated_file_gives_its_space_back(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    resize(&meta, ino, 10 * 4096).await;
    let full = used_space(&meta).await;
    resize(&meta, ino, 4097).await;
    assert_eq!(full - used_space(&meta).await, 8 * 4096);
    assert_eq!(meta.dir_stat(Ino::ROOT).await.unwrap().length, 4097);
}

async fn truncating_to_the_same_length_changes_nothing(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    resize(&meta, ino, 100).await;
    let before = stored_attr(&meta, ino).await;
    resize(&meta, ino, 100).await;
    assert_eq!(stored_attr(&meta, ino).await, before);
    assert_eq!(records(&meta, ino, 0).await.len(), 1);
}

async fn what_may_not_be_truncated_is_not(vol: Volume) {
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

async fn a_very_long_file_is_cut_and_grown_without_walking_over_its_chunks(vol: Volume) {
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

async fn what_may_not_be_allocated_is_not(vol: Volume) {
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
    let (fifo, _) = meta.mknod(&root, Ino::ROOT, &name("p"), kind, (0o644, 0)).await.unwrap();
    assert_eq!(refused(meta.fallocate(&root, fifo, none, 0, 1).await), Errno::EPIPE);
    let frozen = flagged(&meta, flag::IMMUTABLE).await;
    assert_eq!(refused(meta.fallocate(&root, frozen, none, 0, 1).await), Errno::EPERM);
    let only_append = flagged(&meta, flag::APPEND).await;
    assert_eq!(refused(meta.fallocate(&root, only_append, hole, 0, 1).await), Errno::EPERM);
    meta.fallocate(&root, only_append, keep, 0, 1).await.unwrap();
    meta.fallocate(&root, only_append, none, 0, 1).await.unwrap();
}

async fn a_copy_shares_the_slices_of_its_source(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (from, to) = (new_file(&meta, "a").await, new_file(&meta, "b").await);
    write_bytes(&meta, &blobs, from, 0, b"abcdefgh").await;
    let copied = copy(&meta, (from, 2), (to, 3), 4).await.unwrap();
    assert_eq!((copied.bytes, copied.length), (4, Some(7)));
    assert_eq!(read_bytes(&meta, &blobs, to, 0, 7).await, b"\0\0\0cdef");
    let [slice] = records(&meta, from, 0).await[..] else { panic!("one record") };
    assert_eq!(records(&meta, to, 0).await, [Slice { pos: 3, off: 2, len: 4, ..slice }]);
    assert_eq!(references(&meta, slice).await, 2);
    meta.flush().await.unwrap();
    assert_eq!(meta.dir_stat(Ino::ROOT).await.unwrap().length, 15);
}

async fn a_copy_ends_with_its_source(vol: Volume) {
    let meta = vol.client().await;
    let (from, to) = (new_file(&meta, "a").await, new_file(&meta, "b").await);
    write(&meta, from, 0, 100).await;
    let copied = copy(&meta, (from, 60), (to, 0), 1000).await.unwrap();
    assert_eq!((copied.bytes, copied.length), (40, Some(40)));
    let before = stored_attr(&meta, to).await;
    assert_eq!(copy(&meta, (from, 100), (to, 0), 10).await.unwrap().bytes, 0);
    assert_eq!(stored_attr(&meta, to).await, before);
}

async fn a_copy_splits_slices_at_chunk_boundaries(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (from, to) = (new_file(&meta, "a").await, new_file(&meta, "b").await);
    let base = CHUNK_SIZE - 4;
    write_bytes(&meta, &blobs, from, base, b"abcdefgh").await;
    copy(&meta, (from, base), (to, base + 2), 8).await.unwrap();
    assert_eq!(read_bytes(&meta, &blobs, to, base, 10).await, b"\0\0abcdefgh");
    let [first] = records(&meta, from, 0).await[..] else { panic!("one record") };
    let [second] = records(&meta, from, 1).await[..] else { panic!("one record") };
    assert_eq!(records(&meta, to, 0).await.len(), 1);
    assert_eq!(records(&meta, to, 1).await.len(), 2);
    assert_eq!((references(&meta, first).await, references(&meta, second).await), (3, 2));
}

async fn a_copy_of_a_hole_hides_what_was_there(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (from, to) = (new_file(&meta, "a").await, new_file(&meta, "b").await);
    write_bytes(&meta, &blobs, from, 3, b"x").await;
    resize(&meta, from, 3 * CHUNK_SIZE).await;
    write_bytes(&meta, &blobs, to, 0, b"abcdefgh").await;
    copy(&meta, (from, 0), (to, 1), 6).await.unwrap();
    assert_eq!(read_bytes(&meta, &blobs, to, 0, 8).await, b"a\0\0\0x\0\0h");
    // A chunk that is not there at all is a hole as well.
    copy(&meta, (from, 2 * CHUNK_SIZE), (to, 0), 3).await.unwrap();
    assert_eq!(read_bytes(&meta, &blobs, to, 0, 8).await, b"\0\0\0\0x\0\0h");
}

async fn a_copy_goes_from_file_to_file_only(vol: Volume) {
    let meta = vol.client().await;
    let (file, dir) = (new_file(&meta, "f").await, new_dir(&meta, "d").await);
    write(&meta, file, 0, 10).await;
    assert_eq!(refused(copy(&meta, (dir, 0), (file, 0), 1).await), Errno::EINVAL);
    assert_eq!(refused(copy(&meta, (file, 0), (dir, 0), 1).await), Errno::EINVAL);
    assert_eq!(refused(copy(&meta, (file, 0), (Ino(999), 0), 1).await), Errno::ENOENT);
    assert_eq!(refused(copy(&meta, (Ino(999), 0), (file, 0), 1).await), Errno::ENOENT);
    for flags in [flag::IMMUTABLE, flag::APPEND] {
        let to = flagged(&meta, flags).await;
        assert_eq!(refused(copy(&meta, (file, 0), (to, 0), 1).await), Errno::EPERM);
    }
}

async fn overlapping_ranges_of_one_file_are_refused(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let ino = new_file(&meta, "f").await;
    write_bytes(&meta, &blobs, ino, 0, b"abcdefgh").await;
    assert_eq!(refused(copy(&meta, (ino, 0), (ino, 3), 4).await), Errno::EINVAL);
    copy(&meta, (ino, 0), (ino, 4), 4).await.unwrap();
    assert_eq!(read_bytes(&meta, &blobs, ino, 0, 8).await, b"abcdabcd");
}

async fn an_unchanged_file_keeps_its_cache_when_opened_again(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    for keep_cache in [true, true] {
        let opened = meta.open_file(&Caller::root(), ino, OFlag::O_RDONLY).await.unwrap();
        assert_eq!(opened.keep_cache, keep_cache);
        meta.close_file(ino).await.unwrap();
    }
    let other = vol.client().await;
    assert!(!other.open_file(&Caller::root(), ino, OFlag::O_RDONLY).await.unwrap().keep_cache);
}

async fn a_file_changed_by_another_client_does_not_keep_its_cache(vol: Volume) {
    let (here, there) = (vol.client().await, vol.client().await);
    let ino = new_file(&here, "f").await;
    write(&there, ino, 0, 10).await;
    let open = async || here.open_file(&Caller::root(), ino, OFlag::O_RDONLY).await;
    let opened = open().await.unwrap();
    assert_eq!((opened.keep_cache, opened.attr.length), (false, 10));
    assert!(open().await.unwrap().keep_cache);
}

async fn flags_of_a_file_decide_how_it_is_opened(vol: Volume) {
    let meta = vol.client().await;
    let open = async |ino, flags| meta.open_file(&Caller::root(), ino, flags).await.map(drop);
    let frozen = flagged(&meta, flag::IMMUTABLE).await;
    assert_eq!(refused(open(frozen, OFlag::O_WRONLY).await), Errno::EPERM);
    open(frozen, OFlag::O_RDONLY).await.unwrap();
    let only_append = flagged(&meta, flag::APPEND).await;
    assert_eq!(refused(open(only_append, OFlag::O_WRONLY).await), Errno::EPERM);
    assert_eq!(refused(open(only_append, OFlag::O_TRUNC).await), Errno::EPERM);
    open(only_append, OFlag::O_WRONLY | OFlag::O_APPEND).await.unwrap();
    assert_eq!(refused(open(Ino(999), OFlag::O_RDONLY).await), Errno::ENOENT);
}

async fn a_trashed_file_is_only_read(vol: Volume) {
    let meta = vol.client().await;
    let ino = moved_to_trash(&meta).await;
    let open = async |flags| meta.open_file(&Caller::root(), ino, flags).await.map(drop);
    open(OFlag::O_RDONLY).await.unwrap();
    assert_eq!(refused(open(OFlag::O_RDWR).await), Errno::EPERM);
}

async fn permissions_are_asked_if_this_client_checks_them(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let stranger = Caller { check: true, ..Caller::user(1000, 1000) };
    let open = async |flags| meta.open_file(&stranger, ino, flags).await.map(drop);
    open(OFlag::O_RDONLY).await.unwrap();
    assert_eq!(refused(open(OFlag::O_WRONLY).await), Errno::EACCES);
    assert_eq!(refused(meta.truncate(&stranger, ino, 1).await), Errno::EACCES);
    meta.truncate_open(&stranger, ino, 1).await.unwrap();
    let none = FallocateFlags::empty();
    assert_eq!(refused(meta.fallocate(&stranger, ino, none, 0, 1).await), Errno::EACCES);
}

async fn a_read_only_client_opens_for_reading_only(vol: Volume) {
    let meta = vol.client().await;
    let ino = new_file(&meta, "f").await;
    let reader = vol.client_with(Options { read_only: true, ..Options::default() }).await;
    let open = async |flags| reader.open_file(&Caller::root(), ino, flags).await.map(drop);
    open(OFlag::O_RDONLY).await.unwrap();
    for flags in [OFlag::O_WRONLY, OFlag::O_RDWR, OFlag::O_TRUNC, OFlag::O_APPEND] {
        assert_eq!(refused(open(flags).await), Errno::EROFS, "{flags:?}");
    }
    let slice = fresh(&meta, 1).await;
    assert_eq!(refused(put(&reader, ino, 0, slice).await), Errno::EROFS);
}

async fn an_access_is_written_if_it_is_due(vol: Volume) {
    for (atime, is_written) in [(AtimeMode::Never, false), (AtimeMode::Relative, true)] {
        let meta = vol.client_with(Options { atime, ..Options::default() }).await;
        let ino = open_new(&meta, &format!("{atime:?}")).await;
        write(&meta, ino, 0, 10).await;
        let before = stored_attr(&meta, ino).await;
        meta.read(ino, 0).await.unwrap();
        meta.idle().await;
        let after = stored_attr(&meta, ino).await;
        assert_eq!(after.atime > before.atime, is_written, "{atime:?}");
        assert_eq!((after.mtime, after.ctime), (before.mtime, before.ctime));
        // Once is enough, with or without a view that is remembered.
        for _ in 0..2 {
            meta.read(ino, 0).await.unwrap();
            meta.idle().await;
        }
        assert_eq!(stored_attr(&meta, ino).await, after);
    }
}

async fn resize(meta: &Meta, ino: Ino, length: u64) {
    let attr = meta.truncate(&Caller::root(), ino, length).await.unwrap();
    assert_eq!(attr.length, length);
}

async fn punch(meta: &Meta, ino: Ino, at: u64, size: u64) {
    let mode = FallocateFlags::FALLOC_FL_KEEP_SIZE | FallocateFlags::FALLOC_FL_PUNCH_HOLE;
    meta.fallocate(&Caller::root(), ino, mode, at, size).await.unwrap();
}

/// A file with these flags.
async fn flagged(meta: &Meta, flags: u8) -> Ino {
    let ino = new_file(meta, &format!("flags-{flags}")).await;
    let set = AttrSet { flags: Some(flags), ..AttrSet::default() };
    meta.setattr(&Caller::root(), ino, set).await.unwrap();
    ino
}

/// A file whose parent is an hour directory of the trash.
async fn moved_to_trash(meta: &Meta) -> Ino {
    let ino = new_file(meta, "trashed").await;
    let mut attr = stored_attr(meta, ino).await;
    attr.parent = Ino(Ino::TRASH.0 + 1);
    put_node(meta, ino, &attr).await;
    ino
}

mod logged {
    use super::*;

    on_every_engine! { super::super::with_change_log(); every_change_of_content_has_its_line }

    async fn every_change_of_content_has_its_line(vol: Volume) {
        let meta = vol.client().await;
        let _blobs = Blobs::serve(&meta);
        let (a, b) = (open_new(&meta, "a").await, new_file(&meta, "b").await);
        let slice = fresh(&meta, 10).await;
        let mtime = Timestamp { sec: 77, nsec: 7 };
        meta.write(a, 1, 5, slice, mtime).await.unwrap();
        resize(&meta, a, CHUNK_SIZE + 12).await;
        meta.truncate_open(&Caller::root(), a, CHUNK_SIZE + 11).await.unwrap();
        punch(&meta, a, 3, 4).await;
        copy(&meta, (a, CHUNK_SIZE + 5), (b, 0), 100).await.unwrap();
        remove(&meta, "a").await;
        meta.close_file(a).await.unwrap();
        remove(&meta, "b").await;
        meta.idle().await;

        let ops = log(&meta).await;
        let sid = meta.facts().sid();
        let (id, chunk) = (slice.id, CHUNK_SIZE);
        for line in [
            format!("WRITE({a},1,5,{id},10,77,7):0"),
            format!("TRUNCATE({a},{},{},0)", chunk + 15, chunk + 12),
            format!("TRUNCATE({a},{},{},1)", chunk + 12, chunk + 11),
            format!("FALLOCATE({a},3,4,3)"),
            format!("COPYFILERANGE({a},{},{b},0,6):6", chunk + 5),
            format!("DELSUSTAINED({sid},{a})"),
            format!("DELCHUNK({a},1)"),
            format!("DELCHUNK({b},0)"),
            format!("DELETESLICE({id},10)"),
        ] {
            assert_eq!(ops.iter().filter(|op| *op == &line).count(), 1, "{line} in {ops:#?}");
        }
    }
}
