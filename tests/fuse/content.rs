//! Reading and writing.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::thread;

use jfs::fuse::{Backing, Wishes};
use rustix::fs::{
    FallocateFlags, IFlags, OFlags, copy_file_range, fallocate, ioctl_getflags, ioctl_setflags,
};
use rustix::io::Errno;

use crate::rig::{Process, Rig};
use crate::synth::Behaviour;
use crate::timeout::{MOUNTED, within};

const MIB: usize = 1 << 20;

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 13).to_le_bytes()[0]).collect()
}

fn large() -> Wishes {
    Wishes { max_io: 1 << 20, ..Wishes::default() }
}

#[test]
fn what_is_written_is_read() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let content = pattern(3 * MIB + 17);
        fs::write(rig.path("f"), &content).unwrap();
        assert!(rig.synth.content("f") == content);
        assert!(fs::read(rig.path("f")).unwrap() == content);
    });
}

#[test]
fn a_write_of_a_mebibyte_arrives_as_one_request() {
    within(MOUNTED, || {
        let rig = Rig::wishing(&large());
        let content = pattern(MIB);
        let mut file = rig.open("f");
        file.write_all(&content).unwrap();
        assert_eq!(rig.synth.seen.largest_write.load(Ordering::SeqCst) as usize, MIB);
        assert_eq!(rig.synth.seen.writes.load(Ordering::SeqCst), 1);
        assert!(rig.synth.content("f") == content);
    });
}

#[test]
fn a_read_of_a_mebibyte_arrives_as_one_request_if_the_kernel_reads_that_far_ahead() {
    within(MOUNTED, || {
        let mut rig = Rig::wishing(&large());
        rig.mount().read_ahead(1 << 20).unwrap();
        let content = pattern(8 * MIB);
        rig.file("f", &content);
        assert!(fs::read(rig.path("f")).unwrap() == content);
        assert_eq!(rig.synth.seen.largest_read.load(Ordering::SeqCst) as usize, MIB);
    });
}

#[test]
fn writes_that_go_on_as_tasks_keep_their_data() {
    within(MOUNTED, || {
        let rig = Rig::wishing(&large());
        let ino = rig.file("f", &[]);
        rig.synth.behave(ino, Behaviour::Task);
        let content = pattern(16 * MIB);
        let file = rig.open("f");
        thread::scope(|scope| {
            for (n, part) in content.chunks(2 * MIB).enumerate() {
                let file = &file;
                scope.spawn(move || file.write_all_at(part, (n * 2 * MIB) as u64).unwrap());
            }
        });
        assert!(rig.synth.content("f") == content);
    });
}

#[test]
fn an_answer_may_lie_in_many_places() {
    within(MOUNTED, || {
        let rig = Rig::wishing(&large());
        let content = pattern(2 * MIB + 5);
        let ino = rig.file("f", &content);
        // The last is more slices than one call to the kernel takes.
        for size in [1 << 20, 65537, 4096, 1000, 100] {
            rig.synth.behave(ino, Behaviour::Gather(size));
            let file = rustix::fs::open(rig.path("f"), OFlags::RDONLY, 0.into()).unwrap();
            let mut found = Vec::new();
            fs::File::from(file).read_to_end(&mut found).unwrap();
            assert!(found == content, "in slices of {size}");
        }
    });
}

#[test]
fn an_answer_from_a_task_may_lie_in_many_places() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let content = pattern(MIB + 5);
        let ino = rig.file("f", &content);
        rig.synth.behave(ino, Behaviour::Task);
        assert!(fs::read(rig.path("f")).unwrap() == content);
    });
}

#[test]
fn many_processes_read_at_once() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let content = pattern(300_000);
        for n in 0..64 {
            let ino = rig.file(&format!("f{n}"), &content);
            let behaviour = if n % 2 == 0 { Behaviour::Plain } else { Behaviour::Task };
            rig.synth.behave(ino, behaviour);
        }
        let readers: Vec<Process> = (0..64)
            .map(|n| Process::start("cat", &[rig.path(&format!("f{n}")).to_str().unwrap()]))
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
        let rig = Rig::new();
        let content = pattern(100_000);
        rig.file("from", &content);
        rig.file("to", &[]);
        let (from, to) = (rig.open("from"), rig.open("to"));
        let copied = copy_file_range(&from, Some(&mut 1000), &to, Some(&mut 50), 5000).unwrap();
        assert_eq!(copied, 5000);
        assert!(rig.synth.content("to")[50..] == content[1000..6000]);
        assert_eq!(rig.synth.seen.reads.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn holes_and_data_are_found() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.file("f", &[&[0; 100][..], &[1; 50], &[0; 10]].concat());
        let file = rig.open("f");
        let seek = |whence| rustix::fs::seek(&file, whence);
        assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(100));
        assert_eq!(seek(rustix::fs::SeekFrom::Hole(100)), Ok(150));
        let mut plain = &file;
        assert_eq!(plain.seek(SeekFrom::End(-10)).unwrap(), 150);
    });
}

#[test]
fn space_is_allocated_and_given_up() {
    within(MOUNTED, || {
        let rig = Rig::new();
        rig.file("f", &[7; 100]);
        let file = rig.open("f");
        fallocate(&file, FallocateFlags::empty(), 0, 200).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 200);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 10, 20).unwrap();
        assert_eq!(rig.synth.content("f")[9..31], [&[7; 1][..], &[0; 20], &[7; 1]].concat());
        assert_eq!(fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 10), Err(Errno::OPNOTSUPP));
    });
}

#[test]
fn flags_of_files_are_set_by_ioctl() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let file = rig.open("f");
        ioctl_setflags(&file, IFlags::IMMUTABLE | IFlags::APPEND).unwrap();
        assert_eq!(ioctl_getflags(&file).unwrap(), IFlags::IMMUTABLE | IFlags::APPEND);
    });
}

#[test]
fn what_is_written_through_the_write_back_cache_arrives() {
    within(MOUNTED, || {
        let wishes = Wishes { writeback_cache: true, ..large() };
        let rig = Rig::wishing(&wishes);
        let mut file = rig.open("f");
        for part in pattern(MIB).chunks(1000) {
            file.write_all(part).unwrap();
        }
        file.sync_all().unwrap();
        assert!(rig.synth.content("f") == pattern(MIB));
        assert!(rig.synth.seen.writes.load(Ordering::SeqCst) < 100);
    });
}

#[test]
fn a_file_with_a_backing_file_is_read_and_written_by_the_kernel() {
    within(MOUNTED, || {
        let rig = Rig::wishing(&Wishes { passthrough: true, ..Wishes::default() });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backing");
        fs::write(&path, "backing").unwrap();
        let backing_file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let backing = Backing::new(rig.session.device(), &backing_file).unwrap();
        let ino = rig.file("f", b"unused!");
        rig.synth.pass_through(ino, backing.id());
        let file = rig.open("f");
        let mut found = [0; 7];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"backing");
        file.write_all_at(b"B", 0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"Backing");
        let seen = &rig.synth.seen;
        assert_eq!(seen.reads.load(Ordering::SeqCst) + seen.writes.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_reply_that_is_dropped_is_an_error_for_the_caller() {
    within(MOUNTED, || {
        let rig = Rig::new();
        let ino = rig.file("f", b"content");
        for behaviour in [Behaviour::Forget, Behaviour::Panic] {
            rig.synth.behave(ino, behaviour);
            let error = fs::read(rig.path("f")).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{behaviour:?}");
        }
        // More often than there are threads to lose.
        rig.synth.behave(ino, Behaviour::Plain);
        assert_eq!(fs::read(rig.path("f")).unwrap(), b"content");
    });
}
