//! Commands that a mount carries out, through its `.control` file: ours or the Go client's.

pub mod clone;
pub mod compact;
pub mod info;
pub mod rmr;
pub mod summary;
pub mod warmup;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::errno::Errno;

pub use crate::vfs::control_protocol::ReplyEnd;
use crate::vfs::control_protocol::{FILE_NAMES, Frame, INODE, errno_from_byte};

/// Between two reads while there is no reply yet, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(300);

/// An open `.control` file. Dropping it cancels a running request.
pub struct ControlClient {
    file: File,
}

impl ControlClient {
    /// Opens the file of the mount that contains `path`.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let found = fs::symlink_metadata(path)
            .with_context(|| format!("cannot stat {}", path.display()))?;
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
        bail!("{} is not in a JuiceFS mount", path.display());
    }

    /// Sends a request and waits for the end of the reply.
    pub async fn request(
        &mut self,
        op: u32,
        body: &[u8],
        mut progress: impl FnMut(u64, u64),
    ) -> anyhow::Result<ReplyEnd> {
        self.send(op, body)?;
        let mut reply = Vec::new();
        loop {
            self.read_more(&mut reply).await?;
            while let Some((frame, length)) = Frame::parse(&reply) {
                match frame {
                    Frame::Progress(first, second) => progress(first, second),
                    Frame::End(end) => return Ok(end),
                }
                reply.drain(..length);
            }
        }
    }

    /// Sends a request whose reply is a length and a text.
    pub async fn request_text(&mut self, op: u32, body: &[u8]) -> anyhow::Result<String> {
        self.send(op, body)?;
        let mut reply = Vec::new();
        loop {
            self.read_more(&mut reply).await?;
            if let [errno] = reply[..] {
                bail!("{}", describe_errno(errno_from_byte(errno)));
            }
            if let Some((length, text)) = reply.split_first_chunk::<4>()
                && text.len() >= u32::from_be_bytes(*length) as usize
            {
                return Ok(String::from_utf8_lossy(text).into_owned());
            }
        }
    }

    fn send(&mut self, op: u32, body: &[u8]) -> anyhow::Result<()> {
        let length = u32::try_from(body.len()).context("the request is too long")?;
        let request = [&op.to_be_bytes()[..], &length.to_be_bytes(), body].concat();
        self.file.write_all(&request).context("cannot send the request to the mount")
    }

    /// Waits until more of the reply is available, and appends it.
    async fn read_more(&mut self, reply: &mut Vec<u8>) -> anyhow::Result<()> {
        let mut pause = FIRST_PAUSE;
        let mut bytes = vec![0; 128 << 10];
        loop {
            let count = match self.file.read(&mut bytes) {
                Err(error) if error.raw_os_error() == Some(Errno::EBADF as i32) => {
                    bail!("the mount was restarted during the request");
                }
                other => other.context("cannot read the reply of the mount")?,
            };
            if count > 0 {
                reply.extend_from_slice(&bytes[..count]);
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}

/// Describes an errno for the user.
pub fn describe_errno(errno: Errno) -> String {
    match errno {
        Errno::EINVAL => "the mount is too old for this request".to_owned(),
        other => other.desc().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_file_named_control_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".control"), "mine").unwrap();
        let refused = ControlClient::open(folder.path()).err().unwrap().to_string();
        assert!(refused.ends_with("is not in a JuiceFS mount"), "{refused}");
        assert_eq!(fs::read(folder.path().join(".control")).unwrap(), b"mine");
    }
}
