//! The speed of the session loop alone: a file system that replies from memory, on a real mount.
//!
//! usage: `cargo bench --bench fuse_loop [-- SECONDS]`
//!
//! Prints one line for each result. Needs root.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jfs::error::Error;
use jfs::fuse::{
    Attributes, Entry, Fh, FileSystem, FopenFlags, InitOptions, Mount, MountOptions, Open,
    OpenReply, Payload, Read, ReadReply, Release, Reply, Request, Session, SessionOptions, Stat,
    Write, WrittenBytes,
};
use jfs::meta::Ino;

const FILE: Ino = Ino(2);
const SIZE: u64 = 256 << 20;
const MIB: usize = 1 << 20;

/// One file of zeros, whose content never reaches the page cache.
struct Zeros {
    block: Vec<u8>,
    /// Reply from a task instead of on the receiving thread.
    tasks: bool,
}

impl Zeros {
    fn stat(ino: Ino) -> Stat {
        let (mode, size) = if ino == FILE { (0o100_644, SIZE) } else { (0o040_755, 0) };
        Stat { ino: ino.0, mode, size, nlink: 1, block_size: 4096, ..Stat::default() }
    }
}

impl FileSystem for Zeros {
    fn lookup(&self, _: &Request, name: &[u8], reply: Reply<Entry>) {
        let entry = Entry {
            ino: FILE,
            generation: 1,
            stat: Self::stat(FILE),
            entry_lifetime: Duration::from_mins(1),
            attr_lifetime: Duration::ZERO,
        };
        reply.send(if name == b"file" { Ok(entry) } else { Err(Error::NotFound) });
    }

    fn getattr(&self, request: &Request, _: Option<Fh>, reply: Reply<Attributes>) {
        let attributes = Attributes { stat: Self::stat(request.ino), lifetime: Duration::ZERO };
        if self.tasks {
            reply.spawn(async move { Ok(attributes) });
        } else {
            reply.send(Ok(attributes));
        }
    }

    fn open(&self, _: &Request, _: Open, reply: Reply<OpenReply>) {
        reply.send(Ok(OpenReply { flags: FopenFlags::FOPEN_DIRECT_IO, ..OpenReply::new(Fh(1)) }));
    }

    fn read(&self, _: &Request, read: Read, reply: Reply<ReadReply>) {
        let part = self.block.get(..usize::try_from(read.size).unwrap_or(0)).unwrap_or_default();
        if self.tasks {
            let part = bytes::Bytes::copy_from_slice(part);
            reply.spawn(async move { Ok(ReadReply(vec![part])) });
        } else {
            reply.send_slices(&[part]);
        }
    }

    fn write(&self, _: &Request, write: Write, data: Payload<'_>, reply: Reply<WrittenBytes>) {
        if self.tasks {
            let data = data.keep();
            reply.spawn(async move {
                drop(data);
                Ok(WrittenBytes(write.size))
            });
        } else {
            reply.send(Ok(WrittenBytes(write.size)));
        }
    }

    fn release(&self, _: &Request, _: Release, reply: Reply<()>) {
        reply.send(Ok(()));
    }
}

/// Calls per second.
fn rate(time: Duration, mut call: impl FnMut(u64) -> std::io::Result<()>) -> Result<f64> {
    let start = Instant::now();
    let mut calls = 0_u64;
    while start.elapsed() < time {
        for _ in 0..64 {
            call(calls)?;
            calls += 1;
        }
    }
    Ok(calls as f64 / start.elapsed().as_secs_f64())
}

fn measure(point: &Path, time: Duration, label: &str) -> Result<()> {
    let file = File::options().read(true).write(true).open(point.join("file"))?;
    let mut small = [0; 4096];
    let mut large = vec![0; MIB];
    let spread = |n: u64, unit: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (SIZE / unit) * unit;
    let stats = rate(time, |_| file.metadata().map(drop))?;
    println!("{label}: fstat                {stats:>10.0} /s");
    let reads = rate(time, |n| file.read_exact_at(&mut small, spread(n, 4096)))?;
    println!("{label}: random 4 KiB reads   {reads:>10.0} /s");
    let reads = rate(time, |n| file.read_exact_at(&mut large, n * MIB as u64 % SIZE))?;
    println!("{label}: 1 MiB reads          {reads:>10.0} MiB/s");
    let writes = rate(time, |n| file.write_all_at(&large, n * MIB as u64 % SIZE))?;
    println!("{label}: 1 MiB writes         {writes:>10.0} MiB/s");
    Ok(())
}

fn main() -> Result<()> {
    let seconds = std::env::args().find_map(|argument| argument.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(2));
    let runtime = tokio::runtime::Runtime::new()?;
    for (label, tasks) in [("at once ", false), ("by tasks", true)] {
        let dir = tempfile::tempdir()?;
        let wishes = InitOptions { max_io: 1 << 20, ..InitOptions::default() };
        let options = MountOptions { max_read: wishes.max_io, ..MountOptions::new("bench") };
        let (mount, device) = Mount::new(dir.path(), &options).context("cannot mount")?;
        let zeros = Arc::new(Zeros { block: vec![0; MIB], tasks });
        let handle = runtime.handle().clone();
        let session = Session::start(device, zeros, &wishes, &SessionOptions::default(), handle)?;
        let measured = measure(mount.point(), time, label);
        drop(mount);
        drop(session);
        measured?;
    }
    Ok(())
}
