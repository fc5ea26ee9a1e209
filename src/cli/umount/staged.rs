//! Blocks that are on the disk of this host and not in the bucket yet.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::told::Told;
use crate::cli::progress::Progress;
use crate::options::sizes::Bytes;

const PAUSE: Duration = Duration::from_millis(100);
/// Without any change for so long, somebody should have a look.
const STUCK: Duration = Duration::from_mins(10);

pub struct Staged(Vec<PathBuf>);

impl Staged {
    pub fn new(told: &Told) -> Self {
        Self(told.staging.clone())
    }

    /// What is left to upload.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|dir| size(dir)).sum()
    }

    /// Waits until nothing is left, or nobody works on it any more.
    pub fn wait(&self, progress: &Progress, goes_on: impl Fn() -> bool) -> anyhow::Result<()> {
        let mut left = self.bytes();
        if left == 0 {
            return Ok(());
        }
        let bar = progress.bytes("uploading what is staged", left);
        let all = left;
        let mut moved = Instant::now();
        while left > 0 && goes_on() {
            if moved.elapsed() > STUCK {
                bail!("{} are staged and are not being uploaded", Bytes(left));
            }
            thread::sleep(PAUSE);
            let now = self.bytes();
            if now != left {
                moved = Instant::now();
            }
            left = now;
            bar.set(all.saturating_sub(left));
        }
        bar.finish();
        Ok(())
    }
}

/// Of all blocks below. What goes while it is looked at is gone.
fn size(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        // Never became a block: whoever wrote it was killed, and nothing of it was confirmed.
        Ok(_) if entry.file_name().as_bytes().ends_with(b".tmp") => 0,
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_what_a_killed_mount_was_writing_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("1_0_5.0123456789abcdef.tmp"), "123").unwrap();
        fs::write(dir.path().join("2_0_5.tmp"), "123").unwrap();
        assert_eq!(Staged(vec![dir.path().to_owned()]).bytes(), 0);
    }

    #[test]
    fn all_that_is_staged_is_counted_and_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("chunks/0/0");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("1_0_5"), "12345").unwrap();
        let staged = Staged(vec![dir.path().to_owned(), dir.path().join("missing")]);
        assert_eq!(staged.bytes(), 5);
        let uploading = thread::spawn(move || {
            thread::sleep(PAUSE);
            fs::remove_file(deep.join("1_0_5")).unwrap();
        });
        staged.wait(&Progress::new(), || true).unwrap();
        uploading.join().unwrap();
        assert_eq!(staged.bytes(), 0);
    }
}
