//! One file of the cache: opened, read in checked ranges, and written whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, IoSliceMut, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags};

use super::footer;
use super::layout::{self, Shape};
use super::options::Checksum;
use crate::page;

/// An open file of a block, with its checksums at hand.
#[derive(Debug)]
pub struct BlockFile {
    file: File,
    size: u32,
    level: Checksum,
    sums: Box<[u32]>,
    has_checksums: bool,
    footer: Option<Range<u64>>,
}

impl BlockFile {
    /// Opens the file of a block of `size` bytes. One of a wrong length is `InvalidData`.
    pub fn open(path: &Path, size: u32, level: Checksum) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let shape = Shape::of(size, length).ok_or_else(|| damaged("wrong length"))?;
        let footer = shape.footer.map(|start| start..length);
        let has_checksums = shape.has_checksums;
        if !has_checksums || level == Checksum::None {
            let (level, sums) = (Checksum::None, Box::default());
            return Ok(Self { file, size, level, sums, has_checksums, footer });
        }
        let mut sums = vec![0; layout::checksums_len(size) as usize];
        file.read_exact_at(&mut sums, u64::from(size))?;
        let sums = layout::parse_checksums(&sums);
        Ok(Self { file, size, level, sums, has_checksums, footer })
    }

    /// Bytes of the block, checked as far as the level asks. `InvalidData` if they are not sound.
    pub fn read(&self, range: &Range<u32>) -> io::Result<Bytes> {
        self.read_by(range, |into, start| {
            let mut done = 0;
            while done < into.len() {
                match rustix::io::pread(&self.file, &mut into[done..], start + done as u64) {
                    Ok(0) => return Err(damaged("cut off")),
                    Ok(count) => done += count,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })
    }

    /// As [`BlockFile::read`], if the page cache has all of it.
    pub fn read_now(&self, range: &Range<u32>) -> Option<io::Result<Bytes>> {
        let read = self.read_by(range, |into, start| {
            let length = into.len();
            let into = &mut [IoSliceMut::new(into)];
            match rustix::io::preadv2(&self.file, into, start, ReadWriteFlags::NOWAIT) {
                Ok(count) if count == length => Ok(()),
                _ => Err(ErrorKind::WouldBlock.into()),
            }
        });
        match read {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            other => Some(other),
        }
    }

    /// Reads and checks, stride by stride.
    fn read_by(
        &self,
        range: &Range<u32>,
        fill: impl Fn(&mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<Bytes> {
        let window = layout::window(self.level, self.size, range);
        let mut bytes = page::Buffer::scratch(window.len());
        for stride in layout::strides(&window) {
            let at = (stride.start - window.start) as usize;
            let part = &mut bytes[at..at + stride.len()];
            fill(part, stride.start.into())?;
            if !layout::is_sound(self.level, self.size, &window, &stride, part, &self.sums) {
                return Err(damaged("checksum"));
            }
        }
        let start = (range.start - window.start) as usize;
        Ok(bytes.freeze().slice(start..start + range.len()))
    }

    /// The tier in the footer of a staged block; 0 if it has none.
    pub fn tier(&self) -> io::Result<u8> {
        let Some(footer) = &self.footer else { return Ok(0) };
        let length = usize::try_from(footer.end - footer.start).unwrap_or(usize::MAX);
        if length > footer::MAX_LEN {
            return Err(damaged("footer"));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, footer.start)?;
        footer::decode(&bytes).ok_or_else(|| damaged("footer"))
    }

    /// Whether what follows the data can be what a client wrote: a file that was cut off within its
    /// checksums looks like one that has none but a footer.
    pub fn is_plausible(&self) -> bool {
        self.has_checksums || self.tier().is_ok()
    }

    /// Whether a name still leads to it.
    pub fn is_linked(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
    }
}

/// How files and directories are made.
#[derive(Debug, Clone, Copy)]
pub struct Modes {
    pub file: u32,
}

impl Modes {
    /// Who may read the files may add some.
    fn dir(self) -> u32 {
        let read = self.file & 0o444;
        self.file | (read >> 1) | (read >> 2)
    }
}

/// Writes a file whole: under another name first. `durable` waits until it will survive a crash of
/// the machine, name and directories included.
pub fn write(path: &Path, parts: &[&[u8]], modes: Modes, durable: bool) -> io::Result<()> {
    let (mut file, draft) = create_draft(path, modes, durable)?;
    let written = (|| {
        for part in parts {
            file.write_all(part)?;
        }
        if durable {
            file.sync_data()?;
        }
        fs::rename(&draft, path)?;
        if durable { sync_dir(path.parent()) } else { Ok(()) }
    })();
    if written.is_err() {
        // What cannot be removed now is removed by a scan.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Whether files can be made in a directory, by making one.
pub fn try_writing(dir: &Path, modes: Modes) -> io::Result<()> {
    let draft = draft_of(&dir.join("try"));
    OpenOptions::new().write(true).create_new(true).mode(modes.file).open(&draft)?;
    fs::remove_file(&draft)
}

/// Gives a file a second name, which may be taken: it is then replaced.
pub fn link(from: &Path, to: &Path, modes: Modes) -> io::Result<()> {
    match with_parent(to, modes, false, || fs::hard_link(from, to)) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let draft = draft_of(to);
            fs::hard_link(from, &draft)?;
            fs::rename(&draft, to).inspect_err(|_| drop(fs::remove_file(&draft)))
        }
        other => other,
    }
}

/// Makes a directory and those above it that are missing; answers which are new.
pub fn make_dirs(dir: &Path, modes: Modes) -> io::Result<Vec<PathBuf>> {
    let mode = modes.dir();
    let mut made = Vec::new();
    let make = || DirBuilder::new().mode(mode).create(dir);
    let mut outcome = make();
    if let (Err(error), Some(parent)) = (&outcome, dir.parent())
        && error.kind() == ErrorKind::NotFound
    {
        made = make_dirs(parent, modes)?;
        outcome = make();
    }
    match outcome {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
        Ok(()) => {
            // The umask may have taken something away.
            fs::set_permissions(dir, Permissions::from_mode(mode))?;
            made.push(dir.to_owned());
        }
    }
    Ok(made)
}

/// Whether a name is that of a file that is still being written, or never was.
pub fn is_draft(name: &[u8]) -> bool {
    name.ends_with(b".tmp")
}

fn create_draft(path: &Path, modes: Modes, durable: bool) -> io::Result<(File, PathBuf)> {
    let draft = draft_of(path);
    let create = || OpenOptions::new().write(true).create_new(true).mode(modes.file).open(&draft);
    let file = with_parent(path, modes, durable, create)?;
    Ok((file, draft))
}

/// No two writers share one, whatever process or container they run in: a file is whole when it gets
/// its name.
fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}.tmp", rand::random::<u64>()));
    name.into()
}

/// Tries; if the directory is missing, makes it and tries again. A scan of any client may remove an
/// empty one at any moment.
fn with_parent<T>(
    path: &Path,
    modes: Modes,
    durable: bool,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 0..3 {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => return other,
        }
        let Some(parent) = path.parent() else { break };
        for made in make_dirs(parent, modes)? {
            if durable {
                sync_dir(made.parent())?;
            }
        }
    }
    attempt()
}

fn sync_dir(dir: Option<&Path>) -> io::Result<()> {
    dir.map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

pub fn damaged(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
