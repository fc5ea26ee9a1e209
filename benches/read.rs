//! Reads from memory, from the disk cache and from the store, each compared with its plain limit.
//!
//! `cargo bench --bench read`, or with a part of a name, such as `memory/sequential`. The table at
//! the end shows all results.

#[allow(dead_code, reason = "each bench uses its own part of this")]
mod baseline;
#[allow(
    dead_code,
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "shared with tests, which assert by panicking"
)]
#[path = "../tests/support/s3.rs"]
mod s3;

use std::fs::File;
use std::future::ready;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use jfs::buffer_pool;
use jfs::chunk::{Cache, CacheOptions, Checksum, Compression, Options};
use jfs::object::Spec;
use jfs::object::mem::MemStore;
use jfs::vfs::Reader;
use rand::seq::SliceRandom;
use ring::aead::{Aad, Algorithm, Nonce};
use tempfile::TempDir;
use uuid::Uuid;

use baseline::bench_volume::{BLOCK, BenchVolume, LAYOUT, MIB, VolumeParts, content};
use baseline::encryption::CIPHERS;
use baseline::{Comparison, encryption, plain_s3};

/// Bytes of the file.
const FILE: usize = 64 * MIB;
/// Blocks that a plain client fetches at once: as far as a stream reads ahead.
const AT_ONCE: usize = 8;

/// How a file is read.
#[derive(Clone, Copy)]
struct Pattern {
    name: &'static str,
    random: bool,
    request: usize,
}

const PATTERNS: [Pattern; 4] = [
    Pattern { name: "sequential 128 KiB", random: false, request: 128 << 10 },
    Pattern { name: "sequential 1 MiB", random: false, request: MIB },
    Pattern { name: "random 128 KiB", random: true, request: 128 << 10 },
    Pattern { name: "random 1 MiB", random: true, request: MIB },
];

impl Pattern {
    fn offsets(self) -> Vec<usize> {
        let mut offsets: Vec<usize> = (0..FILE).step_by(self.request).collect();
        if self.random {
            offsets.shuffle(&mut rand::rng());
            offsets.truncate(offsets.len() / 8);
        }
        offsets
    }

    /// Bytes of one run: one pass over the file, or an eighth of it for random requests.
    fn bytes(self) -> u64 {
        if self.random { FILE as u64 / 8 } else { FILE as u64 }
    }

    /// What a plain client requests: whole blocks ahead of a stream, or one range after the other.
    fn plan(self) -> plain_s3::Plan {
        if self.random {
            return plain_s3::Plan::Ranges(self.offsets(), self.request);
        }
        plain_s3::Plan::Blocks(AT_ONCE)
    }
}

fn main() -> Result<()> {
    let mut beside = Comparison::new()?;
    let bytes: Arc<[u8]> = content(FILE).into();
    let folder = TempDir::new()?;
    let server = s3::S3Server::start();
    for pattern in PATTERNS {
        memory(&mut beside, pattern, &bytes)?;
        disk(&mut beside, pattern, &bytes, folder.path(), Checksum::default())?;
        disk(&mut beside, pattern, &bytes, folder.path(), Checksum::None)?;
        cold_memory(&mut beside, pattern, &bytes)?;
        cold_files(&mut beside, pattern, &bytes, folder.path())?;
        cold_s3(&mut beside, pattern, &bytes, &server)?;
    }
    compressed(&mut beside, &bytes, "lz4", Compression::Lz4)?;
    compressed(&mut beside, &bytes, "zstd", Compression::Zstd)?;
    for (name, cipher) in CIPHERS {
        encrypted(&mut beside, &bytes, name, cipher)?;
    }
    println!("\n{beside}");
    Ok(())
}

/// All of the file is in memory.
fn memory(beside: &mut Comparison, pattern: Pattern, bytes: &Arc<[u8]>) -> Result<()> {
    let choice =
        VolumeParts { budget: 8 * FILE, ..VolumeParts::cold(Arc::new(MemStore::default())) };
    let reader = prepare(beside, choice, bytes)?;
    let name = format!("memory cache, {}", pattern.name);
    let ours = reading(&reader, pattern);
    beside.pair(&name, pattern.bytes(), ours, ("memcpy", copying(bytes, pattern)), || ready(()));
    Ok(())
}

/// All of the file is in the cache on disk, and in the page cache.
fn disk(
    beside: &mut Comparison,
    pattern: Pattern,
    bytes: &Arc<[u8]>,
    folder: &Path,
    checksum: Checksum,
) -> Result<()> {
    let runtime = beside.runtime();
    let dir = folder.join(Uuid::new_v4().to_string());
    let uuid = Uuid::new_v4().to_string();
    let cache = runtime.block_on(async {
        let options = CacheOptions::parse(dir.to_str().context("a path")?)?;
        let size = 4 * FILE as u64;
        let options = CacheOptions { size, free_ratio: 0.01, checksum, ..options };
        anyhow::Ok(Cache::open(options).await?.volume(&uuid, LAYOUT, None)?)
    })?;
    let choice = VolumeParts {
        cache: Some(cache),
        options: Options { cache_large_write: true, ..Options::default() },
        ..VolumeParts::cold(Arc::new(MemStore::default()))
    };
    let reader = prepare(beside, choice, bytes)?;
    // The cache drops blocks if the disk is too slow; reading them again caches them again.
    let refill = reading(&reader, PATTERNS[1]);
    for _ in 0..100 {
        if count_blocks(&dir)? == FILE / BLOCK {
            break;
        }
        runtime.block_on(async {
            refill().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        });
    }
    let files = open_blocks(&dir)?;
    let unchecked = if checksum == Checksum::None { ", unchecked" } else { "" };
    let name = format!("disk cache{unchecked}, {}", pattern.name);
    let ours = reading(&reader, pattern);
    beside.pair(&name, pattern.bytes(), ours, ("pread", preading(&files, pattern)), || ready(()));
    Ok(())
}

fn cold_memory(beside: &mut Comparison, pattern: Pattern, bytes: &Arc<[u8]>) -> Result<()> {
    let reader = prepare(beside, VolumeParts::cold(Arc::new(MemStore::default())), bytes)?;
    let name = format!("store mem, {}", pattern.name);
    let ours = reading(&reader, pattern);
    beside.pair(&name, pattern.bytes(), ours, ("memcpy", copying(bytes, pattern)), || ready(()));
    Ok(())
}

fn cold_files(
    beside: &mut Comparison,
    pattern: Pattern,
    bytes: &Arc<[u8]>,
    folder: &Path,
) -> Result<()> {
    let dir = folder.join(Uuid::new_v4().to_string());
    let spec = Spec::new("file", &format!("{}/", dir.display()));
    let reader = prepare(beside, VolumeParts::cold(jfs::object::open(&spec)?), bytes)?;
    let files = open_blocks(&dir)?;
    let name = format!("store file, {}", pattern.name);
    let ours = reading(&reader, pattern);
    beside.pair(&name, pattern.bytes(), ours, ("pread", preading(&files, pattern)), || ready(()));
    Ok(())
}

fn cold_s3(
    beside: &mut Comparison,
    pattern: Pattern,
    bytes: &Arc<[u8]>,
    server: &s3::S3Server,
) -> Result<()> {
    let bucket = format!("read-{}", Uuid::new_v4());
    let spec = server.spec(&bucket);
    let objects = jfs::object::open(&spec)?;
    let reader = prepare(beside, VolumeParts::cold(Arc::clone(&objects)), bytes)?;
    let keys = beside.runtime().block_on(objects.list("chunks/", "", FILE / BLOCK))?;
    let keys: Arc<[String]> = keys.into_iter().map(|object| object.key).collect();
    let client = plain_s3::client(&spec, s3::ACCESS_KEY, s3::SECRET_KEY);
    let name = format!("store s3, {}", pattern.name);
    let ours = reading(&reader, pattern);
    let plain =
        move || plain_s3::read(client.clone(), bucket.clone(), Arc::clone(&keys), pattern.plan());
    beside.pair(&name, pattern.bytes(), ours, ("bare client", plain), || ready(()));
    Ok(())
}

/// Compressed blocks, from memory.
fn compressed(
    beside: &mut Comparison,
    bytes: &Arc<[u8]>,
    name: &str,
    compression: Compression,
) -> Result<()> {
    let choice = VolumeParts { compression, ..VolumeParts::cold(Arc::new(MemStore::default())) };
    let reader = prepare(beside, choice, bytes)?;
    let ours = reading(&reader, PATTERNS[1]);
    let bodies =
        bytes.chunks(BLOCK).map(|block| compression.compress(Bytes::copy_from_slice(block)));
    let bodies: Vec<Bytes> = bodies.collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
    let plain = move || {
        for body in &bodies {
            let _ = black_box(compression.decompress(body.clone(), BLOCK));
        }
        ready(())
    };
    let name = format!("store mem, {name}, {}", PATTERNS[1].name);
    beside.pair(&name, FILE as u64, ours, ("decompression alone", plain), || ready(()));
    Ok(())
}

/// Encrypted blocks, from memory.
fn encrypted(
    beside: &mut Comparison,
    bytes: &Arc<[u8]>,
    name: &str,
    cipher: &'static Algorithm,
) -> Result<()> {
    let objects = encryption::encrypted(Arc::new(MemStore::default()), name)?;
    let reader = prepare(beside, VolumeParts::cold(objects), bytes)?;
    let ours = reading(&reader, PATTERNS[1]);
    let key = encryption::key(cipher)?;
    let mut sealed = Vec::new();
    for block in bytes.chunks(BLOCK) {
        let mut body = block.to_vec();
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut body).ok().context("seal")?;
        sealed.push(body);
    }
    let (key, sealed) = (Arc::new(key), Arc::new(sealed));
    let plain = move || {
        for body in sealed.iter() {
            let mut body = body.clone();
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            let _ = black_box(key.open_in_place(nonce, Aad::empty(), &mut body));
        }
        ready(())
    };
    let name = format!("store mem, {name}, {}", PATTERNS[1].name);
    beside.pair(&name, FILE as u64, ours, ("the cipher alone", plain), || ready(()));
    Ok(())
}

/// Creates a volume with the file, and opens it.
fn prepare(beside: &Comparison, choice: VolumeParts, bytes: &[u8]) -> Result<Arc<Opened>> {
    beside.runtime().block_on(async {
        let place = BenchVolume::new(choice).await?;
        place.fill(bytes, MIB).await?;
        let attr = place.meta.getattr(place.ino).await?;
        let reader = place.content.reader(place.ino, &attr);
        Ok(Arc::new(Opened { reader, _place: place }))
    })
}

struct Opened {
    reader: Reader,
    _place: Arc<BenchVolume>,
}

/// Reads the file once, as a mount does: data that is available at once is returned at once, and
/// then copied to the caller.
fn reading(
    opened: &Arc<Opened>,
    pattern: Pattern,
) -> impl Fn() -> Pass + Clone + Send + 'static + use<> {
    let opened = Arc::clone(opened);
    move || {
        let opened = Arc::clone(&opened);
        Box::pin(async move {
            let mut into = buffer_pool::Buffer::scratch(pattern.request);
            let len = u32::try_from(pattern.request).unwrap_or(u32::MAX);
            for offset in pattern.offsets() {
                let offset = offset as u64;
                let pieces = match opened.reader.read_now(offset, len) {
                    Some(pieces) => pieces,
                    None => opened.reader.read(offset, len).await.unwrap_or_default(),
                };
                let mut at = 0;
                for piece in &pieces {
                    into[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
                assert_eq!(at, into.len(), "the whole request is answered");
                black_box(&into);
            }
        })
    }
}

type Pass = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn copying(
    bytes: &Arc<[u8]>,
    pattern: Pattern,
) -> impl Fn() -> std::future::Ready<()> + Clone + Send + 'static + use<> {
    let bytes = Arc::clone(bytes);
    move || {
        let mut into = buffer_pool::Buffer::scratch(pattern.request);
        for offset in pattern.offsets() {
            into.copy_from_slice(black_box(&bytes[offset..offset + pattern.request]));
            black_box(&into);
        }
        ready(())
    }
}

fn preading(
    files: &Arc<Vec<File>>,
    pattern: Pattern,
) -> impl Fn() -> std::future::Ready<()> + Clone + Send + 'static + use<> {
    let files = Arc::clone(files);
    move || {
        let mut into = buffer_pool::Buffer::scratch(pattern.request);
        let mut copied = buffer_pool::Buffer::scratch(pattern.request);
        for offset in pattern.offsets() {
            let (file, at) = (offset / BLOCK, (offset % BLOCK) as u64);
            let read = files[file].read_exact_at(&mut into, at);
            assert!(read.is_ok(), "{read:?}");
            copied.copy_from_slice(&into);
            black_box(&copied);
        }
        ready(())
    }
}

/// Opens the files of full blocks below a directory.
fn open_blocks(dir: &Path) -> Result<Arc<Vec<File>>> {
    let mut paths = Vec::new();
    find_blocks(dir, &mut paths)?;
    anyhow::ensure!(paths.len() == FILE / BLOCK, "{} blocks in {}", paths.len(), dir.display());
    Ok(Arc::new(paths.iter().map(File::open).collect::<Result<_, _>>()?))
}

fn count_blocks(dir: &Path) -> Result<usize> {
    let mut paths = Vec::new();
    find_blocks(dir, &mut paths)?;
    Ok(paths.len())
}

fn find_blocks(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find_blocks(&entry.path(), found)?;
        } else if entry.file_name().to_string_lossy().ends_with(&format!("_{BLOCK}")) {
            found.push(entry.path());
        }
    }
    Ok(())
}
