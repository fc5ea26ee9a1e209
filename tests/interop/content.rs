//! File content written by one client and read, compacted or removed by the other.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use jfs::meta::record::{CHUNK_SIZE, Slice};
use jfs::meta::{Caller, Ino, Options};
use nix::fcntl::{FallocateFlags, fallocate};
use tokio::task::block_in_place;

use crate::script::on_client::OurClient;
use crate::support::command::{poll, run};
use crate::support::data::{MIB, copy, fresh, name, new_file, put, records, remove, used_space};
use crate::support::juicefs::command;
use crate::support::timeout::{MOUNTED, within};
use crate::test_volume::{Client, Store, TestVolume};

const PUNCH: FallocateFlags =
    FallocateFlags::FALLOC_FL_KEEP_SIZE.union(FallocateFlags::FALLOC_FL_PUNCH_HOLE);

/// Runs a body on each store, with a volume formatted by the Go client.
fn on_each_store(body: impl AsyncFn(Shared) + Send + Copy + 'static) {
    within(MOUNTED, move || {
        for store in [Store::Redis, Store::Sqlite, Store::Tikv] {
            let volume = TestVolume::formatted(store, Client::Go, &["--trash-days", "0"]);
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let ours = volume.open(Options::default()).await;
                body(Shared { volume, ours }).await;
            });
        }
    });
}

/// A volume, and our client of it.
struct Shared {
    volume: TestVolume,
    ours: OurClient,
}

impl Shared {
    /// Writes bytes within one chunk.
    async fn write(&self, ino: Ino, at: u64, bytes: &[u8]) {
        let slice = fresh(&self.ours.meta, bytes.len() as u64).await;
        self.ours.bucket.put(slice.id, bytes);
        put(&self.ours.meta, ino, at, slice).await.unwrap();
    }

    async fn read(&self, ino: Ino, at: u64, len: u64) -> Vec<u8> {
        let mut out = vec![0; usize::try_from(len).unwrap()];
        for index in at / CHUNK_SIZE..=(at + len - 1) / CHUNK_SIZE {
            for (fragment, bytes) in self.fragments(ino, u32::try_from(index).unwrap()).await {
                let start = index * CHUNK_SIZE + u64::from(fragment.pos);
                for (i, byte) in bytes.into_iter().enumerate() {
                    let position =
                        (start + i as u64).checked_sub(at).filter(|position| *position < len);
                    if let Some(position) = position {
                        out[usize::try_from(position).unwrap()] = byte;
                    }
                }
            }
        }
        out
    }

    /// Returns the visible fragments of a chunk, without holes.
    async fn fragments(&self, ino: Ino, index: u32) -> Vec<(Slice, Vec<u8>)> {
        loop {
            let view = self.ours.meta.read(ino, index).await.unwrap();
            let shown = view.iter().filter(|fragment| !fragment.id.is_hole());
            let read = shown.map(|fragment| Some((*fragment, self.ours.bucket.get(fragment)?)));
            if let Some(fragments) = read.collect() {
                return fragments;
            }
            // A compaction has replaced and deleted the slice meanwhile.
            self.ours.meta.forget_view(ino, index);
        }
    }

    async fn ino(&self, called: &str) -> Ino {
        self.ours.meta.lookup(&Caller::root(), Ino::ROOT, &name(called)).await.unwrap().0
    }
}

/// Returns bytes without repetition.
fn pattern(seed: u64, len: u64) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + seed * 7) % 251 + 1).to_le_bytes()[0]).collect()
}

fn set(expected: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (at, end) = (usize::try_from(at).unwrap(), usize::try_from(at).unwrap() + bytes.len());
    if expected.len() < end {
        expected.resize(end, 0);
    }
    expected[at..end].copy_from_slice(bytes);
}

#[test]
fn go_reads_what_we_write() {
    on_each_store(async |vol: Shared| {
        let (meta, root) = (&vol.ours.meta, Caller::root());
        let (a, b) = (new_file(meta, "a").await, new_file(meta, "b").await);
        let (mut in_a, mut in_b) = (Vec::new(), Vec::new());
        // Across the end of the first chunk; truncated, extended, punched.
        for (seed, at) in [(1, CHUNK_SIZE - MIB), (2, CHUNK_SIZE)] {
            let bytes = pattern(seed, MIB);
            vol.write(a, at, &bytes).await;
            set(&mut in_a, at, &bytes);
        }
        for length in [CHUNK_SIZE + 1000, CHUNK_SIZE + 2 * MIB, 3 * CHUNK_SIZE + 5] {
            meta.truncate(&root, a, length).await.unwrap();
            in_a.resize(usize::try_from(length).unwrap(), 0);
        }
        meta.fallocate(&root, a, PUNCH, CHUNK_SIZE - 300, 500).await.unwrap();
        set(&mut in_a, CHUNK_SIZE - 300, &[0; 500]);
        // Copied so that slices are split, followed by many small writes, which are compacted.
        let from = CHUNK_SIZE - 5000;
        assert_eq!(copy(meta, (a, from), (b, CHUNK_SIZE - 777), 8000).await.unwrap().bytes, 8000);
        let start = usize::try_from(from).unwrap();
        set(&mut in_b, CHUNK_SIZE - 777, &in_a[start..start + 8000]);
        for i in 0..6 {
            let (at, bytes) = (CHUNK_SIZE - 900 + i * 100, pattern(10 + i, 150));
            vol.write(b, at, &bytes).await;
            set(&mut in_b, at, &bytes);
        }
        for index in 0..2 {
            meta.compact(b, index, true).await.unwrap();
        }
        meta.idle().await;
        assert_eq!(records(meta, b, 0).await.len(), 1);
        meta.flush().await.unwrap();

        block_in_place(|| {
            vol.volume.go.fsck();
            let mount = vol.volume.go.mount(&[]);
            for (called, expected) in [("a", &in_a), ("b", &in_b)] {
                let seen = fs::read(mount.path().join(called)).unwrap();
                assert!(seen == *expected, "{called} is not what we wrote");
            }
            mount.unmount();
        });
    });
}

#[test]
fn we_read_what_go_writes() {
    on_each_store(async |vol: Shared| {
        let expected = block_in_place(|| {
            let mount = vol.volume.go.mount(&[]);
            let file = File::create(mount.path().join("f")).unwrap();
            let mut expected = Vec::new();
            for (seed, at, len) in [(1, CHUNK_SIZE - 6 * MIB, 12 * MIB), (2, CHUNK_SIZE - 9, 100)] {
                let bytes = pattern(seed, len);
                file.write_all_at(&bytes, at).unwrap();
                file.sync_all().unwrap();
                set(&mut expected, at, &bytes);
            }
            file.set_len(CHUNK_SIZE + 50).unwrap();
            file.set_len(2 * CHUNK_SIZE).unwrap();
            expected.resize(usize::try_from(CHUNK_SIZE).unwrap() + 50, 0);
            expected.resize(usize::try_from(2 * CHUNK_SIZE).unwrap(), 0);
            fallocate(&file, PUNCH, i64::try_from(CHUNK_SIZE).unwrap() - 20, 40).unwrap();
            set(&mut expected, CHUNK_SIZE - 20, &[0; 40]);
            drop(file);
            mount.unmount();
            expected
        });
        let ino = vol.ino("f").await;
        assert_eq!(vol.ours.meta.getattr(ino).await.unwrap().length, 2 * CHUNK_SIZE);
        let seen = vol.read(ino, 0, 2 * CHUNK_SIZE).await;
        assert!(seen == expected, "it is not what the Go client wrote");
    });
}

#[test]
fn go_compacts_what_we_wrote() {
    on_each_store(async |vol: Shared| {
        let meta = &vol.ours.meta;
        let ino = new_file(meta, "f").await;
        let mut expected = Vec::new();
        for i in 0..20 {
            let bytes = pattern(i, 1000);
            vol.write(ino, i * 300, &bytes).await;
            set(&mut expected, i * 300, &bytes);
        }
        meta.idle().await;
        meta.flush().await.unwrap();
        block_in_place(|| vol.volume.go.gc(&["--compact", "--delete"]));
        assert_eq!(records(meta, ino, 0).await.len(), 1);
        assert!(vol.read(ino, 0, expected.len() as u64).await == expected);
        // It exits without waiting for its deletions; the next run continues them.
        let bucket = &vol.ours.bucket;
        let gone = || {
            let mut gc = command(&["gc", vol.volume.go.url(), "--delete"]);
            // Includes young objects.
            gc.env("JFS_GC_SKIPPEDTIME", "0");
            run(gc, MOUNTED).ok();
            bucket.blocks() == 1
        };
        assert!(block_in_place(|| poll(MOUNTED, gone)), "{} blocks are left", bucket.blocks());
        block_in_place(|| vol.volume.go.fsck());
    });
}

#[test]
fn we_compact_what_go_wrote() {
    on_each_store(async |vol: Shared| {
        let expected = block_in_place(|| {
            let mount = vol.volume.go.mount(&[]);
            let file = File::create(mount.path().join("f")).unwrap();
            let mut expected = Vec::new();
            for i in 0..20 {
                let bytes = pattern(i, 1000);
                file.write_all_at(&bytes, i * 300).unwrap();
                file.sync_all().unwrap();
                set(&mut expected, i * 300, &bytes);
            }
            drop(file);
            mount.unmount();
            expected
        });
        let ino = vol.ino("f").await;
        vol.ours.meta.compact(ino, 0, true).await.unwrap();
        vol.ours.meta.idle().await;
        assert_eq!(records(&vol.ours.meta, ino, 0).await.len(), 1);
        assert_eq!(vol.ours.bucket.blocks(), 1, "the replaced objects are deleted");
        block_in_place(|| {
            vol.volume.go.fsck();
            let mount = vol.volume.go.mount(&[]);
            assert!(fs::read(mount.path().join("f")).unwrap() == expected);
            mount.unmount();
        });
    });
}

#[test]
fn removed_files_leave_nothing_behind() {
    on_each_store(async |vol: Shared| {
        block_in_place(|| {
            let mount = vol.volume.go.mount(&[]);
            fs::write(mount.path().join("theirs"), pattern(1, 9 * MIB)).unwrap();
            mount.unmount();
        });
        let meta = &vol.ours.meta;
        let (ours, theirs) = (new_file(meta, "ours").await, vol.ino("theirs").await);
        vol.write(ours, 5, &pattern(2, 1000)).await;
        copy(meta, (theirs, MIB), (ours, 0), 7 * MIB).await.unwrap();
        remove(meta, "theirs").await;
        meta.idle().await;
        assert!(vol.read(ours, 0, 7 * MIB).await == pattern(1, 9 * MIB)[1 << 20..8 << 20]);
        // Usage of directories is flushed a moment later, and fsck compares it.
        meta.flush().await.unwrap();
        block_in_place(|| vol.volume.go.fsck());
        remove(meta, "ours").await;
        meta.idle().await;
        meta.flush().await.unwrap();
        assert_eq!(vol.ours.bucket.blocks(), 0);
        assert_eq!(used_space(meta).await, 0);
        block_in_place(|| {
            vol.volume.go.gc(&[]);
            vol.volume.go.fsck();
        });
    });
}

#[test]
fn a_tree_that_we_remove_is_gone_for_go_and_nothing_else_is() {
    on_each_store(async |vol: Shared| {
        block_in_place(|| {
            let mount = vol.volume.go.mount(&[]);
            // More entries in one directory than one commit removes.
            for (dir, files) in [("top/many", 600), ("top/few/below", 10)] {
                let dir = mount.path().join(dir);
                fs::create_dir_all(&dir).unwrap();
                for file in 0..files {
                    fs::write(dir.join(format!("f{file}")), "text").unwrap();
                }
            }
            let linked = mount.path().join("top/many/f7");
            fs::hard_link(linked, mount.path().join("kept")).unwrap();
            mount.unmount();
        });
        let meta = &vol.ours.meta;
        meta.remove_tree(&Caller::root(), Ino::ROOT, &name("top"), true).await.unwrap();
        meta.idle().await;
        meta.close().await.unwrap();
        block_in_place(|| {
            vol.volume.assert_consistent();
            let mount = vol.volume.go.mount(&[]);
            assert!(!mount.path().join("top").exists());
            let kept = mount.path().join("kept");
            assert_eq!(fs::read(&kept).unwrap(), b"text");
            assert_eq!(fs::metadata(&kept).unwrap().nlink(), 1);
            mount.unmount();
            let bucket = &vol.ours.bucket;
            assert!(poll(MOUNTED, || bucket.blocks() == 1), "{} blocks are left", bucket.blocks());
        });
    });
}

#[test]
fn files_that_go_moves_out_of_a_tree_that_we_remove_are_gone_or_intact() {
    const FILES: usize = 600;
    on_each_store(async |vol: Shared| {
        let mount = block_in_place(|| {
            let mount = vol.volume.go.mount(&[]);
            fs::create_dir(mount.path().join("kept")).unwrap();
            fs::create_dir(mount.path().join("top")).unwrap();
            for file in 0..FILES {
                fs::write(mount.path().join(format!("top/f{file}")), "text").unwrap();
            }
            mount
        });
        let root = mount.path().to_owned();
        let theirs = tokio::task::spawn_blocking(move || {
            let in_time = |file: &usize| {
                let from = root.join(format!("top/f{file}"));
                let to = root.join(format!("kept/f{file}"));
                let done = if file.is_multiple_of(2) {
                    fs::rename(from, to)
                } else {
                    fs::hard_link(from, to)
                };
                match done {
                    Ok(()) => true,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
                    Err(error) => panic!("f{file} is neither there nor gone: {error}"),
                }
            };
            (0..FILES).step_by(5).filter(in_time).collect::<Vec<usize>>()
        });
        let meta = &vol.ours.meta;
        meta.remove_tree(&Caller::root(), Ino::ROOT, &name("top"), true).await.unwrap();
        let kept = theirs.await.unwrap();
        meta.idle().await;
        meta.close().await.unwrap();
        block_in_place(|| {
            mount.unmount();
            vol.volume.assert_consistent();
            let mount = vol.volume.go.mount(&[]);
            assert!(!mount.path().join("top").exists());
            assert_eq!(fs::read_dir(mount.path().join("kept")).unwrap().count(), kept.len());
            for file in &kept {
                let path = mount.path().join(format!("kept/f{file}"));
                assert_eq!(fs::read(&path).unwrap(), b"text");
                assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
            }
            mount.unmount();
            assert_eq!(vol.ours.bucket.blocks(), kept.len());
        });
    });
}
