//! Blocks staged on the local disk that are not in the bucket yet.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::mount_process::MountProcess;
use crate::cli::progress::Progress;
use crate::options::sizes::Bytes;

/// Between two measurements of the staging directories.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Without any progress for this long, the uploads count as stuck.
const STUCK_AFTER: Duration = Duration::from_mins(10);

pub struct StagedBlocks(Vec<PathBuf>);

impl StagedBlocks {
    pub fn new(process: &MountProcess) -> Self {
        Self(process.staging_dirs.clone())
    }

    /// Returns the bytes left to upload.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|dir| size(dir)).sum()
    }

    /// Waits until nothing is left, or until `is_uploading` returns false.
    pub fn wait(&self, progress: &Progress, is_uploading: impl Fn() -> bool) -> anyhow::Result<()> {
        let mut left = self.bytes();
        if left == 0 {
            return Ok(());
        }
        let bar = progress.bytes("uploading staged blocks", left);
        let all = left;
        let mut last_change = Instant::now();
        while left > 0 && is_uploading() {
            if last_change.elapsed() > STUCK_AFTER {
                bail!("{} are staged but not being uploaded", Bytes(left));
            }
            thread::sleep(POLL_INTERVAL);
            let now = self.bytes();
            if now != left {
                last_change = Instant::now();
            }
            left = now;
            bar.set(all.saturating_sub(left));
        }
        bar.finish();
        Ok(())
    }
}

/// Returns the bytes of all blocks below `dir`. Files that disappear meanwhile count as uploaded.
fn size(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        // A half-written block of a process that was killed: its write was never acknowledged.
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
    fn regression_half_written_blocks_of_a_killed_mount_are_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("1_0_5.0123456789abcdef.tmp"), "123").unwrap();
        fs::write(dir.path().join("2_0_5.tmp"), "123").unwrap();
        assert_eq!(StagedBlocks(vec![dir.path().to_owned()]).bytes(), 0);
    }

    #[test]
    fn all_staged_blocks_are_counted_and_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("chunks/0/0");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("1_0_5"), "12345").unwrap();
        let staged = StagedBlocks(vec![dir.path().to_owned(), dir.path().join("missing")]);
        assert_eq!(staged.bytes(), 5);
        let uploading = thread::spawn(move || {
            thread::sleep(POLL_INTERVAL);
            fs::remove_file(deep.join("1_0_5")).unwrap();
        });
        staged.wait(&Progress::new(), || true).unwrap();
        uploading.join().unwrap();
        assert_eq!(staged.bytes(), 0);
    }
}
