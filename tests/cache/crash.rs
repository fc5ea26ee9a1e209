//! A client that is killed at any moment leaves only complete blocks.

use std::env;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::*;

const DIR: &str = "JFS_TEST_CACHE_DIR";
const UUID: &str = "volume";
const SIZE: u32 = 300_000;

/// A child process that is killed when dropped.
struct Writer(Child);

impl Writer {
    fn start(dir: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "crash::writes_until_it_is_killed"]);
        Self(command.env(DIR, dir).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The child process of the test below, which starts it.
#[tokio::test]
async fn writes_until_it_is_killed() {
    let Ok(dir) = env::var(DIR) else { return };
    let (_cache, volume) = open(&dir, UUID).await;
    for slice in 0..2000 {
        let block = block(slice, SIZE);
        if slice % 3 == 0 {
            volume.stage(block, &body(block), u8::try_from(slice % 2).unwrap()).await.unwrap();
        } else {
            volume.put(block, body(block));
        }
    }
}

#[tokio::test]
async fn a_killed_client_leaves_only_complete_blocks() {
    for round in 1..=4 {
        let folder = TempDir::new().unwrap();
        let root = folder.path().join(UUID);
        let writer = Writer::start(folder.path());
        until(|| blocks(&root.join("rawstaging")).len() >= 3 * round).await;
        drop(writer);
        let (cache, volume) = open(folder.path().to_str().unwrap(), UUID).await;
        let (cached, staged) = (blocks(&root.join("raw")), blocks(&root.join("rawstaging")));
        assert!(!cached.is_empty() && staged.len() >= 3 * round);
        for block in cached {
            assert!(volume.read(block, 0..SIZE).await == Some(body(block)), "{block:?}");
        }
        let mut listed = volume.staged().await;
        listed.sort();
        assert_eq!(listed.len(), staged.len());
        for (block, tier) in listed {
            let (whole, stored) = volume.read_staged(block).await.unwrap();
            assert!(whole == body(block) && stored == tier, "{block:?}");
            assert_eq!(u64::from(tier), block.slice.0 % 2);
        }
        cache.close().await;
    }
}
