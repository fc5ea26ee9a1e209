//! The operations of `juicefs mdtest` by this client: one task creates a tree of directories, then all
//! tasks create files in all of them, each in its own order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jfs::meta::record::Slice;
use jfs::meta::{Caller, Ino, Meta, Name, Timestamp};
use rand::seq::SliceRandom;

use crate::{Rates, client};

/// Directories in each directory.
pub const DIRS: usize = 3;
/// Levels of directories below the first.
pub const DEPTH: usize = 2;
const ALL_DIRS: usize = 1 + DIRS + DIRS * DIRS;

/// How long a directory's inode is cached, as in `mdtest`.
const DIR_TTL: Duration = Duration::from_secs(1);

/// Returns the files of each task in each directory, for about `count` files per task.
pub fn files_per_dir(count: usize) -> usize {
    (count / ALL_DIRS).max(1)
}

pub async fn run(url: &str, name: &str, width: usize, count: usize) -> Result<Rates> {
    let files = files_per_dir(count);
    let mut rates = Vec::new();
    for bytes in [0, 4096] {
        let paths = Arc::new(Paths::new(client(url).await?));
        let start = Instant::now();
        let top = vec![name_of(format!("{name}-{bytes}"))?];
        let test_dir = below(&top, "test-dir.0-0")?;
        let root = below(&test_dir, "mdtest_tree.0")?;
        for dir in [&top, &test_dir] {
            paths.mkdir(dir).await?;
        }
        for dir in tree(&root)? {
            paths.mkdir(&dir).await?;
        }
        let made = start.elapsed();

        let mut tasks = Vec::new();
        for task in 0..width {
            let (paths, dirs) = (paths.clone(), shuffled_tree(&root)?);
            tasks.push(tokio::spawn(async move {
                for dir in dirs {
                    for file in 0..files {
                        let file = format!("file.mdtest.{task}.{file}");
                        paths.create(&below(&dir, &file)?, bytes).await?;
                    }
                }
                anyhow::Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        let created = start.elapsed().saturating_sub(made);
        if bytes == 0 {
            rates.push(("mdtest: mkdir".to_owned(), ALL_DIRS as f64 / made.as_secs_f64()));
        }
        let rate = (ALL_DIRS * width * files) as f64 / created.as_secs_f64();
        let phase = if bytes == 0 { "mdtest: create" } else { "mdtest: create and write" };
        rates.push((phase.to_owned(), rate));
        paths.meta.close().await?;
    }
    Ok(rates)
}

type Dir = Vec<Name>;

fn name_of(text: impl AsRef<[u8]>) -> Result<Name> {
    Ok(Name::new(text)?)
}

fn below(dir: &[Name], name: &str) -> Result<Dir> {
    let mut path = dir.to_vec();
    path.push(name_of(name)?);
    Ok(path)
}

/// Returns all directories, parents first.
fn tree(root: &[Name]) -> Result<Vec<Dir>> {
    walk(root, DEPTH, &mut |_| {})
}

fn shuffled_tree(root: &[Name]) -> Result<Vec<Dir>> {
    walk(root, DEPTH, &mut |order| order.shuffle(&mut rand::rng()))
}

fn walk(root: &[Name], depth: usize, arrange: &mut impl FnMut(&mut [usize])) -> Result<Vec<Dir>> {
    let mut all = vec![root.to_vec()];
    if depth > 0 {
        let mut order: Vec<usize> = (0..DIRS).collect();
        arrange(&mut order);
        for index in order {
            let dir = below(root, &format!("mdtest_tree.{index}"))?;
            all.extend(walk(&dir, depth - 1, arrange)?);
        }
    }
    Ok(all)
}

/// Operations by path, with a short-lived cache of directories.
struct Paths {
    meta: Arc<Meta>,
    caller: Caller,
    known: Mutex<HashMap<(Ino, Name), (Ino, Instant)>>,
}

impl Paths {
    fn new(meta: Arc<Meta>) -> Self {
        Self { meta, caller: Caller::root(), known: Mutex::default() }
    }

    async fn mkdir(&self, path: &[Name]) -> Result<()> {
        let (name, dir) = path.split_last().context("an empty path")?;
        let dir = self.resolve(dir).await?;
        self.meta.mkdir(&self.caller, dir, name, 0o777, 0o22).await?;
        Ok(())
    }

    async fn create(&self, path: &[Name], bytes: u32) -> Result<()> {
        let (name, dir) = path.split_last().context("an empty path")?;
        let dir = self.resolve(dir).await?;
        let made = self.meta.create(&self.caller, dir, name, 0o666, 0o22, true).await;
        let (ino, _) = made?;
        if bytes > 0 {
            let id = self.meta.new_slice().await?;
            let slice = Slice { pos: 0, id, size: bytes, off: 0, len: bytes };
            self.meta.write(ino, 0, 0, slice, Timestamp::now()).await?;
        }
        Ok(self.meta.close_file(ino).await?)
    }

    async fn resolve(&self, path: &[Name]) -> Result<Ino> {
        let mut at = Ino::ROOT;
        for name in path {
            let key = (at, name.clone());
            let known = self.known().get(&key).copied();
            at = match known {
                Some((ino, until)) if Instant::now() < until => ino,
                _ => {
                    let (ino, _) = self.meta.lookup(&self.caller, at, name).await?;
                    self.known().insert(key, (ino, Instant::now() + DIR_TTL));
                    ino
                }
            };
        }
        Ok(at)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<(Ino, Name), (Ino, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
