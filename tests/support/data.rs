//! File content for tests of metadata: slices kept in memory, and ranges written and read back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jfs::meta::client::SliceStore;
use jfs::meta::engine::kv::MemoryStore;
use jfs::meta::engine::{Key, Record};
use jfs::meta::op::content::copy::Copied;
use jfs::meta::record::{CHUNK_SIZE, Counter, Slice, SliceSize};
use jfs::meta::{AttrSet, Caller, Ino, Meta, Name, SliceId, Timestamp};
use jfs::{Error, Result};
use nix::fcntl::FallocateFlags;
use tokio::sync::Notify;

use super::records::{put_node, stored_attr};
use super::volume::Volume;

pub const MIB: u64 = 1 << 20;

/// Slices by id, as an object store would keep them.
#[derive(Default)]
pub struct Blobs {
    slices: Mutex<BTreeMap<SliceId, Vec<u8>>>,
    deleted: Mutex<Vec<SliceSize>>,
    /// Every call fails.
    pub broken: AtomicBool,
    gate: Mutex<Option<Arc<Gate>>>,
}

/// Blocks a rewrite until the test opens it.
#[derive(Default)]
pub struct Gate {
    pub reached: Notify,
    pub open: Notify,
}

impl Blobs {
    /// Creates a store and connects it to this client.
    pub fn serve(meta: &Meta) -> Arc<Self> {
        let blobs = Arc::new(Self::default());
        meta.attach_slice_store(blobs.clone());
        blobs
    }

    pub fn put(&self, id: SliceId, bytes: Vec<u8>) {
        self.slices.lock().unwrap().insert(id, bytes);
    }

    /// Returns the ids of all stored slices.
    pub fn ids(&self) -> Vec<SliceId> {
        self.slices.lock().unwrap().keys().copied().collect()
    }

    pub fn deleted(&self) -> Vec<SliceSize> {
        self.deleted.lock().unwrap().clone()
    }

    /// Blocks the next rewrite after its slice is written, until the gate is opened.
    pub fn stop_rewrite(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        *self.gate.lock().unwrap() = Some(gate.clone());
        gate
    }

    /// Returns bytes `start..end` of a chunk with this view, or `None` if a slice does not exist any
    /// more.
    pub fn bytes(&self, view: &[Slice], start: u64, end: u64) -> Option<Vec<u8>> {
        let slices = self.slices.lock().unwrap();
        let mut out = vec![0; usize::try_from(end - start).unwrap()];
        for fragment in view.iter().filter(|fragment| !fragment.id.is_hole()) {
            let slice = slices.get(&fragment.id)?;
            let pos = u64::from(fragment.pos);
            for at in pos.max(start)..(pos + u64::from(fragment.len)).min(end) {
                let from = usize::try_from(at - pos + u64::from(fragment.off)).unwrap();
                out[usize::try_from(at - start).unwrap()] = slice[from];
            }
        }
        Some(out)
    }
}

#[async_trait]
impl SliceStore for Blobs {
    async fn delete(&self, slice: SliceSize) -> Result<()> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Error::bad_input("the store is broken"));
        }
        self.slices.lock().unwrap().remove(&slice.id);
        self.deleted.lock().unwrap().push(slice);
        Ok(())
    }

    async fn rewrite(&self, fragments: &[Slice], id: SliceId, _tier: u8) -> Result<()> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Error::bad_input("the store is broken"));
        }
        let size: u64 = fragments.iter().map(|fragment| u64::from(fragment.len)).sum();
        let start = u64::from(fragments[0].pos);
        let bytes = self.bytes(fragments, start, start + size).ok_or(Error::NotFound)?;
        self.put(id, bytes);
        let gate = self.gate.lock().unwrap().take();
        if let Some(gate) = gate {
            gate.reached.notify_one();
            gate.open.notified().await;
        }
        Ok(())
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Creates a file in the root and closes it.
pub async fn new_file(meta: &Meta, at: &str) -> Ino {
    let ino = open_new(meta, at).await;
    meta.close_file(ino).await.unwrap();
    ino
}

/// Creates a file in the root and leaves it open.
pub async fn open_new(meta: &Meta, at: &str) -> Ino {
    let made = meta.create(&Caller::root(), Ino::ROOT, &name(at), 0o644, 0, true).await;
    made.unwrap().0
}

pub async fn new_dir(meta: &Meta, at: &str) -> Ino {
    meta.mkdir(&Caller::root(), Ino::ROOT, &name(at), 0o755, 0).await.unwrap().0
}

pub async fn remove(meta: &Meta, at: &str) {
    meta.unlink(&Caller::root(), Ino::ROOT, &name(at)).await.unwrap();
}

/// Writes a new slice of `len` bytes at `at` of a file, and returns it.
pub async fn write(meta: &Meta, ino: Ino, at: u64, len: u64) -> Slice {
    let slice = fresh(meta, len).await;
    put(meta, ino, at, slice).await.unwrap();
    Slice { pos: u32::try_from(at % CHUNK_SIZE).unwrap(), ..slice }
}

pub async fn put(meta: &Meta, ino: Ino, at: u64, slice: Slice) -> Result<()> {
    let index = u32::try_from(at / CHUNK_SIZE).unwrap();
    let off = u32::try_from(at % CHUNK_SIZE).unwrap();
    meta.write(ino, index, off, slice, Timestamp::now()).await
}

pub async fn fresh(meta: &Meta, len: u64) -> Slice {
    let id = meta.new_slice().await.unwrap();
    let len = u32::try_from(len).unwrap();
    Slice { pos: 0, id, size: len, off: 0, len }
}

/// Writes bytes, one slice for each chunk.
pub async fn write_bytes(meta: &Meta, blobs: &Blobs, ino: Ino, at: u64, bytes: &[u8]) {
    let mut start = at;
    let end = at + bytes.len() as u64;
    while start < end {
        let next = end.min((start / CHUNK_SIZE + 1) * CHUNK_SIZE);
        let part = usize::try_from(start - at).unwrap()..usize::try_from(next - at).unwrap();
        let slice = fresh(meta, next - start).await;
        blobs.put(slice.id, bytes[part].to_vec());
        put(meta, ino, start, slice).await.unwrap();
        start = next;
    }
}

/// Reads `len` bytes of a range that lies within the file.
pub async fn read_bytes(meta: &Meta, blobs: &Blobs, ino: Ino, at: u64, len: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut start = at;
    while start < at + len {
        let index = u32::try_from(start / CHUNK_SIZE).unwrap();
        let begin = u64::from(index) * CHUNK_SIZE;
        let next = (at + len).min(begin + CHUNK_SIZE);
        let view = meta.read(ino, index).await.unwrap();
        match blobs.bytes(&view, start - begin, next - begin) {
            Some(bytes) => {
                out.extend(bytes);
                start = next;
            }
            // A compaction has replaced and deleted the slice meanwhile.
            None => meta.forget_view(ino, index),
        }
    }
    out
}

pub async fn copy(meta: &Meta, from: (Ino, u64), to: (Ino, u64), size: u64) -> Result<Copied> {
    meta.copy_file_range(from.0, from.1, to.0, to.1, size).await
}

/// Returns the stored records of a chunk.
pub async fn records(meta: &Meta, ino: Ino, index: u32) -> Vec<Slice> {
    match meta.engine().read(&[Key::Chunk(ino, index)]).await.unwrap().pop() {
        Some(Record::Chunk(records)) => records,
        other => panic!("{other:?}"),
    }
}

/// Returns the number of references to a slice.
pub async fn references(meta: &Meta, slice: Slice) -> i64 {
    match meta.engine().read(&[Key::SliceRef(slice.id, slice.size)]).await.unwrap().pop() {
        Some(Record::SliceRef(refs)) => refs,
        other => panic!("{other:?}"),
    }
}

pub async fn length(meta: &Meta, ino: Ino) -> u64 {
    meta.getattr(ino).await.unwrap().length
}

/// Returns the used space of the volume after a flush.
pub async fn used_space(meta: &Meta) -> i64 {
    meta.flush().await.unwrap();
    meta.engine().counter(Counter::UsedSpace).await.unwrap()
}

/// Returns the errno of an operation that must fail.
pub fn refused<T>(result: Result<T>) -> nix::errno::Errno {
    match result {
        Ok(_) => panic!("should have been refused"),
        Err(error) => error.errno(),
    }
}

pub async fn resize(meta: &Meta, ino: Ino, length: u64) {
    let attr = meta.truncate(&Caller::root(), ino, length).await.unwrap();
    assert_eq!(attr.length, length);
}

pub async fn punch(meta: &Meta, ino: Ino, at: u64, size: u64) {
    let mode = FallocateFlags::FALLOC_FL_KEEP_SIZE | FallocateFlags::FALLOC_FL_PUNCH_HOLE;
    meta.fallocate(&Caller::root(), ino, mode, at, size).await.unwrap();
}

/// Creates a file with these flags.
pub async fn flagged(meta: &Meta, flags: u8) -> Ino {
    let ino = new_file(meta, &format!("flags-{flags}")).await;
    let set = AttrSet { flags: Some(flags), ..AttrSet::default() };
    meta.setattr(&Caller::root(), ino, set).await.unwrap();
    ino
}

/// Creates a file whose parent is an hour directory of the trash.
pub async fn moved_to_trash(meta: &Meta) -> Ino {
    let ino = new_file(meta, "trashed").await;
    let mut attr = stored_attr(meta, ino).await;
    attr.parent = Ino(Ino::TRASH.0 + 1);
    put_node(meta, ino, &attr).await;
    ino
}

/// Creates a volume in memory, and returns its store, which can lose replies on demand.
pub async fn fragile() -> (Volume, Arc<MemoryStore>) {
    let vol = Volume::memory().await;
    let store = MemoryStore::named(vol.url.strip_prefix("memkv://").unwrap());
    (vol, store)
}

/// Creates a file `f` of `count` slices of 7 bytes, each two bytes after the previous one: `0011223333333`
/// for four.
pub async fn many_slices(meta: &Meta, blobs: &Blobs, count: u8) -> (Ino, Vec<Slice>) {
    let ino = new_file(meta, "f").await;
    for i in 0..count {
        write_bytes(meta, blobs, ino, u64::from(i) * 2, &[b'0' + i; 7]).await;
    }
    (ino, records(meta, ino, 0).await)
}

pub fn sizes(slices: &[Slice]) -> Vec<SliceSize> {
    slices.iter().map(|slice| SliceSize { id: slice.id, size: slice.size }).collect()
}

pub fn in_two_hours() -> i64 {
    Timestamp::now().sec + 7200
}

/// Asserts that no background job has anything left to do, and that no stale reference counts exist.
pub async fn assert_nothing_left(meta: &Meta) {
    let engine = meta.engine();
    let later = in_two_hours();
    assert_eq!(engine.deleted_files(later, 10).await.unwrap(), []);
    assert_eq!(engine.dead_slices(10).await.unwrap(), []);
    assert_eq!(engine.delayed_slices(later, 10).await.unwrap(), []);
    if engine.name() != "sqlite3" {
        for id in 1..200 {
            for size in [3, 7, 10, 13] {
                let slice = SliceSize { id: SliceId(id), size };
                assert!(!engine.has_slice_ref(slice).await.unwrap(), "{slice:?} is still tracked");
            }
        }
    }
}
