//! The file of one cached block: reads that verify checksums, and atomic writes.

pub mod footer;
pub mod format;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, IoSliceMut, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags};

use super::options::Checksum;
use crate::buffer_pool;
use format::Trailer;

/// An open block file with its checksums in memory.
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
    /// Opens the file of a block of `size` bytes. Returns `InvalidData` if its length is wrong.
    pub fn open(path: &Path, size: u32, level: Checksum) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let trailer = Trailer::of(size, length).ok_or_else(|| damaged("wrong length"))?;
        let footer = trailer.footer.map(|start| start..length);
        let has_checksums = trailer.has_checksums;
        if !has_checksums || level == Checksum::None {
            let (level, sums) = (Checksum::None, Box::default());
            return Ok(Self { file, size, level, sums, has_checksums, footer });
        }
        let mut sums = vec![0; format::checksums_len(size) as usize];
        file.read_exact_at(&mut sums, u64::from(size))?;
        let sums = format::parse_checksums(&sums);
        Ok(Self { file, size, level, sums, has_checksums, footer })
    }

    /// Reads bytes of the block and verifies them as the checksum level requires. Returns
    /// `InvalidData` if they are damaged.
    pub fn read(&self, range: &Range<u32>) -> io::Result<Bytes> {
        self.read_by(range, |into, start| {
            let mut done = 0;
            while done < into.len() {
                match rustix::io::pread(&self.file, &mut into[done..], start + done as u64) {
                    Ok(0) => return Err(damaged("truncated")),
                    Ok(count) => done += count,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })
    }

    /// Reads as [`BlockFile::read`] does, if all of it is in the page cache.
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

    /// Reads and verifies, one stride at a time.
    fn read_by(
        &self,
        range: &Range<u32>,
        fill: impl Fn(&mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<Bytes> {
        let window = format::window(self.level, self.size, range);
        let mut bytes = buffer_pool::Buffer::scratch(window.len());
        for stride in format::strides(&window) {
            let at = (stride.start - window.start) as usize;
            let part = &mut bytes[at..at + stride.len()];
            fill(part, stride.start.into())?;
            if !format::is_sound(self.level, self.size, &window, &stride, part, &self.sums) {
                return Err(damaged("checksum"));
            }
        }
        let start = (range.start - window.start) as usize;
        Ok(bytes.freeze().slice(start..start + range.len()))
    }

    /// Returns the tier in the footer of a staged block; 0 if there is no footer.
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

    /// Whether the trailer can be one that a client wrote: a file that was truncated within its
    /// checksums looks like one with a footer and no checksums.
    pub fn is_plausible(&self) -> bool {
        self.has_checksums || self.tier().is_ok()
    }

    /// Whether the file still has a name.
    pub fn is_linked(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
    }
}

/// Permissions of new files and directories.
#[derive(Debug, Clone, Copy)]
pub struct Modes {
    pub file: u32,
}

impl Modes {
    /// Everyone who may read the files may also create files in their directories.
    fn dir(self) -> u32 {
        let read = self.file & 0o444;
        self.file | (read >> 1) | (read >> 2)
    }
}

/// Writes a file atomically, by renaming a draft. Whether it survives a crash of the machine is up to
/// the kernel until [`sync`] returns.
pub fn write(path: &Path, parts: &[&[u8]], modes: Modes) -> io::Result<()> {
    let (mut file, draft) = create_draft(path, modes)?;
    let written = (|| {
        for part in parts {
            file.write_all(part)?;
        }
        fs::rename(&draft, path)
    })();
    if written.is_err() {
        // A draft that cannot be removed now is removed by a scan.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Makes files survive a crash of the machine, with their names and the directories below `top`.
/// Files that are gone are skipped.
pub fn sync(paths: &[PathBuf], top: &Path) -> io::Result<()> {
    let mut dirs = BTreeSet::new();
    for path in paths {
        match File::open(path).and_then(|file| file.sync_data()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(()) => {
                let above = path.ancestors().skip(1).take_while(|dir| dir.starts_with(top));
                dirs.extend(above.map(Path::to_owned));
            }
        }
    }
    for dir in dirs {
        match File::open(dir).and_then(|dir| dir.sync_all()) {
            // Removed with the files in it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Checks that files can be created in a directory, by creating one.
pub fn try_writing(dir: &Path, modes: Modes) -> io::Result<()> {
    let draft = draft_of(&dir.join("try"));
    OpenOptions::new().write(true).create_new(true).mode(modes.file).open(&draft)?;
    fs::remove_file(&draft)
}

/// Gives a file a second name, replacing any file of that name.
pub fn link(from: &Path, to: &Path, modes: Modes) -> io::Result<()> {
    match with_parent(to, modes, || fs::hard_link(from, to)) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let draft = draft_of(to);
            fs::hard_link(from, &draft)?;
            fs::rename(&draft, to).inspect_err(|_| drop(fs::remove_file(&draft)))
        }
        other => other,
    }
}

/// Creates a directory and its missing parents.
pub fn make_dirs(dir: &Path, modes: Modes) -> io::Result<()> {
    let mode = modes.dir();
    let make = || DirBuilder::new().mode(mode).create(dir);
    let mut outcome = make();
    if let (Err(error), Some(parent)) = (&outcome, dir.parent())
        && error.kind() == ErrorKind::NotFound
    {
        make_dirs(parent, modes)?;
        outcome = make();
    }
    match outcome {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
        Ok(()) => {
            // The umask may have removed permissions.
            fs::set_permissions(dir, Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

/// Whether a name is that of a draft: a file that is not completely written.
pub fn is_draft(name: &[u8]) -> bool {
    name.ends_with(b".tmp")
}

fn create_draft(path: &Path, modes: Modes) -> io::Result<(File, PathBuf)> {
    let draft = draft_of(path);
    let create = || OpenOptions::new().write(true).create_new(true).mode(modes.file).open(&draft);
    let file = with_parent(path, modes, create)?;
    Ok((file, draft))
}

/// Returns a draft name that no other writer uses, in any process or container. A file gets its
/// final name only when it is complete.
fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}.tmp", rand::random::<u64>()));
    name.into()
}

/// Runs `attempt`; if the parent directory is missing, creates it and retries. A scan of any client
/// may remove an empty directory at any time.
fn with_parent<T>(
    path: &Path,
    modes: Modes,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 0..3 {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => return other,
        }
        let Some(parent) = path.parent() else { break };
        make_dirs(parent, modes)?;
    }
    attempt()
}

pub fn damaged(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
