//! Asking a mount through its `.control`, ours or the Go client's.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::errno::Errno;

/// What the file is called, where names have a prefix and where not.
const NAMES: [&str; 2] = [".jfs.control", ".control"];
/// Its number in every mount: a file of the same name elsewhere is not written to.
const INO: u64 = 0x7FFF_FFFF_0000_0002;
/// Between two looks at an answer that is not there yet, at first and at most.
const SOONEST: Duration = Duration::from_millis(1);
const LATEST: Duration = Duration::from_millis(300);

const PROGRESS: u8 = 0xFE;
const DATA: u8 = 0xFF;

/// How an answer ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Failed(Errno),
    Data(Vec<u8>),
}

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
        for name in NAMES {
            match OpenOptions::new().read(true).write(true).open(dir.join(name)) {
                Ok(file) if file.metadata()?.ino() == INO => return Ok(Self { file }),
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
    ) -> anyhow::Result<Answer> {
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
                bail!("{}", told(errno_of(errno)));
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

/// A part of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Frame {
    Progress(u64, u64),
    End(Answer),
}

impl Frame {
    /// The first, and how long it is; none if it is not complete.
    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        match bytes {
            [PROGRESS, rest @ ..] => {
                let (first, rest) = rest.split_first_chunk::<8>()?;
                let second = rest.first_chunk::<8>()?;
                let frame = Self::Progress(u64::from_be_bytes(*first), u64::from_be_bytes(*second));
                Some((frame, 17))
            }
            [DATA, rest @ ..] => {
                let (length, rest) = rest.split_first_chunk::<4>()?;
                let length = u32::from_be_bytes(*length) as usize;
                let data = rest.get(..length)?;
                Some((Self::End(Answer::Data(data.to_vec())), 5 + length))
            }
            [0, ..] => Some((Self::End(Answer::Done), 1)),
            [errno, ..] => Some((Self::End(Answer::Failed(errno_of(*errno))), 1)),
            [] => None,
        }
    }
}

fn errno_of(byte: u8) -> Errno {
    Errno::from_raw(byte.into())
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
    fn an_answer_is_taken_apart() {
        let progress = [&[0xFE][..], &7u64.to_be_bytes(), &8u64.to_be_bytes()].concat();
        assert_eq!(Frame::parse(&progress), Some((Frame::Progress(7, 8), 17)));
        assert_eq!(Frame::parse(&progress[..16]), None);
        let data = b"\xff\0\0\0\x02{}";
        assert_eq!(Frame::parse(data), Some((Frame::End(Answer::Data(b"{}".to_vec())), 7)));
        assert_eq!(Frame::parse(&data[..6]), None);
        assert_eq!(Frame::parse(b"\0"), Some((Frame::End(Answer::Done), 1)));
        assert_eq!(Frame::parse(b"\x02"), Some((Frame::End(Answer::Failed(Errno::ENOENT)), 1)));
        assert_eq!(Frame::parse(b""), None);
    }

    #[test]
    fn a_file_that_only_has_the_name_is_not_asked() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".control"), "mine").unwrap();
        let refused = Controller::open(folder.path()).err().unwrap().to_string();
        assert!(refused.ends_with("is not in a mount of JuiceFS"), "{refused}");
        assert_eq!(fs::read(folder.path().join(".control")).unwrap(), b"mine");
    }
}
