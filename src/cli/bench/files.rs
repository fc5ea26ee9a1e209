//! The files that several threads write, read and stat.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use rand::RngExt;

use crate::cli::progress::Bar;

pub struct Files {
    name: &'static str,
    pub size: u64,
    /// Files of each thread.
    pub count: u64,
    block: usize,
    /// Blocks of each file.
    blocks: u64,
    pub threads: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Write,
    Read,
    Stat,
}

impl Files {
    /// Rounds sizes up to whole blocks; returns `None` if there is nothing to do.
    pub fn new(
        name: &'static str,
        size: u64,
        count: u64,
        block: u64,
        threads: usize,
    ) -> Option<Self> {
        if size == 0 || count == 0 {
            return None;
        }
        let block = block.min(size);
        let blocks = size.div_ceil(block);
        let size = blocks * block;
        Some(Self { name, size, count, block: usize::try_from(block).ok()?, blocks, threads })
    }

    /// Returns the number of files of all threads.
    pub fn total(&self) -> u64 {
        self.count * self.threads as u64
    }

    /// Returns the number of blocks of all files.
    pub fn blocks(&self) -> u64 {
        self.total() * self.blocks
    }

    /// Does the work on all threads and returns the seconds it took.
    pub fn run(&self, dir: &Path, work: Work, bar: &Bar) -> anyhow::Result<f64> {
        let started = Instant::now();
        thread::scope(|scope| {
            let running: Vec<_> = (0..self.threads)
                .map(|number| scope.spawn(move || self.work(dir, number, work, bar)))
                .collect();
            // Join all of them, even if the first failed.
            let results: Vec<_> = running.into_iter().map(thread::ScopedJoinHandle::join).collect();
            results.into_iter().try_for_each(|result| {
                result.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))
            })
        })?;
        Ok(started.elapsed().as_secs_f64())
    }

    fn work(&self, dir: &Path, number: usize, work: Work, bar: &Bar) -> anyhow::Result<()> {
        let mut block = vec![0; if work == Work::Stat { 0 } else { self.block }];
        for index in 0..self.count {
            let path = dir.join(format!("{}.{number}.{index}", self.name));
            match work {
                Work::Write => self.write(&path, &mut block, bar),
                Work::Read => self.read(&path, &mut block, bar),
                Work::Stat => fs::metadata(&path).map(|_| bar.add(1)),
            }
            .with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn write(&self, path: &PathBuf, block: &mut [u8], bar: &Bar) -> io::Result<()> {
        rand::rng().fill(block);
        let mut file = File::create(path)?;
        for _ in 0..self.blocks {
            file.write_all(block)?;
            bar.add(1);
        }
        // Closing is part of the measurement, and dropping would lose its error.
        nix::unistd::close(file).map_err(io::Error::from)
    }

    fn read(&self, path: &PathBuf, block: &mut [u8], bar: &Bar) -> io::Result<()> {
        let mut file = File::open(path)?;
        for _ in 0..self.blocks {
            file.read_exact(block)?;
            bar.add(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::progress::Progress;

    #[test]
    fn sizes_are_rounded_up_to_whole_blocks() {
        let files = Files::new("f", 10, 3, 4, 2).unwrap();
        assert_eq!((files.size, files.total(), files.blocks()), (12, 6, 18));
        let files = Files::new("f", 3, 1, 4, 1).unwrap();
        assert_eq!((files.size, files.blocks()), (3, 1));
        assert!(Files::new("f", 0, 1, 4, 1).is_none() && Files::new("f", 1, 0, 4, 1).is_none());
    }

    #[test]
    fn files_are_written_read_and_stat_ed() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::new("f", 10_000, 3, 4096, 2).unwrap();
        let bar = |total| Progress::new().count("work", total);
        files.run(dir.path(), Work::Write, &bar(files.blocks())).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 6);
        files.run(dir.path(), Work::Read, &bar(files.blocks())).unwrap();
        files.run(dir.path(), Work::Stat, &bar(files.total())).unwrap();
        fs::remove_file(dir.path().join("f.1.2")).unwrap();
        let error = files.run(dir.path(), Work::Stat, &bar(files.total())).unwrap_err();
        assert!(error.to_string().contains("f.1.2"), "{error}");
    }
}
