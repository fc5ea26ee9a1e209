//! Random changes and reads of content through several handles and clients, against plain bytes.
//!
//! A failure shrinks to a short list of steps; keep it below as a `regression_...` test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jfs::meta::record::{CHUNK_SIZE, Setting};
use jfs::meta::{Caller, Ino, Timestamp};
use jfs::vfs::Reader;
use nix::fcntl::FallocateFlags;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use crate::faulty_bucket::FaultyBucket;
use crate::fixture::{Client, noise, until, within};
use crate::layers::Layers;
use crate::support::data::{name, remove};
use crate::support::volume::{Volume, setting};

/// The part of each file that is used: it spans the end of the first chunk, and many blocks.
const WINDOW: u64 = 700;
const BASE: u64 = CHUNK_SIZE - WINDOW / 2;
const NAMES: [&str; 2] = ["a", "b"];
/// Handles of each file.
const HANDLES: usize = 2;

/// Files and handles are numbered; offsets and lengths are relative to the start of the window.
#[derive(Debug, Clone)]
enum Step {
    Write {
        file: usize,
        at: u64,
        len: u64,
        seed: u64,
    },
    Resize {
        file: usize,
        length: u64,
    },
    Erase {
        file: usize,
        at: u64,
        len: u64,
        how: Erasing,
    },
    Copy {
        from: usize,
        at: u64,
        into: u64,
        len: u64,
    },
    Read {
        file: usize,
        handle: usize,
        at: u64,
        len: u64,
    },
    Flush {
        file: usize,
    },
    Reopen {
        file: usize,
    },
    /// The other client continues with the file.
    Switch {
        file: usize,
    },
    Compact {
        file: usize,
        index: u32,
    },
    /// From now on some requests to the bucket fail, or no longer do.
    Break(bool),
}

#[derive(Debug, Clone, Copy)]
enum Erasing {
    Punch,
    Zero,
    ZeroKeepingSize,
    Allocate,
}

fn step(breaks: bool) -> impl Strategy<Value = Step> {
    let file = || 0..2usize;
    let place = || (0..WINDOW, prop_oneof![3 => 1..40u64, 1 => 1..WINDOW]);
    let how = prop_oneof![
        Just(Erasing::Punch),
        Just(Erasing::Zero),
        Just(Erasing::ZeroKeepingSize),
        Just(Erasing::Allocate),
    ];
    let cut = |at: u64, len: u64| len.min(WINDOW - at);
    prop_oneof![
        10 => (file(), place(), any::<u64>()).prop_map(move |(file, (at, len), seed)| {
            Step::Write { file, at, len: cut(at, len), seed }
        }),
        2 => (file(), 0..=WINDOW).prop_map(|(file, length)| Step::Resize { file, length }),
        2 => (file(), place(), how).prop_map(move |(file, (at, len), how)| {
            Step::Erase { file, at, len: cut(at, len), how }
        }),
        1 => (file(), place(), 0..WINDOW).prop_map(move |(from, (at, len), into)| {
            Step::Copy { from, at, into, len: cut(into, len) }
        }),
        6 => (file(), 0..HANDLES, place()).prop_map(|(file, handle, (at, len))| {
            Step::Read { file, handle, at, len }
        }),
        2 => file().prop_map(|file| Step::Flush { file }),
        1 => file().prop_map(|file| Step::Reopen { file }),
        1 => file().prop_map(|file| Step::Switch { file }),
        1 => (file(), 0..2u32).prop_map(|(file, index)| Step::Compact { file, index }),
        u32::from(breaks) * 2 => any::<bool>().prop_map(Step::Break),
    ]
}

/// The expected state of one file, from the start of the window.
#[derive(Default)]
struct Model {
    /// The content if nothing has failed.
    bytes: Vec<u8>,
    /// The content when it was last known to be stored.
    stored: Vec<u8>,
    /// What each byte may be if something fails: all values since then.
    may: Vec<BTreeSet<u8>>,
    /// The lengths that it may have.
    lengths: BTreeSet<usize>,
}

impl Model {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let end = size(at) + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[size(at)..end].copy_from_slice(bytes);
        self.note();
    }

    fn resize(&mut self, length: u64) {
        self.bytes.resize(size(length), 0);
        self.note();
    }

    /// Records a state that may get stored, wholly or in part.
    fn note(&mut self) {
        if self.may.len() < self.bytes.len() {
            // Bytes between two writes are zero as soon as the second is stored.
            self.may.resize_with(self.bytes.len(), || BTreeSet::from([0]));
        }
        for (may, byte) in self.may.iter_mut().zip(&self.bytes) {
            may.insert(*byte);
        }
        self.lengths.insert(self.bytes.len());
    }

    /// Everything is stored as it is.
    fn confirm(&mut self) {
        self.stored.clone_from(&self.bytes);
        self.may = self.bytes.iter().map(|byte| BTreeSet::from([*byte])).collect();
        self.lengths = BTreeSet::from([self.bytes.len()]);
    }

    /// Something has failed and this is what was found.
    fn settle(&mut self, found: Vec<u8>) {
        let longest = self.lengths.last().copied().unwrap_or(0);
        let shortest = self.lengths.first().copied().unwrap_or(0);
        assert!((shortest..=longest).contains(&found.len()), "{} bytes", found.len());
        for (at, byte) in found.iter().enumerate() {
            assert!(self.may[at].contains(byte), "{byte} at {at}, not one of {:?}", self.may[at]);
        }
        self.bytes = found;
        self.confirm();
    }
}

/// The layers below the content, and how they behave.
#[derive(Clone, Copy)]
struct Environment {
    layers: Layers,
    /// Every request takes a while.
    slow: bool,
    /// Now and then the bucket fails.
    breaks: bool,
}

const FIRM: Environment = Environment { layers: Layers::Memory, slow: false, breaks: false };

struct ModelRun {
    environment: Environment,
    bucket: Arc<FaultyBucket>,
    clients: [Client; 2],
    inodes: [Ino; 2],
    /// The client that works on each file.
    at: [usize; 2],
    handles: [Vec<Reader>; 2],
    models: [Model; 2],
    /// Requests fail now.
    is_broken: bool,
    /// Requests have failed, or may have.
    has_broken: bool,
}

impl ModelRun {
    async fn new(vol: &Volume, environment: Environment) -> Self {
        let (bucket, layers) = (Arc::new(FaultyBucket::default()), environment.layers);
        bucket.slow.store(environment.slow, Ordering::Relaxed);
        let clients =
            [Client::over(vol, &bucket, layers).await, Client::over(vol, &bucket, layers).await];
        let mut inodes = Vec::new();
        for at in NAMES {
            let meta = &clients[0].meta;
            let made = meta.create(&Caller::root(), Ino::ROOT, &name(at), 0o644, 0, true).await;
            let ino = made.unwrap().0;
            meta.truncate(&Caller::root(), ino, BASE).await.unwrap();
            meta.close_file(ino).await.unwrap();
            inodes.push(ino);
        }
        let mut world = Self {
            environment,
            bucket,
            clients,
            inodes: [inodes[0], inodes[1]],
            at: [0, 0],
            handles: [Vec::new(), Vec::new()],
            models: [Model::default(), Model::default()],
            is_broken: false,
            has_broken: false,
        };
        for file in 0..2 {
            world.models[file].confirm();
            world.open(file).await;
        }
        world
    }

    fn client(&self, file: usize) -> &Client {
        &self.clients[self.at[file]]
    }

    async fn open(&mut self, file: usize) {
        for _ in 0..HANDLES {
            let reader = self.client(file).open(self.inodes[file]).await;
            self.handles[file].push(reader);
        }
    }

    async fn close(&mut self, file: usize) {
        for _ in 0..std::mem::take(&mut self.handles[file]).len() {
            self.client(file).meta.close_file(self.inodes[file]).await.unwrap();
        }
    }

    /// Handles the outcome of an operation that commits some files, and updates the model.
    async fn settle<T>(&mut self, files: &[usize], outcome: jfs::Result<T>) -> Option<T> {
        match outcome {
            Ok(answer) => {
                for &file in files {
                    self.models[file].confirm();
                }
                Some(answer)
            }
            Err(error) => {
                assert!(self.has_broken, "{error}");
                for &file in files {
                    self.recover(file).await;
                }
                None
            }
        }
    }

    /// After a failure: closes all handles, and takes what a new one shows as the state.
    async fn recover(&mut self, file: usize) {
        self.disturb(false);
        let ino = self.inodes[file];
        // If only another file has failed, this one is stored now.
        let flushed = within("flush", self.client(file).content.flush(ino)).await;
        self.close(file).await;
        self.open(file).await;
        let found = self.all(file, 0).await.unwrap();
        if flushed.is_ok() {
            assert_eq!(found, self.models[file].bytes);
        }
        self.models[file].settle(found);
    }

    fn disturb(&mut self, broken: bool) {
        self.bucket.disturb(broken);
        self.is_broken = broken;
        self.has_broken |= broken;
    }

    /// Uploads what one client has only staged, for the others to find it in the bucket.
    async fn unstage(&mut self) {
        if self.environment.layers == Layers::Writeback {
            self.disturb(false);
            for client in &self.clients {
                // A compaction that follows a read or a write stages its result.
                client.meta.idle().await;
                client.unstage().await;
            }
        }
    }

    async fn all(&self, file: usize, handle: usize) -> jfs::Result<Vec<u8>> {
        let read = self.handles[file][handle].read(BASE, 2000);
        Ok(within("read", read).await?.concat())
    }

    async fn take(&mut self, step: &Step) {
        let root = Caller::root();
        match *step {
            Step::Write { file, at, len, seed } => {
                let bytes = noise(size(len), seed);
                let content = &self.client(file).content;
                let written = content.write(self.inodes[file], BASE + at, &bytes);
                let written = within("write", written).await;
                self.models[file].put(at, &bytes);
                if written.is_err() {
                    self.recover(file).await;
                }
            }
            Step::Resize { file, length } => {
                let content = &self.client(file).content;
                let cut = content.truncate(&root, self.inodes[file], BASE + length, true);
                let cut = within("truncate", cut).await;
                if cut.is_ok() {
                    self.models[file].resize(length);
                }
                self.settle(&[file], cut).await;
            }
            Step::Erase { file, at, len, how } => self.erase(file, at, len, how).await,
            Step::Copy { from, at, into, len } => self.copy(from, at, into, len).await,
            Step::Read { file, handle, at, len } => {
                let len = u32::try_from(len).unwrap();
                let read = within("read", self.handles[file][handle].read(BASE + at, len)).await;
                match read {
                    Ok(read) => {
                        let bytes = &self.models[file].bytes;
                        let start = size(at).min(bytes.len());
                        let end = (start + len as usize).min(bytes.len());
                        assert_eq!(read.concat(), bytes[start..end]);
                    }
                    Err(error) => {
                        assert!(self.has_broken, "{error}");
                        self.recover(file).await;
                    }
                }
            }
            Step::Flush { file } => {
                let flushed = self.client(file).content.flush(self.inodes[file]);
                let flushed = within("flush", flushed).await;
                self.settle(&[file], flushed).await;
            }
            Step::Reopen { file } => {
                // Dirty data outlives its handles, but its errors do not, so they are read first.
                if self.has_broken {
                    let flushed = self.client(file).content.flush(self.inodes[file]);
                    let flushed = within("flush", flushed).await;
                    self.settle(&[file], flushed).await;
                }
                self.close(file).await;
                self.open(file).await;
            }
            Step::Switch { file } => {
                let flushed = self.client(file).content.flush(self.inodes[file]);
                let flushed = within("flush", flushed).await;
                if self.settle(&[file], flushed).await.is_some() {
                    self.unstage().await;
                    self.close(file).await;
                    self.at[file] = 1 - self.at[file];
                    self.open(file).await;
                }
            }
            Step::Compact { file, index } => {
                self.unstage().await;
                let compacted = self.clients[1 - self.at[file]]
                    .meta
                    .compact(self.inodes[file], index, true)
                    .await;
                assert!(compacted.is_ok() || self.is_broken, "{compacted:?}");
            }
            Step::Break(broken) => self.disturb(broken),
        }
    }

    async fn erase(&mut self, file: usize, at: u64, len: u64, how: Erasing) {
        let (keep, zero) =
            (FallocateFlags::FALLOC_FL_KEEP_SIZE, FallocateFlags::FALLOC_FL_ZERO_RANGE);
        let mode = match how {
            Erasing::Punch => keep | FallocateFlags::FALLOC_FL_PUNCH_HOLE,
            Erasing::Zero => zero,
            Erasing::ZeroKeepingSize => zero | keep,
            Erasing::Allocate => FallocateFlags::empty(),
        };
        let (content, root) = (&self.client(file).content, Caller::root());
        let erased = content.fallocate(&root, self.inodes[file], mode, BASE + at, len);
        let erased = within("fallocate", erased).await;
        if erased.is_ok() {
            let model = &mut self.models[file];
            let had = model.bytes.len();
            let end = size(at + len);
            if !mode.contains(keep) && had < end {
                model.bytes.resize(end, 0);
            }
            if !matches!(how, Erasing::Allocate) {
                let end = end.min(model.bytes.len());
                let start = size(at).min(end);
                model.bytes[start..end].fill(0);
            }
            model.note();
        }
        self.settle(&[file], erased).await;
    }

    async fn copy(&mut self, from: usize, at: u64, into: u64, len: u64) {
        let to = 1 - from;
        if self.at[from] != self.at[to] {
            return;
        }
        let (source, target) = ((self.inodes[from], BASE + at), (self.inodes[to], BASE + into));
        let content = &self.client(from).content;
        let copied = within("copy", content.copy_range(source, target, len)).await;
        if let Ok(copied) = &copied {
            let bytes = self.models[from].bytes.get(size(at)..).unwrap_or_default();
            let bytes = bytes[..bytes.len().min(size(len))].to_vec();
            assert_eq!(copied.bytes, bytes.len() as u64);
            if !bytes.is_empty() {
                self.models[to].put(into, &bytes);
            }
        }
        self.settle(&[from, to], copied).await;
    }

    /// Checks that everything is as expected, for every handle and for a new client; and that no
    /// object is left once the files are removed.
    async fn end(mut self, vol: &Volume) {
        self.disturb(false);
        for file in 0..2 {
            let ino = self.inodes[file];
            let flushed = within("flush", self.client(file).content.flush(ino)).await;
            if flushed.is_err() {
                self.recover(file).await;
            }
            for handle in 0..HANDLES {
                assert_eq!(self.all(file, handle).await.unwrap(), self.models[file].bytes);
            }
        }
        self.unstage().await;
        let fresh = Client::new(vol, &self.bucket).await;
        for file in 0..2 {
            let reader = fresh.open(self.inodes[file]).await;
            let read = within("read", reader.read(BASE, 2000)).await.unwrap().concat();
            assert_eq!(read, self.models[file].bytes, "as another client sees it");
            fresh.meta.close_file(self.inodes[file]).await.unwrap();
            self.close(file).await;
        }
        for client in &self.clients {
            client.meta.idle().await;
        }
        fresh.meta.idle().await;
        let later = Timestamp::now().sec + 10 * 86_400;
        for at in NAMES {
            remove(&fresh.meta, at).await;
        }
        until("removal of every object", async || {
            fresh.meta.clean_trash(later).await.unwrap();
            fresh.meta.idle().await;
            fresh.meta.clean_delayed_slices(later).await.unwrap();
            fresh.meta.clean_deleted_files(later).await.unwrap();
            fresh.meta.clean_slices().await.unwrap();
            self.bucket.keys().await.is_empty()
        })
        .await;
    }
}

fn size(length: u64) -> usize {
    usize::try_from(length).unwrap()
}

async fn run(vol: Volume, environment: Environment, steps: &[Step]) {
    let mut world = ModelRun::new(&vol, environment).await;
    for step in steps {
        world.take(step).await;
    }
    world.end(&vol).await;
}

/// Number of cases: `JFS_MODEL_CASES` sets more for a long search.
fn cases(usual: u32) -> u32 {
    std::env::var("JFS_MODEL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn search<F>(usual: u32, environment: Environment, volume: impl Fn(Setting) -> F)
where
    F: Future<Output = Volume>,
{
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let steps = (prop::collection::vec(step(environment.breaks), 1..80), 0..2i64);
    let config = Config { cases: cases(usual), max_shrink_iters: 2000, ..Config::default() };
    let outcome = TestRunner::new(config).run(&steps, |(steps, trash_days)| {
        runtime.block_on(async {
            run(volume(Setting { trash_days, ..setting() }).await, environment, &steps).await;
        });
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, (steps, days))) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
            panic!("{why}\n{days} days of trash\n{}", steps.join(",\n"));
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs the search on each engine: with fewer cases on those behind a server or a file.
macro_rules! on_every_engine {
    ($($name:ident: $usual:literal, $environment:expr;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn in_memory() {
                search($usual, $environment, Volume::memory_with);
            }

            #[test]
            fn in_sqlite() {
                search($usual / 6, $environment, Volume::sqlite_with);
            }

            #[test]
            fn in_redis() {
                search($usual / 6, $environment, Volume::redis_with);
            }
        })*
    };
}

on_every_engine! {
    content_is_what_was_written_last: 60, FIRM;
    content_is_what_was_written_last_in_a_slow_bucket: 24, Environment { slow: true, ..FIRM };
    content_is_what_was_written_last_over_a_disk_cache: 48,
        Environment { layers: Layers::Cache, ..FIRM };
    content_is_what_was_written_last_with_writeback: 36,
        Environment { layers: Layers::Writeback, slow: true, ..FIRM };
    what_a_flush_confirmed_outlives_failures_of_the_bucket: 60, Environment { breaks: true, ..FIRM };
    what_a_flush_confirmed_outlives_failures_of_a_slow_bucket: 24,
        Environment { breaks: true, slow: true, ..FIRM };
    what_a_flush_confirmed_outlives_failures_below_a_disk_cache: 36,
        Environment { breaks: true, layers: Layers::Cache, ..FIRM };
    what_a_flush_confirmed_outlives_failures_with_writeback: 12,
        Environment { breaks: true, layers: Layers::Writeback, ..FIRM };
}
