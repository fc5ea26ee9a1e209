//! What is measured through a mount: each kind of work on a fresh mount with an empty cache.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use rand::RngExt;

use crate::mapped::Mapped;
use crate::support::fixture::{Client, Fixture};
use crate::table::Measured;

pub const MIB: usize = 1 << 20;
pub const BLOCK: usize = 4 * MIB;
/// Size of a small file.
const SMALL: usize = 16 << 10;
/// Small files written and read by each thread.
const FILES: usize = 50;
/// Threads that read ranges of one file, or small files.
const THREADS: usize = 8;
/// Random reads.
const READS: usize = 100;
/// Bytes copied from a map at a time.
const PART: usize = 256 << 10;
const LARGE: &str = "large";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// One stream of reads of 1 MiB.
    Read,
    /// A map of the file, read from its start to its end.
    Mapped,
    /// Eight threads on one descriptor, each with its own range.
    Ranges,
    /// A large file, written and synced.
    Write,
    /// Small files, written by eight threads.
    SmallWrite,
    /// Small files, written by one thread.
    SmallWriteOne,
    /// Small files, written by one thread with `--writeback`.
    Writeback,
    /// Random reads of 4 KiB.
    Random,
}

impl Work {
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Mapped,
        Self::Ranges,
        Self::Write,
        Self::SmallWrite,
        Self::SmallWriteOne,
        Self::Writeback,
        Self::Random,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "one stream, 1 MiB reads",
            Self::Mapped => "mapped, in sequence",
            Self::Ranges => "8 ranges of one file at once",
            Self::Write => "large file written and synced",
            Self::SmallWrite => "small files written, 8 threads",
            Self::SmallWriteOne => "small files written, 1 thread",
            Self::Writeback => "small files written, 1 thread, `--writeback`",
            Self::Random => "random reads of 4 KiB",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Read | Self::Mapped | Self::Ranges | Self::Write => "MiB/s",
            _ => "/s",
        }
    }

    /// Measures this work by one client.
    pub fn run(
        self,
        rig: &Fixture,
        client: Client,
        large: usize,
        round: usize,
    ) -> Result<Option<Measured>> {
        let options: &[&str] = if self == Self::Writeback { &["--writeback"] } else { &[] };
        let mount = rig.mount_by(client, options);
        let dir = mount.at(format!("{self:?}-{client:?}-{round}"));
        fs::create_dir(&dir)?;
        fs::write("/proc/sys/vm/drop_caches", "3")?;
        let before = cpu_time(mount.pid())?;
        let start = Instant::now();
        let file = mount.at(LARGE);
        let amount = match self {
            Self::Read => read(&file)?,
            Self::Mapped => mapped(&file)?,
            Self::Ranges => ranges(&file)?,
            Self::Write => write(&dir.join("written"), large)?,
            Self::SmallWrite => small_files(&dir, THREADS)?,
            Self::SmallWriteOne | Self::Writeback => small_files(&dir, 1)?,
            Self::Random => random(&file)?,
        };
        let seconds = start.elapsed().as_secs_f64();
        let cpu = cpu_time(mount.pid())? - before;
        let gib = (self.unit() == "MiB/s").then_some(amount / 1024.0);
        fs::remove_dir_all(&dir)?;
        mount.unmount();
        Ok(Some(Measured { rate: amount / seconds, cpu: gib.map(|gib| cpu / gib) }))
    }
}

/// Writes the file that is read.
pub fn prepare(rig: &Fixture, large: usize) -> Result<()> {
    let mount = rig.mount_by(Client::Ours, &[]);
    write(&mount.at(LARGE), large)?;
    mount.unmount();
    Ok(())
}

fn write(path: &Path, size: usize) -> Result<f64> {
    let mut file = File::create(path)?;
    let mut part = vec![0x5A; MIB];
    for n in 0..size {
        part[..8].copy_from_slice(&n.to_le_bytes());
        file.write_all(&part)?;
    }
    file.sync_all()?;
    Ok(size as f64)
}

fn read(path: &Path) -> Result<f64> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut part = vec![0; MIB];
    for n in 0..size / MIB as u64 {
        file.read_exact(&mut part)?;
        ensure!(part[..8] == n.to_le_bytes(), "MiB {n} holds something else");
    }
    Ok(size as f64 / MIB as f64)
}

fn mapped(path: &Path) -> Result<f64> {
    let file = File::open(path)?;
    let size = usize::try_from(file.metadata()?.len())?;
    let map = Mapped::private(&file, size);
    let mut part = vec![0; PART];
    for from in map.bytes().chunks(PART) {
        part[..from.len()].copy_from_slice(from);
        black_box(&part);
    }
    Ok(size as f64 / MIB as f64)
}

fn ranges(path: &Path) -> Result<f64> {
    let file = File::open(path)?;
    let size = usize::try_from(file.metadata()?.len())?;
    in_threads(THREADS, |thread| {
        let each = size / THREADS;
        let mut part = vec![0; MIB];
        for at in (thread * each..(thread + 1) * each).step_by(MIB) {
            file.read_exact_at(&mut part, at as u64)?;
        }
        Ok(())
    })?;
    Ok(size as f64 / MIB as f64)
}

fn small_files(dir: &Path, threads: usize) -> Result<f64> {
    let content = vec![0x5A; SMALL];
    in_threads(threads, |thread| {
        for n in 0..FILES {
            fs::write(dir.join(format!("{thread}-{n}")), &content)?;
        }
        Ok(())
    })?;
    Ok((threads * FILES) as f64)
}

fn random(path: &Path) -> Result<f64> {
    let file = OpenOptions::new().read(true).open(path)?;
    let pages = file.metadata()?.len() / 4096;
    let mut page = [0; 4096];
    for _ in 0..READS {
        file.read_exact_at(&mut page, rand::rng().random_range(0..pages) * 4096)?;
    }
    Ok(READS as f64)
}

fn in_threads(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|n| scope.spawn(move || work(n))).collect();
        threads
            .into_iter()
            .try_for_each(|one| one.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}

/// Returns the CPU seconds of a process and its children.
fn cpu_time(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let field = |n: usize| fields.split_whitespace().nth(n).and_then(|it| it.parse::<f64>().ok());
    let ticks = field(11).zip(field(12)).context("no times in stat")?;
    let mut seconds = (ticks.0 + ticks.1) / 100.0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = fs::read_to_string(task?.path().join("children"))?;
        for child in children.split_whitespace() {
            seconds += cpu_time(child.parse()?)?;
        }
    }
    Ok(seconds)
}
