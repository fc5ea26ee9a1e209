//! Content: what is written is read, however it was written.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, SeekFrom as Whence, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use crate::fixture::{KIB, MIB, assert_same, bytes, open, refused};
use crate::mapped::Mapped;
use crate::on_both;
use crate::support::fixture::{Fixture, Mounted};

/// Size of a chunk.
const CHUNK: u64 = 64 * MIB;

on_both! {
    written_data_is_read_across_blocks_and_chunks,
    reads_see_writes_of_other_handles_at_once,
    unwritten_data_reads_as_zeros,
    a_file_that_grows_again_shows_zeros,
    reads_end_at_the_end_of_the_file,
    a_shared_map_writes_the_file,
    a_shared_map_sees_writes,
    a_private_map_writes_nothing,
    allocating_grows_a_file_unless_keep_size_is_set,
    holes_can_be_punched,
    holes_between_small_writes_are_found_to_the_byte,
    ranges_can_be_zeroed,
    other_modes_of_fallocate_are_refused,
    regression_seeking_finds_the_end_of_data,
    a_range_can_be_copied,
    a_range_can_be_copied_within_a_file,
    concurrent_writes_are_not_lost,
    vectored_io_and_syncs_work,
    the_largest_files_end_where_they_should,
}

fn written_data_is_read_across_blocks_and_chunks(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    let ranges = [(0, 100), (4 * MIB - 7, 14), (CHUNK - MIB, 2 * MIB), (2 * CHUNK - 1, 2)];
    for (seed, (at, len)) in (1..).zip(ranges) {
        file.write_all_at(&bytes(seed, len), at).unwrap();
    }
    for sync in [false, true] {
        if sync {
            file.sync_all().unwrap();
            drop_caches();
        }
        for (seed, (at, len)) in (1..).zip(ranges) {
            assert_same(&read(&file, at, len), &bytes(seed, len));
        }
        assert_eq!(file.metadata().unwrap().size(), 2 * CHUNK + 1);
    }
}

fn reads_see_writes_of_other_handles_at_once(fixture: &Fixture) {
    let mount = fixture.start();
    let (writer, reader) = (open(mount.at("f")), open(mount.at("f")));
    for turn in 0..50_u64 {
        writer.write_all_at(&bytes(turn, 10 * KIB), turn * 5 * KIB).unwrap();
        assert_same(&read(&reader, turn * 5 * KIB, 10 * KIB), &bytes(turn, 10 * KIB));
    }
}

fn unwritten_data_reads_as_zeros(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    file.write_all_at(b"end", 10 * MIB).unwrap();
    assert_same(&read(&file, 0, 10 * MIB), &vec![0; usize::try_from(10 * MIB).unwrap()]);
    file.set_len(CHUNK + 5).unwrap();
    assert_eq!(read(&file, 10 * MIB, 10), b"end\0\0\0\0\0\0\0");
    assert_eq!(read(&file, CHUNK - 5, 10), [0; 10]);
}

fn a_file_that_grows_again_shows_zeros(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    file.write_all_at(&bytes(4, 5 * MIB), 0).unwrap();
    for cut in [4 * MIB + 3, MIB + 1, 10, 0] {
        file.set_len(cut).unwrap();
        file.set_len(5 * MIB).unwrap();
        let mut expected = bytes(4, cut);
        expected.resize(usize::try_from(5 * MIB).unwrap(), 0);
        assert_same(&fs::read(mount.at("f")).unwrap(), &expected);
    }
}

fn reads_end_at_the_end_of_the_file(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "text").unwrap();
    let file = open(mount.at("f"));
    let mut buffer = [0; 10];
    assert_eq!(file.read_at(&mut buffer, 2).unwrap(), 2);
    assert_eq!(file.read_at(&mut buffer, 4).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
    file.set_len(1).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 1);
}

fn a_shared_map_writes_the_file(fixture: &Fixture) {
    let mount = fixture.start();
    let content = bytes(5, MIB + 100);
    fs::write(mount.at("f"), &content).unwrap();
    let file = open(mount.at("f"));
    let mut map = Mapped::shared(&file, content.len());
    assert_same(map.bytes(), &content);
    map.bytes_mut()[100_000..100_005].copy_from_slice(b"a map");
    map.sync();
    assert_eq!(read(&file, 100_000, 5), b"a map");
    map.bytes_mut()[5] = b'!';
    drop(map);
    drop(file);
    // Data that was not synced explicitly is stored when the file is closed and opened.
    let mut expected = content;
    expected[100_000..100_005].copy_from_slice(b"a map");
    expected[5] = b'!';
    assert_same(&fs::read(mount.at("f")).unwrap(), &expected);
    drop(mount);
    let again = fixture.mount(&[]);
    assert_same(&fs::read(again.at("f")).unwrap(), &expected);
}

fn a_shared_map_sees_writes(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    file.set_len(3 * 4096).unwrap();
    let map = Mapped::shared(&file, 3 * 4096);
    assert_eq!(map.bytes()[4096], 0);
    file.write_all_at(b"written", 4096).unwrap();
    assert_eq!(&map.bytes()[4096..4103], b"written");
}

fn a_private_map_writes_nothing(fixture: &Fixture) {
    let mount = fixture.start();
    fs::write(mount.at("f"), "original").unwrap();
    let file = File::open(mount.at("f")).unwrap();
    let mut map = Mapped::private(&file, 8);
    map.bytes_mut()[..3].copy_from_slice(b"ANO");
    assert_eq!(map.bytes(), b"ANOginal");
    drop(map);
    assert_eq!(fs::read(mount.at("f")).unwrap(), b"original");
}

fn allocating_grows_a_file_unless_keep_size_is_set(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    file.write_all_at(b"text", 0).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 8 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 4);
    fallocate(&file, FallocateFlags::empty(), MIB, 7 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 8 * MIB);
    assert_eq!(read(&file, 0, 6), b"text\0\0");
    // Never shorter, and existing data stays.
    fallocate(&file, FallocateFlags::empty(), 0, 2).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 8 * MIB);
    assert_eq!(read(&file, 0, 4), b"text");
    assert_eq!(refused(fallocate(&file, FallocateFlags::empty(), 0, 0)), Errno::INVAL);
}

fn holes_between_small_writes_are_found_to_the_byte(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    file.set_len(MIB).unwrap();
    let mut expected = Vec::new();
    for at in (0..12).map(|n| n * 20_000 + 7) {
        file.write_all_at(b"data", at).unwrap();
        expected.push((at, at + 4));
    }
    let found = || {
        let (mut all, mut at) = (Vec::new(), 0);
        while let Ok(start) = seek(&file, Whence::Data(at)) {
            at = seek(&file, Whence::Hole(start)).unwrap();
            all.push((start, at));
        }
        all
    };
    assert_eq!(found(), expected, "as written");
    file.sync_all().unwrap();
    assert_eq!(found(), expected, "as stored");
    // Twice as many records: reading them triggers compaction.
    for (at, _) in &expected {
        file.write_all_at(b"DATA", *at).unwrap();
    }
    file.sync_all().unwrap();
    for _ in 0..5 {
        assert_eq!(read(&file, 7, 4), b"DATA");
        assert_eq!(found(), expected, "after a rewrite");
    }
}

fn holes_can_be_punched(fixture: &Fixture) {
    let mount = fixture.start();
    let (file, mut content) = filled(&mount);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for (at, len) in [(100, 50), (MIB, 5 * MIB), (9 * MIB - 10, 100)] {
        fallocate(&file, punch, at, len).unwrap();
        let end = (at + len).min(9 * MIB);
        content[range(at, end)].fill(0);
        assert_same(&read(&file, 0, 9 * MIB), &content);
    }
    assert_eq!(file.metadata().unwrap().size(), 9 * MIB);
    assert_same(&fs::read(mount.at("f")).unwrap(), &content);
}

fn ranges_can_be_zeroed(fixture: &Fixture) {
    let mount = fixture.start();
    let (file, mut content) = filled(&mount);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 10, 5 * MIB).unwrap();
    content[range(10, 10 + 5 * MIB)].fill(0);
    assert_same(&read(&file, 0, 9 * MIB), &content);
    let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, keep, 9 * MIB - 5, 100).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 9 * MIB);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 9 * MIB - 5, 100).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 9 * MIB + 95);
    content[range(9 * MIB - 5, 9 * MIB)].fill(0);
    content.resize(content.len() + 95, 0);
    assert_same(&fs::read(mount.at("f")).unwrap(), &content);
}

fn other_modes_of_fallocate_are_refused(fixture: &Fixture) {
    let mount = fixture.start();
    let (file, content) = filled(&mount);
    for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(refused(fallocate(&file, mode, 0, 4096)), Errno::OPNOTSUPP);
    }
    assert_eq!(refused(fallocate(&file, FallocateFlags::PUNCH_HOLE, 0, 1)), Errno::OPNOTSUPP);
    assert_same(&fs::read(mount.at("f")).unwrap(), &content);
}

fn regression_seeking_finds_the_end_of_data(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    file.write_all_at(&bytes(6, MIB), 0).unwrap();
    file.write_all_at(&bytes(7, MIB), 2 * CHUNK).unwrap();
    let size = 2 * CHUNK + MIB;
    for synced in [false, true] {
        if synced {
            file.sync_all().unwrap();
        }
        assert_eq!(seek(&file, Whence::Data(10)).unwrap(), 10);
        assert_eq!(seek(&file, Whence::Data(2 * CHUNK + 5)).unwrap(), 2 * CHUNK + 5);
        // A file system may report data where there is none, but never the opposite.
        let hole = seek(&file, Whence::Hole(0)).unwrap();
        assert!((MIB..=size).contains(&hole), "a hole at {hole}");
        assert_eq!(seek(&file, Whence::Hole(2 * CHUNK)).unwrap(), size);
        assert_eq!(refused(seek(&file, Whence::Data(size))), Errno::NXIO);
        assert_eq!(refused(seek(&file, Whence::Hole(size + 1))), Errno::NXIO);
        let mut data = 0;
        let mut all = Vec::new();
        while let Ok(start) = seek(&file, Whence::Data(data)) {
            data = seek(&file, Whence::Hole(start)).unwrap();
            all.push((start, data));
        }
        let covers = |at| all.iter().any(|(start, end)| (*start..*end).contains(&at));
        assert!([0, MIB - 1, 2 * CHUNK, size - 1].into_iter().all(covers), "{all:?}");
    }
}

fn a_range_can_be_copied(fixture: &Fixture) {
    let mount = fixture.start();
    let (source, content) = filled(&mount);
    let target = open(mount.at("g"));
    let (mut from, mut to) = (100, 5);
    let mut left = usize::try_from(8 * MIB).unwrap();
    while left > 0 {
        let copied = copy_file_range(&source, Some(&mut from), &target, Some(&mut to), left);
        let copied = copied.unwrap();
        assert!(copied > 0);
        left -= copied;
    }
    assert_same(&read(&target, 5, 8 * MIB), &content[range(100, 100 + 8 * MIB)]);
    assert_eq!(read(&target, 0, 5), [0; 5]);
    // Later changes of one file do not show in the other.
    source.write_all_at(&[9; 1000], 200).unwrap();
    assert_same(&read(&target, 5, 8 * MIB), &content[range(100, 100 + 8 * MIB)]);
    let (mut past, mut to) = (9 * MIB, 0);
    assert_eq!(copy_file_range(&source, Some(&mut past), &target, Some(&mut to), 10).unwrap(), 0);
}

fn a_range_can_be_copied_within_a_file(fixture: &Fixture) {
    let mount = fixture.start();
    let (file, content) = filled(&mount);
    let (mut from, mut to) = (0, 9 * MIB);
    let len = usize::try_from(MIB).unwrap();
    assert_eq!(copy_file_range(&file, Some(&mut from), &file, Some(&mut to), len).unwrap(), len);
    assert_same(&read(&file, 9 * MIB, MIB), &content[..len]);
    let (mut from, mut to) = (0, 10);
    let overlapping = copy_file_range(&file, Some(&mut from), &file, Some(&mut to), 100);
    assert_eq!(refused(overlapping), Errno::INVAL);
}

fn concurrent_writes_are_not_lost(fixture: &Fixture) {
    const PART: u64 = 100 * KIB + 3;
    let mount = fixture.start();
    std::thread::scope(|scope| {
        for writer in 0..6_u64 {
            let mount = &mount;
            scope.spawn(move || {
                let file = open(mount.at("f"));
                for turn in 0..10 {
                    let place = turn * 6 + writer;
                    file.write_all_at(&bytes(place, PART), place * PART).unwrap();
                }
            });
        }
    });
    let expected: Vec<u8> = (0..60).flat_map(|place| bytes(place, PART)).collect();
    assert_same(&fs::read(mount.at("f")).unwrap(), &expected);
    drop(mount);
    let again = fixture.mount(&[]);
    assert_same(&fs::read(again.at("f")).unwrap(), &expected);
    drop(again);
    fixture.check();
}

fn vectored_io_and_syncs_work(fixture: &Fixture) {
    let mount = fixture.start();
    let mut file = open(mount.at("f"));
    let parts = [std::io::IoSlice::new(b"one "), std::io::IoSlice::new(b"two")];
    assert_eq!(file.write_vectored(&parts).unwrap(), 7);
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    File::open(mount.path()).unwrap().sync_all().unwrap();
    rustix::fs::syncfs(&file).unwrap();
    file.seek(SeekFrom::End(-3)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "two");
}

fn the_largest_files_end_where_they_should(fixture: &Fixture) {
    let mount = fixture.start();
    let file = open(mount.at("f"));
    let end = 1 << 45;
    file.write_all_at(b"far", end - 3).unwrap();
    assert_eq!(read(&file, end - 5, 5), b"\0\0far");
    assert_eq!(file.metadata().unwrap().size(), end);
    let beyond = refused(file.set_len((1 << 57) + 1));
    assert!([Errno::FBIG, Errno::INVAL].contains(&beyond), "{beyond}");
    assert_eq!(file.metadata().unwrap().size(), end);
}

/// Creates a file `f` of 9 MiB, and returns its content.
fn filled(mount: &Mounted) -> (File, Vec<u8>) {
    let content = bytes(8, 9 * MIB);
    let file = open(mount.at("f"));
    file.write_all_at(&content, 0).unwrap();
    (file, content)
}

#[track_caller]
fn read(file: &File, at: u64, len: u64) -> Vec<u8> {
    let mut found = vec![0; usize::try_from(len).unwrap()];
    file.read_exact_at(&mut found, at).unwrap();
    found
}

fn range(start: u64, end: u64) -> std::ops::Range<usize> {
    usize::try_from(start).unwrap()..usize::try_from(end).unwrap()
}

/// Drops the page cache, so that the next read asks the client.
fn drop_caches() {
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}
