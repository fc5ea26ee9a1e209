//! Operations by path instead of inode, for arranging and inspecting trees in tests.

use bytes::Bytes;
use jfs::meta::record::{Attr, FileKind, Slice};
use jfs::meta::{Caller, EntryRef, Ino, Meta, Name, RenameMode, Timestamp};
use jfs::{Error, Result};

pub fn name(text: impl AsRef<[u8]>) -> Name {
    Name::new(text).expect("a valid name")
}

/// Operations by path, as root unless a caller is given.
pub trait Tree {
    async fn at(&self, path: &str) -> Result<(Ino, Attr)>;
    async fn ino(&self, path: &str) -> Ino;
    async fn attr(&self, path: &str) -> Attr;
    async fn parent_of(&self, path: &str) -> (Ino, Name);
    async fn dir(&self, path: &str) -> Ino;
    async fn file(&self, path: &str) -> Ino;
    async fn file_by(&self, caller: &Caller, path: &str, mode: u16) -> Result<Ino>;
    async fn dir_by(&self, caller: &Caller, path: &str, mode: u16) -> Result<Ino>;
    async fn point(&self, path: &str, target: &str) -> Ino;
    async fn hard_link(&self, from: &str, to: &str) -> Result<Attr>;
    async fn rm(&self, path: &str) -> Result<()>;
    async fn rm_by(&self, caller: &Caller, path: &str) -> Result<()>;
    async fn rm_dir(&self, path: &str) -> Result<()>;
    async fn mv(&self, from: &str, to: &str) -> Result<()>;
    async fn mv_as(&self, caller: &Caller, from: &str, to: &str, mode: RenameMode) -> Result<()>;
    async fn names(&self, path: &str) -> Vec<String>;
    async fn fill(&self, path: &str, length: u64);
}

impl Tree for Meta {
    async fn at(&self, path: &str) -> Result<(Ino, Attr)> {
        let mut found = (Ino::ROOT, self.getattr(Ino::ROOT).await?);
        for part in path.split('/').filter(|part| !part.is_empty()) {
            found = self.lookup(&Caller::root(), found.0, &name(part)).await?;
        }
        Ok(found)
    }

    async fn ino(&self, path: &str) -> Ino {
        self.at(path).await.unwrap_or_else(|error| panic!("{path}: {error}")).0
    }

    async fn attr(&self, path: &str) -> Attr {
        let ino = self.ino(path).await;
        self.getattr(ino).await.expect("attr")
    }

    async fn parent_of(&self, path: &str) -> (Ino, Name) {
        let (dir, last) = path.rsplit_once('/').unwrap_or(("", path));
        (self.ino(dir).await, name(last))
    }

    async fn dir(&self, path: &str) -> Ino {
        self.dir_by(&Caller::root(), path, 0o755).await.unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    async fn file(&self, path: &str) -> Ino {
        self.file_by(&Caller::root(), path, 0o644).await.unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    async fn file_by(&self, caller: &Caller, path: &str, mode: u16) -> Result<Ino> {
        let (dir, last) = self.parent_of(path).await;
        let (ino, _) = self.create(caller, dir, &last, mode, 0, true).await?;
        self.close_file(ino).await?;
        Ok(ino)
    }

    async fn dir_by(&self, caller: &Caller, path: &str, mode: u16) -> Result<Ino> {
        let (dir, last) = self.parent_of(path).await;
        Ok(self.mkdir(caller, dir, &last, mode, 0).await?.0)
    }

    async fn point(&self, path: &str, target: &str) -> Ino {
        let (dir, last) = self.parent_of(path).await;
        let target = Bytes::copy_from_slice(target.as_bytes());
        self.symlink(&Caller::root(), dir, &last, target).await.expect("symlink").0
    }

    async fn hard_link(&self, from: &str, to: &str) -> Result<Attr> {
        let (dir, last) = self.parent_of(to).await;
        self.link(&Caller::root(), self.ino(from).await, dir, &last).await
    }

    async fn rm(&self, path: &str) -> Result<()> {
        self.rm_by(&Caller::root(), path).await
    }

    async fn rm_by(&self, caller: &Caller, path: &str) -> Result<()> {
        let (dir, last) = self.parent_of(path).await;
        self.unlink(caller, dir, &last).await
    }

    async fn rm_dir(&self, path: &str) -> Result<()> {
        let (dir, last) = self.parent_of(path).await;
        self.rmdir(&Caller::root(), dir, &last).await
    }

    async fn mv(&self, from: &str, to: &str) -> Result<()> {
        self.mv_as(&Caller::root(), from, to, RenameMode::Replace).await
    }

    async fn mv_as(&self, caller: &Caller, from: &str, to: &str, mode: RenameMode) -> Result<()> {
        let (src, old) = self.parent_of(from).await;
        let (dst, new) = self.parent_of(to).await;
        self.rename(caller, EntryRef::new(src, &old), EntryRef::new(dst, &new), mode)
            .await
            .map(|_| ())
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let entries = self.entries(self.ino(path).await, false).await.expect("listing");
        let mut names: Vec<String> = entries.iter().map(|entry| entry.name.to_string()).collect();
        names.sort();
        names
    }

    /// Writes one slice over the first `length` bytes.
    async fn fill(&self, path: &str, length: u64) {
        let ino = self.ino(path).await;
        let id = self.new_slice().await.expect("slice id");
        let len = u32::try_from(length).expect("at most one chunk");
        let slice = Slice { pos: 0, id, size: len, off: 0, len };
        self.write(ino, 0, 0, slice, Timestamp::now()).await.expect("write");
    }
}

/// Returns the error of an operation that must fail.
pub fn refused<T>(result: Result<T>) -> Error {
    match result {
        Ok(_) => panic!("should have been refused"),
        Err(error) => error,
    }
}

/// Returns a letter for a file type, for readable tables.
pub fn kind_letter(kind: FileKind) -> char {
    match kind {
        FileKind::File => 'f',
        FileKind::Dir => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::BlockDevice => 'b',
        FileKind::CharDevice => 'c',
        FileKind::Socket => 's',
    }
}
