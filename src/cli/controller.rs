//! Asking a mount through its `.control`, ours or the Go client's.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::errno::Errno;

pub use crate::vfs::control_protocol::ReplyEnd;
use crate::vfs::control_protocol::{FILE_NAMES, Frame, INODE, errno_from_byte};

/// Between two looks at an answer that is not there yet, at first and at most.
const SOONEST: Duration = Duration::from_millis(1);
const LATEST: Duration = Duration::from_millis(300);

/// An open `.control`. Dropped, it ends what was asked for.
pub struct Controller {
    file: File,
}

impl Controller {
    /// That of the mount which a path lies in.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let found = fs::symlink_metadata(path)
            .with_context(|| format!("cannot look at {}", path.display()))?;
        let parent = || path.parent().unwrap_or(path);
        let dir = if found.is_dir() { path } else { parent() };
        for name in FILE_NAMES {
            match OpenOptions::new().read(true).write(true).open(dir.join(name)) {
                Ok(file) if file.metadata()?.ino() == INODE => return Ok(Self { file }),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    let file = dir.join(name);
                    return Err(error).with_context(|| format!("cannot open {}", file.display()));
                }
            }
        }
        bail!("{} is not in a mount of JuiceFS", path.display());
    }

    /// Asks, and waits for the end of the answer.
    pub async fn ask(
        &mut self,
        op: u32,
        body: &[u8],
        mut progress: impl FnMut(u64, u64),
    ) -> anyhow::Result<ReplyEnd> {
        self.send(op, body)?;
        let mut answer = Vec::new();
        loop {
            self.more(&mut answer).await?;
            while let Some((frame, length)) = Frame::parse(&answer) {
                match frame {
                    Frame::Progress(first, second) => progress(first, second),
                    Frame::End(end) => return Ok(end),
                }
                answer.drain(..length);
            }
        }
    }

    /// Asks for what is answered by a length and a text.
    pub async fn ask_for_text(&mut self, op: u32, body: &[u8]) -> anyhow::Result<String> {
        self.send(op, body)?;
        let mut answer = Vec::new();
        loop {
            self.more(&mut answer).await?;
            if let [errno] = answer[..] {
                bail!("{}", told(errno_from_byte(errno)));
            }
            if let Some((length, text)) = answer.split_first_chunk::<4>()
                && text.len() >= u32::from_be_bytes(*length) as usize
            {
                return Ok(String::from_utf8_lossy(text).into_owned());
            }
        }
    }

    fn send(&mut self, op: u32, body: &[u8]) -> anyhow::Result<()> {
        let length = u32::try_from(body.len()).context("too much to ask for at once")?;
        let request = [&op.to_be_bytes()[..], &length.to_be_bytes(), body].concat();
        self.file.write_all(&request).context("cannot ask the mount")
    }

    /// Reads on, once there is something.
    async fn more(&mut self, answer: &mut Vec<u8>) -> anyhow::Result<()> {
        let mut pause = SOONEST;
        let mut bytes = vec![0; 128 << 10];
        loop {
            let count = match self.file.read(&mut bytes) {
                Err(error) if error.raw_os_error() == Some(Errno::EBADF as i32) => {
                    bail!("the mount was restarted meanwhile");
                }
                other => other.context("cannot read the mount's answer")?,
            };
            if count > 0 {
                answer.extend_from_slice(&bytes[..count]);
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LATEST);
        }
    }
}

/// An errno as people read it.
pub fn told(errno: Errno) -> String {
    match errno {
        Errno::EINVAL => "the mount does not understand this: it is too old".to_owned(),
        other => other.desc().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_only_has_the_name_is_not_asked() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".control"), "mine").unwrap();
        let refused = Controller::open(folder.path()).err().unwrap().to_string();
        assert!(refused.ends_with("is not in a mount of JuiceFS"), "{refused}");
        assert_eq!(fs::read(folder.path().join(".control")).unwrap(), b"mine");
    }
}
