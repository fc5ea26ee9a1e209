//! One cache for both clients: each can use blocks that the other has cached or staged.

use std::io::Read;

use tempfile::TempDir;

use super::support::command::poll;
use super::support::juicefs::Volume;
use super::support::timeout::{MOUNTED, within};
use super::*;

const FILES: usize = 5;

/// A volume with some files, none of them cached.
struct Filled {
    volume: Volume,
    uuid: String,
    folder: TempDir,
}

impl Filled {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite3://{}/meta.db", folder.path().display());
        let volume = Volume::format(&url, &["--trash-days", "0"]);
        let uuid = volume.status()["Setting"]["UUID"].as_str().unwrap().to_owned();
        let filled = Self { volume, uuid, folder };
        let mount = filled.volume.mount(&[]);
        for number in 0..FILES {
            fs::write(mount.path().join(format!("f{number}")), content(number)).unwrap();
        }
        mount.unmount();
        // On a busy machine, the client writes more and smaller slices.
        assert!(blocks(&filled.bucket()).len() >= 8);
        filled
    }

    /// Returns the option for three directories.
    fn dirs(&self) -> String {
        let dir = |name| self.folder.path().join(name).display().to_string();
        [dir("c1"), dir("c2"), dir("c3")].join(":")
    }

    fn bucket(&self) -> PathBuf {
        self.volume.folder().join("bucket/volume")
    }

    fn object(&self, block: BlockKey) -> Vec<u8> {
        fs::read(self.bucket().join(LAYOUT.key(block))).unwrap()
    }

    fn cached_files(&self) -> usize {
        let dirs = ["c1", "c2", "c3"].map(|name| self.folder.path().join(name).join(&self.uuid));
        dirs.iter().map(|dir| blocks(&dir.join("raw")).len()).sum()
    }
}

/// Returns more than one block, exactly one block, or less than one.
fn content(number: usize) -> Vec<u8> {
    let size = [5 << 20, 4 << 20, 100_000, 9 << 20, 1][number];
    body(block(number as u64 + 1, size)).to_vec()
}

fn read_all(mount: &Path) {
    for number in 0..FILES {
        let mut bytes = Vec::new();
        let mut file = fs::File::open(mount.join(format!("f{number}"))).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert!(bytes == content(number), "file {number} is not what was written");
    }
}

fn stat(mount: &Path, name: &str) -> f64 {
    let stats = fs::read_to_string(mount.join(".stats")).unwrap();
    let line = stats.lines().find(|line| line.split(' ').next() == Some(name));
    line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or_else(|| {
        panic!("no {name} in {stats}");
    })
}

fn run(body: impl AsyncFnOnce(Filled) + Send + 'static) {
    within(MOUNTED, move || {
        let filled = Filled::new();
        tokio::runtime::Runtime::new().unwrap().block_on(body(filled));
    });
}

#[test]
fn blocks_cached_by_the_go_client_are_hits() {
    run(async |filled| {
        let all = blocks(&filled.bucket());
        let mount = filled.volume.mount(&["--cache-dir", &filled.dirs()]);
        read_all(mount.path());
        assert!(poll(PATIENCE, || filled.cached_files() == all.len()), "not all are cached");
        mount.unmount();
        let (cache, volume) = open(&filled.dirs(), &filled.uuid).await;
        for block in &all {
            let read = volume.read(*block, 0..block.size).await;
            assert!(read.is_some_and(|read| read == filled.object(*block)), "{block:?}");
        }
        let usage = volume.usage();
        assert_eq!((usage.hits, usage.miss), (all.len() as u64, 0));
        cache.close().await;
    });
}

#[test]
fn the_go_client_hits_blocks_that_we_cached() {
    run(async |filled| {
        let (cache, volume) = open(&filled.dirs(), &filled.uuid).await;
        let all = blocks(&filled.bucket());
        for block in &all {
            volume.put(*block, filled.object(*block).into());
        }
        cache.close().await;
        assert_eq!(filled.cached_files(), all.len());
        // Now reads can only be served from the cache.
        let chunks = filled.bucket().join("chunks");
        fs::rename(&chunks, chunks.with_extension("hidden")).unwrap();
        let mount = filled.volume.mount(&["--cache-dir", &filled.dirs()]);
        read_all(mount.path());
        assert!(stat(mount.path(), "juicefs_blockcache_hits") >= all.len() as f64);
        assert!(stat(mount.path(), "juicefs_blockcache_miss") < 0.5);
        mount.unmount();
    });
}

#[test]
fn the_go_client_uploads_blocks_that_we_staged() {
    run(async |filled| {
        let all = blocks(&filled.bucket());
        let (cache, volume) = open(&filled.dirs(), &filled.uuid).await;
        let mut expected = Vec::new();
        for (number, block) in (0..).zip(&all) {
            let object = filled.object(*block);
            volume.stage(*block, &object.clone().into(), number % 2).await.unwrap();
            fs::remove_file(filled.bucket().join(LAYOUT.key(*block))).unwrap();
            expected.push((*block, object));
        }
        cache.close().await;
        let mount = filled.volume.mount(&["--writeback", "--cache-dir", &filled.dirs()]);
        let there = || {
            expected.iter().all(|(block, object)| {
                fs::read(filled.bucket().join(LAYOUT.key(*block)))
                    .is_ok_and(|found| found == *object)
            })
        };
        assert!(poll(PATIENCE, there), "not all are uploaded:\n{}", mount.log());
        read_all(mount.path());
        mount.unmount();
        let (cache, volume) = open(&filled.dirs(), &filled.uuid).await;
        assert_eq!(volume.staged().await, []);
        cache.close().await;
    });
}

#[test]
fn blocks_staged_by_the_go_client_are_found_and_read() {
    run(async |filled| {
        let options = ["--writeback", "--upload-delay", "1h", "--cache-dir", &filled.dirs()];
        let mount = filled.volume.mount(&options);
        let written = body(block(77, 9 << 20));
        fs::write(mount.path().join("staged"), &written).unwrap();
        mount.kill();
        let (cache, volume) = open(&filled.dirs(), &filled.uuid).await;
        let mut staged = volume.staged().await;
        staged.sort();
        assert!(staged.iter().all(|(_, tier)| *tier == 0));
        let mut read = Vec::new();
        for (block, _) in &staged {
            let (whole, _) = volume.read_staged(*block).await.unwrap();
            assert_eq!(volume.read(*block, 0..block.size).await, Some(whole.clone()));
            read.extend(whole);
        }
        assert!(read == written, "{} bytes of {} are staged", read.len(), written.len());
        for (block, _) in staged {
            volume.unstage(block).await;
            assert!(volume.read(block, 0..block.size).await.is_some());
        }
        assert_eq!(volume.staged().await, []);
        cache.close().await;
    });
}
