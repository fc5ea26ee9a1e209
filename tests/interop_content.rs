//! File content as the Go client sees what we wrote, and the other way round.
#![cfg(test)]

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use jfs::meta::record::{CHUNK_SIZE, Slice, SliceSize};
use jfs::meta::{Caller, Ino, Meta, Options, SliceId, SliceStore};
use jfs::{Error, Result};
use nix::fcntl::{FallocateFlags, fallocate};
use support::data::{MIB, copy, fresh, name, new_file, put, records, remove, used_space};
use support::juicefs::Volume as Peer;
use support::redis::RedisServer;
use support::timeout::{MOUNTED, within};
use tempfile::TempDir;
use tokio::task::block_in_place;

macro_rules! on_every_engine {
    ($($body:ident),* $(,)?) => {
        on_every_engine!(@engine sqlite; $($body),*);
        on_every_engine!(@engine redis; $($body),*);
    };
    (@engine $engine:ident; $($body:ident),*) => {
        mod $engine {
            $(
                #[test]
                fn $body() {
                    super::run(|| async { super::$body(super::Shared::$engine().await).await });
                }
            )*
        }
    };
}

on_every_engine! {
    what_we_write_is_what_it_reads,
    what_it_writes_is_what_we_read,
    the_same_changes_leave_the_same_records,
    it_compacts_what_we_wrote,
    we_compact_what_it_wrote,
    nothing_is_left_of_files_that_we_remove,
}

const PUNCH: FallocateFlags =
    FallocateFlags::FALLOC_FL_KEEP_SIZE.union(FallocateFlags::FALLOC_FL_PUNCH_HOLE);

/// A test that mounts has a thread of its own and a time limit.
fn run<F: Future<Output = ()>>(body: impl FnOnce() -> F + Send + 'static) {
    within(MOUNTED, || tokio::runtime::Runtime::new().unwrap().block_on(body()));
}

/// A volume that the Go client formatted, and our client of it.
struct Shared {
    peer: Peer,
    meta: Arc<Meta>,
    bucket: Arc<Bucket>,
    _folder: Option<TempDir>,
}

impl Shared {
    async fn sqlite() -> Self {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite3://{}/meta.db", folder.path().display());
        Self::format(&url, Some(folder)).await
    }

    async fn redis() -> Self {
        Self::format(&RedisServer::shared().fresh_url(), None).await
    }

    async fn format(url: &str, folder: Option<TempDir>) -> Self {
        let peer = block_in_place(|| Peer::format(url, &["--trash-days", "0"]));
        let options = Options { no_background_jobs: true, ..Options::default() };
        let meta = Meta::connect(url, options).await.unwrap();
        meta.start(jfs::meta::Registration::New).await.unwrap();
        let bucket = Arc::new(Bucket { chunks: peer.folder().join("bucket/volume/chunks") });
        meta.serve_slices(bucket.clone());
        Self { peer, meta, bucket, _folder: folder }
    }

    /// Writes bytes that lie in one chunk.
    async fn write(&self, ino: Ino, at: u64, bytes: &[u8]) {
        let slice = fresh(&self.meta, bytes.len() as u64).await;
        self.bucket.put(slice.id, bytes);
        put(&self.meta, ino, at, slice).await.unwrap();
    }

    async fn read(&self, ino: Ino, at: u64, len: u64) -> Vec<u8> {
        let mut out = vec![0; usize::try_from(len).unwrap()];
        for index in at / CHUNK_SIZE..=(at + len - 1) / CHUNK_SIZE {
            for (fragment, bytes) in self.fragments(ino, u32::try_from(index).unwrap()).await {
                let start = index * CHUNK_SIZE + u64::from(fragment.pos);
                for (i, byte) in bytes.into_iter().enumerate() {
                    let place = (start + i as u64).checked_sub(at).filter(|place| *place < len);
                    if let Some(place) = place {
                        out[usize::try_from(place).unwrap()] = byte;
                    }
                }
            }
        }
        out
    }

    /// What a chunk shows, holes left out.
    async fn fragments(&self, ino: Ino, index: u32) -> Vec<(Slice, Vec<u8>)> {
        loop {
            let view = self.meta.read(ino, index).await.unwrap();
            let shown = view.iter().filter(|fragment| !fragment.id.is_hole());
            let read = shown.map(|fragment| Some((*fragment, self.bucket.get(fragment)?)));
            if let Some(fragments) = read.collect() {
                return fragments;
            }
            // A compaction was faster, and what it replaced is gone.
            self.meta.forget_view(ino, index);
        }
    }

    async fn ino(&self, called: &str) -> Ino {
        self.meta.lookup(&Caller::root(), Ino::ROOT, &name(called)).await.unwrap().0
    }
}

/// Objects of a volume with neither compression nor encryption, kept in a folder.
struct Bucket {
    chunks: PathBuf,
}

impl Bucket {
    const BLOCK: usize = 4 << 20;

    fn blocks(&self, id: SliceId, size: usize) -> Vec<(PathBuf, std::ops::Range<usize>)> {
        let SliceId(id) = id;
        let folder = self.chunks.join(format!("{}/{}", id / 1_000_000, id / 1000));
        (0..size.div_ceil(Self::BLOCK))
            .map(|block| {
                let range = block * Self::BLOCK..size.min((block + 1) * Self::BLOCK);
                (folder.join(format!("{id}_{block}_{}", range.len())), range)
            })
            .collect()
    }

    fn put(&self, id: SliceId, bytes: &[u8]) {
        for (path, range) in self.blocks(id, bytes.len()) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &bytes[range]).unwrap();
        }
    }

    fn get(&self, fragment: &Slice) -> Option<Vec<u8>> {
        let mut slice = Vec::new();
        for (path, _) in self.blocks(fragment.id, fragment.size as usize) {
            slice.extend(fs::read(path).ok()?);
        }
        let start = fragment.off as usize;
        Some(slice[start..start + fragment.len as usize].to_vec())
    }

    /// All objects there are.
    fn objects(&self) -> Vec<String> {
        let mut folders = vec![self.chunks.clone()];
        let mut objects = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else {
                    objects.push(entry.file_name().into_string().unwrap());
                }
            }
        }
        objects
    }
}

#[async_trait]
impl SliceStore for Bucket {
    async fn delete(&self, slice: SliceSize) -> Result<()> {
        for (path, _) in self.blocks(slice.id, slice.size as usize) {
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    async fn rewrite(&self, fragments: &[Slice], id: SliceId, _tier: u8) -> Result<()> {
        let mut bytes = Vec::new();
        for fragment in fragments {
            if fragment.id.is_hole() {
                bytes.resize(bytes.len() + fragment.len as usize, 0);
            } else {
                bytes.extend(self.get(fragment).ok_or(Error::NotFound)?);
            }
        }
        self.put(id, &bytes);
        Ok(())
    }
}

/// Bytes that differ everywhere.
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

async fn what_we_write_is_what_it_reads(vol: Shared) {
    let (meta, root) = (&vol.meta, Caller::root());
    let (a, b) = (new_file(meta, "a").await, new_file(meta, "b").await);
    let (mut in_a, mut in_b) = (Vec::new(), Vec::new());
    // Across the first chunk's end; cut, grown, punched.
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
    // Copied so that slices are split, with many small writes on top that are compacted.
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
        vol.peer.fsck();
        let mount = vol.peer.mount(&[]);
        for (called, expected) in [("a", &in_a), ("b", &in_b)] {
            let seen = fs::read(mount.path().join(called)).unwrap();
            assert!(seen == *expected, "{called} is not what we wrote");
        }
        mount.unmount();
    });
}

async fn what_it_writes_is_what_we_read(vol: Shared) {
    let expected = block_in_place(|| {
        let mount = vol.peer.mount(&[]);
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
    assert_eq!(vol.meta.getattr(ino).await.unwrap().length, 2 * CHUNK_SIZE);
    let seen = vol.read(ino, 0, 2 * CHUNK_SIZE).await;
    assert!(seen == expected, "it is not what the Go client wrote");
}

async fn the_same_changes_leave_the_same_records(vol: Shared) {
    let bytes = pattern(1, 3 * MIB);
    let lengths = [65 * MIB, 70 * MIB, 10 * CHUNK_SIZE, 5];
    let holes = [(3, 1), (CHUNK_SIZE - 1, 3 * CHUNK_SIZE)];
    block_in_place(|| {
        let mount = vol.peer.mount(&[]);
        let path = mount.path().join("theirs");
        let file = OpenOptions::new().create_new(true).write(true).open(path).unwrap();
        file.set_len(200 * MIB).unwrap();
        file.write_all_at(&bytes, 63 * MIB).unwrap();
        file.sync_all().unwrap();
        for (at, size) in holes {
            fallocate(&file, PUNCH, i64::try_from(at).unwrap(), i64::try_from(size).unwrap())
                .unwrap();
        }
        for length in lengths {
            file.set_len(length).unwrap();
        }
        drop(file);
        mount.unmount();
    });

    let (meta, root) = (&vol.meta, Caller::root());
    let (theirs, ours) = (vol.ino("theirs").await, new_file(meta, "ours").await);
    meta.truncate(&root, ours, 200 * MIB).await.unwrap();
    vol.write(ours, 63 * MIB, &bytes[..1 << 20]).await;
    vol.write(ours, 64 * MIB, &bytes[1 << 20..]).await;
    for (at, size) in holes {
        meta.fallocate(&root, ours, PUNCH, at, size).await.unwrap();
    }
    for length in lengths {
        meta.truncate(&root, ours, length).await.unwrap();
    }
    for index in 0..11 {
        let plain = async |ino| -> Vec<Slice> {
            let stored = records(meta, ino, index).await;
            let marked = |slice: Slice| SliceId(u64::from(!slice.id.is_hole()));
            stored.into_iter().map(|slice| Slice { id: marked(slice), ..slice }).collect()
        };
        assert_eq!(plain(ours).await, plain(theirs).await, "chunk {index}");
    }
}

async fn it_compacts_what_we_wrote(vol: Shared) {
    let meta = &vol.meta;
    let ino = new_file(meta, "f").await;
    let mut expected = Vec::new();
    for i in 0..20 {
        let bytes = pattern(i, 1000);
        vol.write(ino, i * 300, &bytes).await;
        set(&mut expected, i * 300, &bytes);
    }
    meta.idle().await;
    meta.flush().await.unwrap();
    block_in_place(|| vol.peer.gc(&["--compact", "--delete"]));
    assert_eq!(records(meta, ino, 0).await.len(), 1);
    assert!(vol.read(ino, 0, expected.len() as u64).await == expected);
    assert_eq!(vol.bucket.objects().len(), 1, "it deleted what it replaced");
    block_in_place(|| vol.peer.fsck());
}

async fn we_compact_what_it_wrote(vol: Shared) {
    let expected = block_in_place(|| {
        let mount = vol.peer.mount(&[]);
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
    vol.meta.compact(ino, 0, true).await.unwrap();
    vol.meta.idle().await;
    assert_eq!(records(&vol.meta, ino, 0).await.len(), 1);
    assert_eq!(vol.bucket.objects().len(), 1, "we deleted what we replaced");
    block_in_place(|| {
        vol.peer.fsck();
        let mount = vol.peer.mount(&[]);
        assert!(fs::read(mount.path().join("f")).unwrap() == expected);
        mount.unmount();
    });
}

async fn nothing_is_left_of_files_that_we_remove(vol: Shared) {
    block_in_place(|| {
        let mount = vol.peer.mount(&[]);
        fs::write(mount.path().join("theirs"), pattern(1, 9 * MIB)).unwrap();
        mount.unmount();
    });
    let meta = &vol.meta;
    let (ours, theirs) = (new_file(meta, "ours").await, vol.ino("theirs").await);
    vol.write(ours, 5, &pattern(2, 1000)).await;
    copy(meta, (theirs, MIB), (ours, 0), 7 * MIB).await.unwrap();
    remove(meta, "theirs").await;
    meta.idle().await;
    assert!(vol.read(ours, 0, 7 * MIB).await == pattern(1, 9 * MIB)[1 << 20..8 << 20]);
    block_in_place(|| vol.peer.fsck());
    remove(meta, "ours").await;
    meta.idle().await;
    assert_eq!(vol.bucket.objects(), Vec::<String>::new());
    assert_eq!(used_space(meta).await, 0);
    block_in_place(|| {
        vol.peer.gc(&[]);
        vol.peer.fsck();
    });
}
