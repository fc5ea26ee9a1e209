//! Reading and writing.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::thread;

use jfs::fuse::{Backing, InitOptions};
use rustix::fs::{
    FallocateFlags, IFlags, OFlags, copy_file_range, fallocate, ioctl_getflags, ioctl_setflags,
};
use rustix::io::Errno;

use crate::fixture::{Fixture, Process};
use crate::memory_fs::Behaviour;
use crate::timeout::{MOUNTED, within};

const MIB: usize = 1 << 20;

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 13).to_le_bytes()[0]).collect()
}

fn large() -> InitOptions {
    InitOptions { max_io: 1 << 20, ..InitOptions::default() }
}

#[test]
fn written_data_is_read_back() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let content = pattern(3 * MIB + 17);
        fs::write(fixture.path("f"), &content).unwrap();
        assert!(fixture.fs.content("f") == content);
        assert!(fs::read(fixture.path("f")).unwrap() == content);
    });
}

#[test]
fn a_write_of_a_mebibyte_arrives_as_one_request() {
    within(MOUNTED, || {
        let fixture = Fixture::with_init(&large());
        let content = pattern(MIB);
        let mut file = fixture.open("f");
        file.write_all(&content).unwrap();
        assert_eq!(fixture.fs.seen.largest_write.load(Ordering::SeqCst) as usize, MIB);
        assert_eq!(fixture.fs.seen.writes.load(Ordering::SeqCst), 1);
        assert!(fixture.fs.content("f") == content);
    });
}

#[test]
fn a_read_of_a_mebibyte_arrives_as_one_request_if_the_kernel_reads_that_far_ahead() {
    within(MOUNTED, || {
        let mut fixture = Fixture::with_init(&large());
        fixture.mount().read_ahead(1 << 20).unwrap();
        let content = pattern(8 * MIB);
        fixture.file("f", &content);
        assert!(fs::read(fixture.path("f")).unwrap() == content);
        assert_eq!(fixture.fs.seen.largest_read.load(Ordering::SeqCst) as usize, MIB);
    });
}

#[test]
fn writes_that_continue_as_tasks_keep_their_data() {
    within(MOUNTED, || {
        let fixture = Fixture::with_init(&large());
        let ino = fixture.file("f", &[]);
        fixture.fs.behave(ino, Behaviour::Task);
        let content = pattern(16 * MIB);
        let file = fixture.open("f");
        thread::scope(|scope| {
            for (n, part) in content.chunks(2 * MIB).enumerate() {
                let file = &file;
                scope.spawn(move || file.write_all_at(part, (n * 2 * MIB) as u64).unwrap());
            }
        });
        assert!(fixture.fs.content("f") == content);
    });
}

#[test]
fn a_reply_may_consist_of_many_slices() {
    within(MOUNTED, || {
        let fixture = Fixture::with_init(&large());
        let content = pattern(2 * MIB + 5);
        let ino = fixture.file("f", &content);
        // The last is more slices than one call to the kernel takes.
        for size in [1 << 20, 65537, 4096, 1000, 100] {
            fixture.fs.behave(ino, Behaviour::Gather(size));
            let file = rustix::fs::open(fixture.path("f"), OFlags::RDONLY, 0.into()).unwrap();
            let mut found = Vec::new();
            fs::File::from(file).read_to_end(&mut found).unwrap();
            assert!(found == content, "in slices of {size}");
        }
    });
}

#[test]
fn a_reply_from_a_task_may_consist_of_many_buffers() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let content = pattern(MIB + 5);
        let ino = fixture.file("f", &content);
        fixture.fs.behave(ino, Behaviour::Task);
        assert!(fs::read(fixture.path("f")).unwrap() == content);
    });
}

#[test]
fn many_processes_read_at_once() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let content = pattern(300_000);
        for n in 0..64 {
            let ino = fixture.file(&format!("f{n}"), &content);
            let behaviour = if n % 2 == 0 { Behaviour::Plain } else { Behaviour::Task };
            fixture.fs.behave(ino, behaviour);
        }
        let readers: Vec<Process> = (0..64)
            .map(|n| Process::start("cat", &[fixture.path(&format!("f{n}")).to_str().unwrap()]))
            .collect();
        for reader in readers {
            let (succeeded, found) = reader.finish();
            assert!(succeeded && found == content);
        }
    });
}

#[test]
fn a_range_is_copied_without_being_read() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let content = pattern(100_000);
        fixture.file("from", &content);
        fixture.file("to", &[]);
        let (from, to) = (fixture.open("from"), fixture.open("to"));
        let copied = copy_file_range(&from, Some(&mut 1000), &to, Some(&mut 50), 5000).unwrap();
        assert_eq!(copied, 5000);
        assert!(fixture.fs.content("to")[50..] == content[1000..6000]);
        assert_eq!(fixture.fs.seen.reads.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn holes_and_data_are_found() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fixture.file("f", &[&[0; 100][..], &[1; 50], &[0; 10]].concat());
        let file = fixture.open("f");
        let seek = |whence| rustix::fs::seek(&file, whence);
        assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(100));
        assert_eq!(seek(rustix::fs::SeekFrom::Hole(100)), Ok(150));
        let mut plain = &file;
        assert_eq!(plain.seek(SeekFrom::End(-10)).unwrap(), 150);
    });
}

#[test]
fn space_is_allocated_and_deallocated() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        fixture.file("f", &[7; 100]);
        let file = fixture.open("f");
        fallocate(&file, FallocateFlags::empty(), 0, 200).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 200);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 10, 20).unwrap();
        assert_eq!(fixture.fs.content("f")[9..31], [&[7; 1][..], &[0; 20], &[7; 1]].concat());
        assert_eq!(fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 10), Err(Errno::OPNOTSUPP));
    });
}

#[test]
fn flags_of_files_are_set_by_ioctl() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let file = fixture.open("f");
        ioctl_setflags(&file, IFlags::IMMUTABLE | IFlags::APPEND).unwrap();
        assert_eq!(ioctl_getflags(&file).unwrap(), IFlags::IMMUTABLE | IFlags::APPEND);
    });
}

#[test]
fn data_written_through_the_write_back_cache_arrives() {
    within(MOUNTED, || {
        let init = InitOptions { writeback_cache: true, ..large() };
        let fixture = Fixture::with_init(&init);
        let mut file = fixture.open("f");
        for part in pattern(MIB).chunks(1000) {
            file.write_all(part).unwrap();
        }
        file.sync_all().unwrap();
        assert!(fixture.fs.content("f") == pattern(MIB));
        assert!(fixture.fs.seen.writes.load(Ordering::SeqCst) < 100);
    });
}

#[test]
fn a_file_with_a_backing_file_is_read_and_written_by_the_kernel() {
    within(MOUNTED, || {
        let fixture =
            Fixture::with_init(&InitOptions { passthrough: true, ..InitOptions::default() });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backing");
        fs::write(&path, "backing").unwrap();
        let backing_file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let backing = Backing::new(fixture.session.device(), &backing_file).unwrap();
        let ino = fixture.file("f", b"unused!");
        fixture.fs.pass_through(ino, backing.id());
        let file = fixture.open("f");
        let mut found = [0; 7];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"backing");
        file.write_all_at(b"B", 0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"Backing");
        let seen = &fixture.fs.seen;
        assert_eq!(seen.reads.load(Ordering::SeqCst) + seen.writes.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_dropped_reply_is_an_error_for_the_caller() {
    within(MOUNTED, || {
        let fixture = Fixture::new();
        let ino = fixture.file("f", b"content");
        for behaviour in [Behaviour::Forget, Behaviour::Panic] {
            fixture.fs.behave(ino, behaviour);
            let error = fs::read(fixture.path("f")).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{behaviour:?}");
        }
        // More often than there are threads to lose.
        fixture.fs.behave(ino, Behaviour::Plain);
        assert_eq!(fs::read(fixture.path("f")).unwrap(), b"content");
    });
}
