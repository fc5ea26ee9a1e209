//! Metadata operations on every engine, one at a time and 64 in flight.
//!
//! `cargo bench --bench meta_ops`, or with part of a name, such as `redis/create`. With 64 in
//! flight the time shown is that of all 64.

#[allow(
    dead_code,
    clippy::panic,
    clippy::expect_used,
    reason = "shared with tests, which assert by panicking"
)]
#[path = "../tests/support/redis.rs"]
mod redis;
#[allow(
    dead_code,
    clippy::panic,
    clippy::expect_used,
    reason = "shared with tests, which assert by panicking"
)]
#[path = "../tests/support/tikv.rs"]
mod tikv;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use futures::future::try_join_all;
use jfs::meta::record::{Setting, Slice};
use jfs::meta::{
    AttrSet, Caller, EntryRef, Ino, Meta, Name, Options, Registration, RenameMode, Timestamp,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;

use redis::RedisServer;
use tikv::TikvServer;

const WIDTHS: [usize; 2] = [1, 64];
/// Entries of the directory that is listed.
const LISTED: usize = 1000;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let server = RedisServer::start();
    let cluster = TikvServer::start(&[]);
    let dir = TempDir::new()?;
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1200))
        .configure_from_args();
    for (engine, url) in [
        ("memkv", "memkv://bench".to_owned()),
        ("sqlite", format!("sqlite3://{}/meta.db", dir.path().display())),
        ("redis", server.url(0)),
        // A server in memory with one lock: it shows round trips, not the speed of TiKV.
        ("tikv", cluster.fresh_url()),
    ] {
        let volume = Arc::new(runtime.block_on(Volume::new(&url))?);
        for width in WIDTHS {
            let mut group = criterion.benchmark_group(format!("{engine}/{width}"));
            group.throughput(Throughput::Elements(width as u64));
            measure(&mut group, &runtime, &volume, width);
            group.finish();
        }
        runtime.block_on(volume.meta.close())?;
    }
    criterion.final_summary();
    Ok(())
}

/// Defines the benchmark of an operation, with `width` of it at once.
macro_rules! bench {
    ($group:ident, $runtime:ident, $volume:ident, $width:ident: $($op:ident),*) => {
        $($group.bench_function(stringify!($op), |bencher| {
            bencher.to_async($runtime).iter(|| async {
                let all = (0..$width).map(|_| {
                    let volume = $volume.clone();
                    async move { volume.$op().await }
                });
                finish(spawn_all(all).await);
            });
        });)*
    };
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    runtime: &Runtime,
    volume: &Arc<Volume>,
    width: usize,
) {
    bench!(group, runtime, volume, width:
        lookup, getattr, create, mkdir, create_and_unlink, rename, write, setattr, readdir_plus);
}

/// Runs a single operation on the measuring task, and several as tasks of their own.
async fn spawn_all(
    mut all: impl ExactSizeIterator<Item = impl Future<Output = Result<()>> + Send + 'static>,
) -> Result<()> {
    if all.len() == 1 {
        return match all.next() {
            Some(one) => one.await,
            None => Ok(()),
        };
    }
    for done in try_join_all(all.map(tokio::spawn)).await? {
        done?;
    }
    Ok(())
}

/// Panics on an error: a failing benchmark must not look fast.
fn finish(result: Result<()>) {
    if let Err(error) = result {
        eprintln!("{error:#}");
        std::process::abort();
    }
}

/// A volume with files.
struct Volume {
    meta: Arc<Meta>,
    caller: Caller,
    work: Ino,
    listed: Ino,
    files: Vec<(Ino, Name)>,
    next: AtomicU64,
}

impl Volume {
    async fn new(url: &str) -> Result<Self> {
        let options = Options { no_background_jobs: true, ..Options::default() };
        let meta = Meta::attach(url, options).await?;
        let mut setting = Setting::new("bench", Uuid::new_v4())?;
        // With trash, removing would mean moving.
        setting.trash_days = 0;
        meta.init(setting, false).await?;
        meta.load().await?;
        meta.start(Registration::New).await?;
        let caller = Caller::root();
        let dir = async |name| meta.mkdir(&caller, Ino::ROOT, &Name::new(name)?, 0o755, 0).await;
        let ((work, _), (listed, _)) = (dir("work").await?, dir("listed").await?);
        let mut files = Vec::new();
        for i in 0..LISTED {
            let name = Name::new(format!("file-{i}"))?;
            let (ino, _) = meta.create(&caller, listed, &name, 0o644, 0, true).await?;
            meta.close_file(ino).await?;
            files.push((ino, name));
        }
        Ok(Self { meta, caller, work, listed, files, next: AtomicU64::new(0) })
    }

    async fn lookup(&self) -> Result<()> {
        let (_, name) = self.file();
        self.meta.lookup(&self.caller, self.listed, name).await?;
        Ok(())
    }

    async fn getattr(&self) -> Result<()> {
        self.meta.getattr(self.file().0).await?;
        Ok(())
    }

    async fn create(&self) -> Result<()> {
        self.new_file().await?;
        Ok(())
    }

    async fn mkdir(&self) -> Result<()> {
        self.meta.mkdir(&self.caller, self.work, &self.fresh_name()?, 0o755, 0).await?;
        Ok(())
    }

    async fn create_and_unlink(&self) -> Result<()> {
        let name = self.new_file().await?;
        Ok(self.meta.unlink(&self.caller, self.work, &name).await?)
    }

    /// Two renames, there and back, so that the listed files stay.
    async fn rename(&self) -> Result<()> {
        let (_, name) = self.file();
        let other = self.fresh_name()?;
        let (here, there) = (EntryRef::new(self.listed, name), EntryRef::new(self.work, &other));
        self.meta.rename(&self.caller, here, there, RenameMode::Replace).await?;
        self.meta.rename(&self.caller, there, here, RenameMode::Replace).await?;
        Ok(())
    }

    /// Writes a slice into a new chunk, since chunks with many slices are compacted.
    async fn write(&self) -> Result<()> {
        let number = self.number();
        let (ino, _) = &self.files[index(number, self.files.len())];
        let chunk = u32::try_from(number / LISTED as u64)?;
        let id = self.meta.new_slice().await?;
        let slice = Slice { pos: 0, id, size: 4096, off: 0, len: 4096 };
        Ok(self.meta.write(*ino, chunk, 0, slice, Timestamp::now()).await?)
    }

    async fn setattr(&self) -> Result<()> {
        let number = self.number();
        let (ino, _) = &self.files[index(number, self.files.len())];
        // A different value each time, or nothing would be written.
        let mode = if (number / LISTED as u64).is_multiple_of(2) { 0o600 } else { 0o644 };
        let set = AttrSet { mode: Some(mode), ..AttrSet::default() };
        self.meta.setattr(&self.caller, *ino, set).await?;
        Ok(())
    }

    async fn readdir_plus(&self) -> Result<()> {
        self.meta.entries(self.listed, true).await?;
        Ok(())
    }

    async fn new_file(&self) -> Result<Name> {
        let name = self.fresh_name()?;
        let (ino, _) = self.meta.create(&self.caller, self.work, &name, 0o644, 0, true).await?;
        self.meta.close_file(ino).await?;
        Ok(name)
    }

    /// Returns the listed files in turn.
    fn file(&self) -> &(Ino, Name) {
        &self.files[index(self.number(), self.files.len())]
    }

    fn fresh_name(&self) -> Result<Name> {
        Ok(Name::new(format!("new-{}", self.number()))?)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

fn index(number: u64, len: usize) -> usize {
    usize::try_from(number).unwrap_or(0) % len
}
