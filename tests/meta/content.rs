//! Operations on file content, each behaviour once, on every engine.

use jfs::meta::record::attr::flag;
use jfs::meta::record::{CHUNK_SIZE, DirStat, Setting, Slice};
use jfs::meta::{AtimeMode, Caller, Ino, Options, Timestamp};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag};

use crate::on_every_engine;
use crate::support::data::{
    Blobs, copy, flagged, fresh, length, moved_to_trash, name, new_dir, new_file, open_new, punch,
    put, read_bytes, records, references, refused, remove, resize, used_space, write, write_bytes,
};
use crate::support::records::{log, stored_attr};
use crate::support::volume::{Volume, setting};

on_every_engine! { super::setting();
    a_new_file_has_no_slices,
    only_files_are_read,
    a_written_slice_is_read,
    later_slices_hide_earlier_ones,
    a_write_by_another_client_is_seen_once_the_attr_is_read_again,
    a_write_by_this_client_is_seen_at_once,
    a_write_grows_the_file_and_all_usage,
    a_write_inside_the_file_changes_only_its_times,
    a_hard_linked_file_is_charged_to_each_directory_once_per_entry,
    growth_of_a_removed_open_file_is_charged_to_no_directory,
    only_files_are_written,
    a_slice_that_does_not_fit_is_refused,
    a_copy_shares_the_slices_of_its_source,
    a_copy_ends_at_the_end_of_its_source,
    a_copy_splits_slices_at_chunk_boundaries,
    a_copy_of_a_hole_hides_earlier_data,
    only_regular_files_are_copied,
    overlapping_ranges_of_one_file_are_refused,
    an_unchanged_file_keeps_its_cache_when_opened_again,
    a_file_changed_by_another_client_does_not_keep_its_cache,
    flags_of_a_file_decide_how_it_is_opened,
    a_trashed_file_is_read_only,
    permissions_are_checked_if_this_client_checks_them,
    a_read_only_client_opens_for_reading_only,
    an_access_time_is_written_if_it_is_due,
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

async fn a_written_slice_is_read(vol: Volume) {
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

async fn a_write_by_another_client_is_seen_once_the_attr_is_read_again(vol: Volume) {
    let (here, there) = (vol.client().await, vol.client().await);
    let ino = open_new(&here, "f").await;
    let first = write(&here, ino, 0, 10).await;
    assert_eq!(*here.read(ino, 0).await.unwrap(), [first]);
    let second = write(&there, ino, 0, 10).await;
    here.getattr(ino).await.unwrap();
    assert_eq!(*here.read(ino, 0).await.unwrap(), [second]);
}

async fn a_write_by_this_client_is_seen_at_once(vol: Volume) {
    let meta = vol.client().await;
    let ino = open_new(&meta, "f").await;
    for _ in 0..3 {
        let slice = write(&meta, ino, 0, 10).await;
        assert_eq!(*meta.read(ino, 0).await.unwrap(), [slice]);
    }
}

async fn a_write_grows_the_file_and_all_usage(vol: Volume) {
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

async fn a_hard_linked_file_is_charged_to_each_directory_once_per_entry(vol: Volume) {
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

async fn growth_of_a_removed_open_file_is_charged_to_no_directory(vol: Volume) {
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

async fn a_copy_ends_at_the_end_of_its_source(vol: Volume) {
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

async fn a_copy_of_a_hole_hides_earlier_data(vol: Volume) {
    let meta = vol.client().await;
    let blobs = Blobs::serve(&meta);
    let (from, to) = (new_file(&meta, "a").await, new_file(&meta, "b").await);
    write_bytes(&meta, &blobs, from, 3, b"x").await;
    resize(&meta, from, 3 * CHUNK_SIZE).await;
    write_bytes(&meta, &blobs, to, 0, b"abcdefgh").await;
    copy(&meta, (from, 0), (to, 1), 6).await.unwrap();
    assert_eq!(read_bytes(&meta, &blobs, to, 0, 8).await, b"a\0\0\0x\0\0h");
    // A chunk that does not exist is a hole as well.
    copy(&meta, (from, 2 * CHUNK_SIZE), (to, 0), 3).await.unwrap();
    assert_eq!(read_bytes(&meta, &blobs, to, 0, 8).await, b"\0\0\0\0x\0\0h");
}

async fn only_regular_files_are_copied(vol: Volume) {
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

async fn a_trashed_file_is_read_only(vol: Volume) {
    let meta = vol.client().await;
    let ino = moved_to_trash(&meta).await;
    let open = async |flags| meta.open_file(&Caller::root(), ino, flags).await.map(drop);
    open(OFlag::O_RDONLY).await.unwrap();
    assert_eq!(refused(open(OFlag::O_RDWR).await), Errno::EPERM);
}

async fn permissions_are_checked_if_this_client_checks_them(vol: Volume) {
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

async fn an_access_time_is_written_if_it_is_due(vol: Volume) {
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
        // Once is enough, with or without a cached view.
        for _ in 0..2 {
            meta.read(ino, 0).await.unwrap();
            meta.idle().await;
        }
        assert_eq!(stored_attr(&meta, ino).await, after);
    }
}

mod logged {
    use super::*;

    on_every_engine! { super::super::with_change_log(); every_change_of_content_is_logged }

    async fn every_change_of_content_is_logged(vol: Volume) {
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
        let sid = meta.context().sid();
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
