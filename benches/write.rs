//! Writes to each store, also compressed and encrypted, each compared with its plain limit.
//!
//! `cargo bench --bench write`, or with a part of a name. A run writes a file, flushes it, and ends
//! when all of it is in the store.

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
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use jfs::chunk::{Cache, CacheOptions, Compression, Options, Writeback};
use jfs::object::mem::MemStore;
use jfs::object::{ObjectStore, Spec};
use rand::seq::SliceRandom;
use ring::aead::{Aad, Nonce};
use tempfile::TempDir;
use uuid::Uuid;

use baseline::bench_volume::{BLOCK, BenchVolume, LAYOUT, MIB, VolumeParts, content};
use baseline::encryption::CIPHERS;
use baseline::{Comparison, encryption, plain_s3};

/// Bytes of the file.
const FILE: usize = 64 * MIB;
/// Concurrent uploads, as by default.
const AT_ONCE: usize = 20;

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
    /// Bytes of one run: all of the file, or an eighth of it if each request is a slice of its own.
    fn bytes(self) -> usize {
        if self.random { FILE / 8 } else { FILE }
    }

    /// Bytes of an object: random writes do not grow into whole blocks.
    fn object(self) -> usize {
        if self.random { self.request } else { BLOCK }
    }

    /// What a plain client writes: as many bytes, in objects of the same size.
    fn bodies(self, bytes: &[u8]) -> Arc<[Bytes]> {
        bytes[..self.bytes()].chunks(self.object()).map(Bytes::copy_from_slice).collect()
    }
}

type Pass = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn main() -> Result<()> {
    let mut beside = Comparison::new()?;
    let bytes: Arc<[u8]> = content(FILE).into();
    let folder = TempDir::new()?;
    let server = s3::S3Server::start();
    for pattern in PATTERNS {
        let objects = Arc::new(MemStore::default());
        let name = format!("store mem, {}", pattern.name);
        run(
            &mut beside,
            &name,
            VolumeParts::cold(objects),
            pattern,
            &bytes,
            ("memcpy", copying(pattern.bodies(&bytes))),
        )?;

        let dir = folder.path().join(Uuid::new_v4().to_string());
        let spec = Spec::new("file", &format!("{}/", dir.display()));
        let name = format!("store file, {}", pattern.name);
        let plain = ("files, synced", filing(pattern.bodies(&bytes), folder.path()));
        run(
            &mut beside,
            &name,
            VolumeParts::cold(jfs::object::open(&spec)?),
            pattern,
            &bytes,
            plain,
        )?;

        let bucket = format!("write-{}", Uuid::new_v4());
        let spec = server.spec(&bucket);
        let client = plain_s3::client(&spec, s3::ACCESS_KEY, s3::SECRET_KEY);
        let bodies = pattern.bodies(&bytes);
        let plain =
            move || plain_s3::write(client.clone(), bucket.clone(), Arc::clone(&bodies), AT_ONCE);
        let name = format!("store s3, {}", pattern.name);
        let choice = VolumeParts::cold(jfs::object::open(&spec)?);
        run(&mut beside, &name, choice, pattern, &bytes, ("bare client", plain))?;
    }
    writeback(&mut beside, &bytes, folder.path())?;
    packed(&mut beside, &bytes)?;
    encrypted(&mut beside, &bytes)?;
    println!("\n{beside}");
    Ok(())
}

/// Blocks count as stored once they are staged.
fn writeback(beside: &mut Comparison, bytes: &Arc<[u8]>, folder: &Path) -> Result<()> {
    let dir = folder.join("staging");
    let cache = beside.runtime().block_on(async {
        let options = CacheOptions::parse(dir.to_str().context("a path")?)?;
        let options = CacheOptions { free_ratio: 0.01, ..options };
        let uuid = Uuid::new_v4().to_string();
        anyhow::Ok(Cache::open(options).await?.volume(&uuid, LAYOUT, None)?)
    })?;
    let options = Options { writeback: Some(Writeback::default()), ..Options::default() };
    let choice = VolumeParts {
        cache: Some(cache),
        options,
        ..VolumeParts::cold(Arc::new(MemStore::default()))
    };
    let name = format!("writeback, {}", PATTERNS[1].name);
    run(
        beside,
        &name,
        choice,
        PATTERNS[1],
        bytes,
        ("files, synced", filing(PATTERNS[1].bodies(bytes), folder)),
    )
}

fn packed(beside: &mut Comparison, bytes: &Arc<[u8]>) -> Result<()> {
    for (name, compression) in [("lz4", Compression::Lz4), ("zstd", Compression::Zstd)] {
        let choice =
            VolumeParts { compression, ..VolumeParts::cold(Arc::new(MemStore::default())) };
        let bodies = PATTERNS[1].bodies(bytes);
        let plain = move || {
            for body in bodies.iter() {
                let _ = black_box(compression.compress(body.clone()));
            }
            ready(())
        };
        let name = format!("store mem, {name}, {}", PATTERNS[1].name);
        run(beside, &name, choice, PATTERNS[1], bytes, ("compression alone", plain))?;
    }
    Ok(())
}

fn encrypted(beside: &mut Comparison, bytes: &Arc<[u8]>) -> Result<()> {
    for (name, cipher) in CIPHERS {
        let objects = encryption::encrypted(Arc::new(MemStore::default()), name)?;
        let (key, bodies) = (Arc::new(encryption::key(cipher)?), PATTERNS[1].bodies(bytes));
        let plain = move || {
            for body in bodies.iter() {
                let mut body = body.to_vec();
                let nonce = Nonce::assume_unique_for_key([0; 12]);
                let _ = black_box(key.seal_in_place_append_tag(nonce, Aad::empty(), &mut body));
            }
            ready(())
        };
        let name = format!("store mem, {name}, {}", PATTERNS[1].name);
        let plain = ("the cipher alone", plain);
        run(beside, &name, VolumeParts::cold(objects), PATTERNS[1], bytes, plain)?;
    }
    Ok(())
}

/// Writes a file again and again, and clears the store in between.
fn run<P, B>(
    beside: &mut Comparison,
    name: &str,
    choice: VolumeParts,
    pattern: Pattern,
    bytes: &Arc<[u8]>,
    plain: (&'static str, P),
) -> Result<()>
where
    P: Fn() -> B + Clone + Send + 'static,
    B: Future<Output = ()> + Send + 'static,
{
    let objects = Arc::clone(&choice.objects);
    let place = beside.runtime().block_on(BenchVolume::new(choice))?;
    let (bytes, store) = (Arc::clone(bytes), Arc::clone(&place.store));
    let ours = move || -> Pass {
        let (place, bytes) = (Arc::clone(&place), Arc::clone(&bytes));
        Box::pin(async move {
            let mut offsets: Vec<usize> = (0..FILE).step_by(pattern.request).collect();
            if pattern.random {
                offsets.shuffle(&mut rand::rng());
                offsets.truncate(pattern.bytes() / pattern.request);
            }
            for offset in offsets {
                let part = &bytes[offset..offset + pattern.request];
                let written = place.content.write(place.ino, offset as u64, part).await;
                assert!(written.is_ok(), "{written:?}");
            }
            let flushed = place.content.flush(place.ino).await;
            assert!(flushed.is_ok(), "{flushed:?}");
        })
    };
    let tidy = move || -> Pass {
        let (objects, store) = (Arc::clone(&objects), Arc::clone(&store));
        Box::pin(async move {
            // No run continues into the next.
            let _ = store.flush_staged().await;
            clear(objects).await;
        })
    };
    beside.pair(name, pattern.bytes() as u64, ours, plain, tidy);
    Ok(())
}

async fn clear(objects: Arc<dyn ObjectStore>) {
    while let Ok(found) = objects.list("chunks/", "", 1000).await
        && !found.is_empty()
    {
        for object in found {
            let _ = objects.delete(&object.key).await;
        }
    }
}

fn copying(
    bodies: Arc<[Bytes]>,
) -> impl Fn() -> std::future::Ready<()> + Clone + Send + 'static + use<> {
    move || {
        // Kept to the end, as a store does: reused memory costs less.
        let kept: Vec<Vec<u8>> = bodies.iter().map(|body| body.to_vec()).collect();
        black_box(kept);
        ready(())
    }
}

/// Writes each block as a file that survives a crash of the machine, name included.
fn filing(
    bodies: Arc<[Bytes]>,
    folder: &Path,
) -> impl Fn() -> std::future::Ready<()> + Clone + Send + 'static + use<> {
    let dir = folder.join(Uuid::new_v4().to_string());
    move || {
        let written = std::fs::create_dir_all(&dir).and_then(|()| {
            for (index, body) in bodies.iter().enumerate() {
                let (draft, path) = (dir.join("draft"), dir.join(index.to_string()));
                let mut file = File::create(&draft)?;
                file.write_all(body)?;
                file.sync_data()?;
                std::fs::rename(draft, path)?;
                File::open(&dir)?.sync_all()?;
            }
            Ok(())
        });
        assert!(written.is_ok(), "{written:?}");
        ready(())
    }
}
