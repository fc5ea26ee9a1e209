//! Files with content, for tests: slices kept in memory, and whole ranges written and read back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jfs::meta::client::SliceStore;
use jfs::meta::engine::{Key, Record};
use jfs::meta::op::copy::Copied;
use jfs::meta::record::{CHUNK_SIZE, Counter, Slice, SliceSize};
use jfs::meta::{Caller, Ino, Meta, Name, SliceId, Timestamp};
use jfs::{Error, Result};
use tokio::sync::Notify;

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

/// Where a rewrite waits until it is let through.
#[derive(Default)]
pub struct Gate {
    pub reached: Notify,
    pub open: Notify,
}

impl Blobs {
    /// A store that serves this client.
    pub fn serve(meta: &Meta) -> Arc<Self> {
        let blobs = Arc::new(Self::default());
        meta.serve_slices(blobs.clone());
        blobs
    }

    pub fn put(&self, id: SliceId, bytes: Vec<u8>) {
        self.slices.lock().unwrap().insert(id, bytes);
    }

    /// Ids of all slices that are stored.
    pub fn ids(&self) -> Vec<SliceId> {
        self.slices.lock().unwrap().keys().copied().collect()
    }

    pub fn deleted(&self) -> Vec<SliceSize> {
        self.deleted.lock().unwrap().clone()
    }

    /// Stops the next rewrite, its slice written, until the gate is opened.
    pub fn stop_rewrite(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        *self.gate.lock().unwrap() = Some(gate.clone());
        gate
    }

    /// Bytes `start..end` of a chunk, of which this is the view or a part of it; none if a slice is
    /// not there any more.
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

/// A new file in the root, closed.
pub async fn new_file(meta: &Meta, at: &str) -> Ino {
    let ino = open_new(meta, at).await;
    meta.close_file(ino).await.unwrap();
    ino
}

/// A new file in the root, open.
pub async fn open_new(meta: &Meta, at: &str) -> Ino {
    let made = meta.create(&Caller::root(), Ino::ROOT, &name(at), (0o644, 0), true).await;
    made.unwrap().0
}

pub async fn new_dir(meta: &Meta, at: &str) -> Ino {
    meta.mkdir(&Caller::root(), Ino::ROOT, &name(at), 0o755, 0).await.unwrap().0
}

pub async fn remove(meta: &Meta, at: &str) {
    meta.unlink(&Caller::root(), Ino::ROOT, &name(at)).await.unwrap();
}

/// A slice of its own for `len` bytes at `at` of a file; answers it.
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
            // A compaction was faster, and what it replaced is gone.
            None => meta.forget_view(ino, index),
        }
    }
    out
}

pub async fn copy(meta: &Meta, from: (Ino, u64), to: (Ino, u64), size: u64) -> Result<Copied> {
    meta.copy_file_range(from, to, size).await
}

/// The records of a chunk as they are stored.
pub async fn records(meta: &Meta, ino: Ino, index: u32) -> Vec<Slice> {
    match meta.engine().read(&[Key::Chunk(ino, index)]).await.unwrap().pop() {
        Some(Record::Chunk(records)) => records,
        other => panic!("{other:?}"),
    }
}

/// How many references a slice has.
pub async fn references(meta: &Meta, slice: Slice) -> i64 {
    match meta.engine().read(&[Key::SliceRef(slice.id, slice.size)]).await.unwrap().pop() {
        Some(Record::SliceRef(refs)) => refs,
        other => panic!("{other:?}"),
    }
}

pub async fn length(meta: &Meta, ino: Ino) -> u64 {
    meta.getattr(ino).await.unwrap().length
}

/// What the volume has counted, once everything is told.
pub async fn used_space(meta: &Meta) -> i64 {
    meta.flush().await.unwrap();
    meta.engine().counter(Counter::UsedSpace).await.unwrap()
}

/// The errno of something that must fail.
pub fn refused<T>(result: Result<T>) -> nix::errno::Errno {
    match result {
        Ok(_) => panic!("should have been refused"),
        Err(error) => error.errno(),
    }
}
