//! Random changes of content by two clients, compared with plain bytes.
//!
//! A failure shrinks to a short list of steps; keep it below as a `regression_...` test.

use std::sync::Arc;

use crate::support::data::{Blobs, copy, new_file, read_bytes, remove, write_bytes};
use jfs::meta::record::{CHUNK_SIZE, Setting};
use jfs::meta::{Caller, Ino, Meta, Timestamp};
use nix::fcntl::{FallocateFlags, OFlag};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::volume::{Volume, setting};

/// The part of each file that is compared: it spans the end of the first chunk.
const WINDOW: u64 = 96;
const BASE: u64 = CHUNK_SIZE - WINDOW / 2;
const NAMES: [&str; 2] = ["a", "b"];

/// Files and clients are numbered; positions and lengths count from the start of the window.
#[derive(Debug, Clone)]
enum Step {
    Write {
        client: usize,
        file: usize,
        at: u64,
        len: u64,
        byte: u8,
    },
    Resize {
        client: usize,
        file: usize,
        length: u64,
    },
    Zero {
        client: usize,
        file: usize,
        at: u64,
        len: u64,
        keep_size: bool,
    },
    Copy {
        client: usize,
        from: usize,
        at: u64,
        into: u64,
        len: u64,
    },
    Compact {
        client: usize,
        file: usize,
        index: u32,
    },
    Read {
        client: usize,
        file: usize,
    },
    /// The days of the trash pass.
    Wait {
        client: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (client, file, at, len) = (0..2usize, 0..2usize, 0..WINDOW, 1..WINDOW);
    let place = (client.clone(), file.clone(), at.clone(), len.clone());
    let keep_size = any::<bool>();
    prop_oneof![
        4 => (place.clone(), 1..=255u8).prop_map(|((client, file, at, len), byte)| {
            Step::Write { client, file, at, len: len.min(WINDOW - at), byte }
        }),
        2 => (client.clone(), file.clone(), 0..=WINDOW)
            .prop_map(|(client, file, length)| Step::Resize { client, file, length }),
        1 => (place.clone(), keep_size).prop_map(|((client, file, at, len), keep_size)| {
            Step::Zero { client, file, at, len: len.min(WINDOW - at), keep_size }
        }),
        1 => (place, 0..WINDOW).prop_map(|((client, from, at, len), into)| {
            Step::Copy { client, from, at, into, len: len.min(WINDOW - into) }
        }),
        1 => (client.clone(), file.clone(), 0..2u32)
            .prop_map(|(client, file, index)| Step::Compact { client, file, index }),
        2 => (client.clone(), file).prop_map(|(client, file)| Step::Read { client, file }),
        1 => client.prop_map(|client| Step::Wait { client }),
    ]
}

struct World {
    clients: [Arc<Meta>; 2],
    blobs: Arc<Blobs>,
    files: [Ino; 2],
    /// The expected content of each file, from the start of the window to its end.
    expected: [Vec<u8>; 2],
}

impl World {
    async fn new(vol: &Volume) -> Self {
        let clients = [vol.client().await, vol.client().await];
        let blobs = Blobs::serve(&clients[0]);
        clients[1].attach_slice_store(blobs.clone());
        let files = [new_file(&clients[0], NAMES[0]).await, new_file(&clients[0], NAMES[1]).await];
        for ino in files {
            clients[0].truncate(&Caller::root(), ino, BASE).await.unwrap();
            for client in &clients {
                client.open_file(&Caller::root(), ino, OFlag::O_RDWR).await.unwrap();
            }
        }
        Self { clients, blobs, files, expected: [Vec::new(), Vec::new()] }
    }

    async fn take(&mut self, step: &Step) {
        let root = Caller::root();
        match *step {
            Step::Write { client, file, at, len, byte } => {
                let (meta, ino) = (&self.clients[client], self.files[file]);
                let bytes = vec![byte; size(len)];
                write_bytes(meta, &self.blobs, ino, BASE + at, &bytes).await;
                self.put(file, at, &bytes);
            }
            Step::Resize { client, file, length } => {
                let (meta, ino) = (&self.clients[client], self.files[file]);
                meta.truncate(&root, ino, BASE + length).await.unwrap();
                self.expected[file].resize(size(length), 0);
            }
            Step::Zero { client, file, at, len, keep_size } => {
                let mut mode = FallocateFlags::FALLOC_FL_ZERO_RANGE;
                mode.set(FallocateFlags::FALLOC_FL_KEEP_SIZE, keep_size);
                let (meta, ino) = (&self.clients[client], self.files[file]);
                meta.fallocate(&root, ino, mode, BASE + at, len).await.unwrap();
                let had = self.expected[file].len();
                self.put(file, at, &vec![0; size(len)]);
                if keep_size {
                    self.expected[file].truncate(had);
                }
            }
            Step::Copy { client, from, at, into, len } => {
                let (source, target) = (self.files[from], self.files[1 - from]);
                let meta = &self.clients[client];
                let copied = copy(meta, (source, BASE + at), (target, BASE + into), len);
                let copied = copied.await.unwrap().bytes;
                let had = &self.expected[from];
                let bytes = had.get(size(at)..).unwrap_or_default();
                let bytes = bytes[..bytes.len().min(size(len))].to_vec();
                assert_eq!(copied, bytes.len() as u64);
                if !bytes.is_empty() {
                    self.put(1 - from, into, &bytes);
                }
            }
            Step::Compact { client, file, index } => {
                self.clients[client].compact(self.files[file], index, true).await.unwrap();
            }
            Step::Read { client, file } => self.check(client, file).await,
            Step::Wait { client } => {
                let later = Timestamp::now().sec + 10 * 86_400;
                self.clients[client].clean_delayed_slices(later).await.unwrap();
            }
        }
    }

    fn put(&mut self, file: usize, at: u64, bytes: &[u8]) {
        let held = &mut self.expected[file];
        let end = size(at) + bytes.len();
        if held.len() < end {
            held.resize(end, 0);
        }
        held[size(at)..end].copy_from_slice(bytes);
    }

    /// Reads as a client that has just opened the file.
    async fn check(&self, client: usize, file: usize) {
        let (meta, ino) = (&self.clients[client], self.files[file]);
        let length = meta.getattr(ino).await.unwrap().length;
        assert_eq!(length, BASE + self.expected[file].len() as u64);
        let bytes = read_bytes(meta, &self.blobs, ino, BASE, length - BASE).await;
        assert_eq!(bytes, self.expected[file]);
    }

    /// Once both files are removed, all their data is deleted.
    async fn end(self) {
        let here = &self.clients[0];
        for client in &self.clients {
            for ino in self.files {
                client.close_file(ino).await.unwrap();
            }
            client.idle().await;
        }
        for name in NAMES {
            remove(here, name).await;
        }
        let later = Timestamp::now().sec + 10 * 86_400;
        here.clean_trash(later).await.unwrap();
        here.idle().await;
        here.clean_delayed_slices(later).await.unwrap();
        here.clean_deleted_files(later).await.unwrap();
        here.clean_slices().await.unwrap();
        assert_eq!(self.blobs.ids(), []);
        assert_eq!(here.engine().dead_slices(10).await.unwrap(), []);
    }
}

fn size(length: u64) -> usize {
    usize::try_from(length).unwrap()
}

async fn run(vol: Volume, steps: &[Step]) {
    let mut world = World::new(&vol).await;
    for step in steps {
        world.take(step).await;
    }
    for (client, file) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        world.check(client, file).await;
    }
    world.end().await;
}

fn search<F: Future<Output = Volume>>(cases: u32, volume: impl Fn(Setting) -> F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let steps = (prop::collection::vec(step(), 1..60), 0..2i64);
    let mut runner = TestRunner::new(Config { cases, ..Config::default() });
    let outcome = runner.run(&steps, |(steps, trash_days)| {
        runtime.block_on(async {
            run(volume(Setting { trash_days, ..setting() }).await, &steps).await;
        });
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn content_is_the_last_write_in_memory() {
    search(150, Volume::memory_with);
}

#[test]
fn content_is_the_last_write_in_sqlite() {
    search(20, Volume::sqlite_with);
}

#[test]
fn content_is_the_last_write_in_redis() {
    search(20, Volume::redis_with);
}

#[test]
fn content_is_the_last_write_in_tikv() {
    search(20, Volume::tikv_with);
}
