//! Files of dumps: compressed by their names, complete or not there at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow, bail};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use tokio::sync::mpsc;

const BUFFER: usize = 256 << 10;
/// Pieces of a dump that wait to be compressed and written.
const PIECES: usize = 8;

/// How a file is compressed; its name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Plain,
    Gzip,
    Zstd,
}

impl Format {
    pub fn of(path: &Path) -> Self {
        let name = path.as_os_str().as_encoded_bytes();
        if name.ends_with(b".gz") {
            Self::Gzip
        } else if name.ends_with(b".zstd") {
            Self::Zstd
        } else {
            Self::Plain
        }
    }
}

/// A dump that is being written by a thread of its own.
pub struct Output {
    thread: JoinHandle<io::Result<()>>,
    /// Where the file is until it is complete, and its final name.
    renamed: Option<(PathBuf, PathBuf)>,
    shown: String,
}

impl Output {
    /// Starts writing to a file, or to stdout. Returns what to send the pieces to; closing it ends
    /// the file.
    pub fn start(path: Option<&Path>) -> anyhow::Result<(Self, mpsc::Sender<Vec<u8>>)> {
        let (sender, receiver) = mpsc::channel(PIECES);
        let shown = path.map_or("STDOUT".to_owned(), |path| path.display().to_string());
        let Some(path) = path else {
            let thread = spawn(receiver, io::stdout(), Format::Plain, |_| Ok(()))?;
            return Ok((Self { thread, renamed: None, shown }, sender));
        };
        // A device or a pipe is written to, not replaced.
        let is_special = fs::metadata(path).is_ok_and(|found| !found.is_file());
        let target = if is_special { path.to_owned() } else { temporary(path) };
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW);
        if !is_special {
            options.create(true).truncate(true);
        }
        let file = options.open(&target).with_context(|| target.display().to_string())?;
        let format = Format::of(path);
        let thread =
            spawn(
                receiver,
                file,
                format,
                move |file: File| {
                    if is_special { Ok(()) } else { file.sync_all() }
                },
            )?;
        let renamed = (!is_special).then(|| (target, path.to_owned()));
        Ok((Self { thread, renamed, shown }, sender))
    }

    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Waits until everything is written, and gives the file its name. Fails, and removes the file,
    /// if writing failed or `result` is an error. The sender must be gone.
    pub async fn finish<T>(self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        let Self { thread, renamed, shown } = self;
        let written = tokio::task::spawn_blocking(move || thread.join()).await?;
        let written = written.map_err(|_| anyhow!("the writing thread panicked"))?;
        let result = match (written, result) {
            // The dump failed because of this.
            (Err(error), _) => {
                Err(anyhow::Error::new(error).context(format!("cannot write {shown}")))
            }
            (Ok(()), result) => result,
        };
        let Some((temporary, path)) = renamed else { return result };
        let result = result.and_then(|done| {
            fs::rename(&temporary, &path).with_context(|| format!("cannot create {shown}"))?;
            Ok(done)
        });
        if result.is_err() {
            // What is left has a name that says what it is.
            let _ = fs::remove_file(&temporary);
        }
        result
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

fn spawn<W: Write + Send + 'static>(
    mut pieces: mpsc::Receiver<Vec<u8>>,
    target: W,
    format: Format,
    close: impl FnOnce(W) -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let mut write_all = move |out: &mut dyn Write| -> io::Result<()> {
        while let Some(piece) = pieces.blocking_recv() {
            out.write_all(&piece)?;
        }
        Ok(())
    };
    std::thread::Builder::new().name("dump".to_owned()).spawn(move || {
        let target = BufWriter::with_capacity(BUFFER, target);
        let target = match format {
            Format::Plain => {
                let mut out = target;
                write_all(&mut out)?;
                out
            }
            Format::Gzip => {
                let mut out = GzEncoder::new(target, Compression::fast());
                write_all(&mut out)?;
                out.finish()?
            }
            Format::Zstd => {
                let mut out = zstd::Encoder::new(target, 1)?;
                write_all(&mut out)?;
                out.finish()?
            }
        };
        close(target.into_inner().map_err(io::IntoInnerError::into_error)?)
    })
}

/// Opens a dump to read, or stdin. Returns what to call it.
pub fn open(path: Option<&Path>) -> anyhow::Result<(Box<dyn Read + Send>, String)> {
    let Some(path) = path else {
        if io::stdin().is_terminal() {
            bail!("name a FILE, or redirect stdin from one");
        }
        return Ok((Box::new(io::stdin()), "STDIN".to_owned()));
    };
    let shown = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let input: Box<dyn Read + Send> = match Format::of(path) {
        Format::Plain => Box::new(file),
        Format::Gzip => Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(BUFFER, file))),
        Format::Zstd => {
            Box::new(zstd::Decoder::new(file).with_context(|| format!("cannot read {shown}"))?)
        }
    };
    Ok((input, shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(path: &Path, pieces: &[&str]) {
        let (output, sender) = Output::start(Some(path)).unwrap();
        for piece in pieces {
            sender.send(piece.as_bytes().to_vec()).await.unwrap();
        }
        drop(sender);
        output.finish(Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn files_are_compressed_by_their_names_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        for (name, magic) in [("a.json", &b"{"[..]), ("a.gz", b"\x1f\x8b"), ("a.zstd", b"\x28\xb5")]
        {
            let path = dir.path().join(name);
            written(&path, &["{", "}"]).await;
            assert!(fs::read(&path).unwrap().starts_with(magic), "{name}");
            let (mut input, shown) = open(Some(&path)).unwrap();
            let mut text = String::new();
            input.read_to_string(&mut text).unwrap();
            assert_eq!((text.as_str(), shown), ("{}", path.display().to_string()));
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);
    }

    #[tokio::test]
    async fn a_file_appears_only_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(&path, "old").unwrap();
        let (output, sender) = Output::start(Some(&path)).unwrap();
        sender.send(b"new".to_vec()).await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(sender);
        output.finish(Err::<(), _>(anyhow!("interrupted"))).await.unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_device_is_written_to_and_not_replaced() {
        written(Path::new("/dev/null"), &["x"]).await;
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(!Path::new("/dev/null.tmp").exists());
    }

    #[tokio::test]
    async fn a_full_disk_is_an_error_that_names_the_file() {
        let (output, sender) = Output::start(Some(Path::new("/dev/full"))).unwrap();
        let _ = sender.send(vec![0; 2 * BUFFER]).await;
        drop(sender);
        let error = output.finish(Ok(())).await.unwrap_err();
        assert!(format!("{error:#}").contains("/dev/full"), "{error:#}");
    }
}
