//! Runs steps on our metadata client, as the layer above it would.

use std::sync::Arc;

use bytes::Bytes;
use jfs::meta::client::Progress;
use jfs::meta::record::{AclKind, AclRule, FileKind, Slice};
use jfs::meta::{
    AttrSet, Caller, CloneMode, EntryRef, Ino, Meta, Name, NodeKind, RenameMode, TimeSet,
    Timestamp, XattrMode,
};
use jfs::{Error, Result};
use nix::fcntl::FallocateFlags;

use crate::bucket::Bucket;
use crate::script::on_mount::Outcome;
use crate::script::step::{Acl, Allocate, NodeType, RenameFlag, Step, Xattr, content};

/// The umask of the tests, the same for both clients.
pub const UMASK: u16 = 0o022;
const CHUNK: u64 = 64 << 20;

/// Our client and the objects it writes.
pub struct OurClient {
    pub meta: Arc<Meta>,
    pub bucket: Arc<Bucket>,
}

impl OurClient {
    pub async fn run(&self, step: &Step) -> Outcome {
        self.attempt(&Caller::root(), step).await.map_err(|error| error.errno())
    }

    async fn attempt(&self, caller: &Caller, step: &Step) -> Result<()> {
        let meta = &*self.meta;
        match step {
            Step::Mkdir(path, mode) => {
                let (dir, name) = self.parent_and_name(path).await?;
                meta.mkdir(caller, dir, &name, *mode, UMASK).await.map(drop)
            }
            Step::File(path, mode) => {
                let (dir, name) = self.parent_and_name(path).await?;
                let (ino, _) = meta.create(caller, dir, &name, *mode, UMASK, true).await?;
                meta.close_file(ino).await
            }
            Step::Mknod(path, special, mode) => {
                let (dir, name) = self.parent_and_name(path).await?;
                let (kind, rdev) = match special {
                    NodeType::Fifo => (FileKind::Fifo, 0),
                    NodeType::Socket => (FileKind::Socket, 0),
                    NodeType::Char(device) => (FileKind::CharDevice, *device),
                    NodeType::Block(device) => (FileKind::BlockDevice, *device),
                    NodeType::Plain => (FileKind::File, 0),
                };
                let node = NodeKind { kind, rdev };
                meta.mknod(caller, dir, &name, node, *mode, UMASK).await.map(drop)
            }
            Step::Symlink { target, path } => {
                let (dir, name) = self.parent_and_name(path).await?;
                let target = Bytes::copy_from_slice(target.as_bytes());
                meta.symlink(caller, dir, &name, target).await.map(drop)
            }
            Step::Link(from, to) => {
                let ino = self.find(from).await?;
                let (dir, name) = self.parent_and_name(to).await?;
                meta.link(caller, ino, dir, &name).await.map(drop)
            }
            Step::Unlink(path) => self.unlink(caller, path).await,
            Step::Rmdir(path) => {
                let (dir, name) = self.parent_and_name(path).await?;
                meta.rmdir(caller, dir, &name).await
            }
            Step::Rename(from, to, flag) => self.rename(caller, from, to, *flag).await,
            Step::Chmod(path, mode) => {
                let set = AttrSet { mode: Some(*mode), ..AttrSet::default() };
                meta.setattr(caller, self.find(path).await?, set).await.map(drop)
            }
            Step::Chown(path, uid, gid) => {
                let set = AttrSet { uid: Some(*uid), gid: Some(*gid), ..AttrSet::default() };
                meta.setattr(caller, self.find(path).await?, set).await.map(drop)
            }
            Step::Times(path, atime, mtime) => {
                let (atime, mtime) = (Some(time(*atime)), Some(time(*mtime)));
                let set = AttrSet { atime, mtime, ..AttrSet::default() };
                meta.setattr(caller, self.find(path).await?, set).await.map(drop)
            }
            Step::SetXattr(path, name, value, how) => {
                let mode = match how {
                    Xattr::Any => XattrMode::Put,
                    Xattr::Create => XattrMode::Create,
                    Xattr::Replace => XattrMode::Replace,
                };
                let ino = self.find(path).await?;
                meta.set_xattr(ino, name.as_bytes(), value.as_bytes(), mode).await
            }
            Step::RemoveXattr(path, name) => {
                meta.remove_xattr(self.find(path).await?, name.as_bytes()).await
            }
            Step::SetAcl(path, which, rule) => {
                let kind = match which {
                    Acl::Access => AclKind::Access,
                    Acl::Default => AclKind::Default,
                };
                let rule = match rule.as_slice() {
                    [] => AclRule::empty(),
                    raw => AclRule::from_xattr(raw)?,
                };
                meta.set_facl(caller, self.find(path).await?, kind, &rule).await.map(drop)
            }
            Step::Truncate(..) | Step::Fallocate(..) | Step::Copy(..) | Step::Write(..) => {
                self.change_content(caller, step).await
            }
            Step::Clone { from, to, preserve } => {
                let src = self.find(from).await?;
                let (dir, name) = self.parent_and_name(to).await?;
                let mode = CloneMode { preserve: *preserve, umask: UMASK };
                let progress = Progress::default();
                meta.clone_tree(caller, src, EntryRef::new(dir, &name), mode, 0, &progress)
                    .await
                    .map(drop)
            }
            Step::As(uid, gid, step) => {
                let caller = Caller { check: true, ..Caller::user(*uid, *gid) };
                Box::pin(self.attempt(&caller, step)).await
            }
        }
    }

    async fn change_content(&self, caller: &Caller, step: &Step) -> Result<()> {
        let meta = &*self.meta;
        match step {
            Step::Truncate(path, length) => {
                let ino = self.regular(path).await?;
                meta.truncate(caller, ino, *length).await.map(drop)
            }
            Step::Fallocate(path, how, off, len) => {
                let ino = self.regular(path).await?;
                let mode = match how {
                    Allocate::Grow => FallocateFlags::empty(),
                    Allocate::Keep => FallocateFlags::FALLOC_FL_KEEP_SIZE,
                    Allocate::Punch => {
                        FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE
                    }
                    Allocate::Zero => FallocateFlags::FALLOC_FL_ZERO_RANGE,
                    Allocate::ZeroKeep => {
                        FallocateFlags::FALLOC_FL_ZERO_RANGE | FallocateFlags::FALLOC_FL_KEEP_SIZE
                    }
                };
                meta.fallocate(caller, ino, mode, *off, *len).await.map(drop)
            }
            Step::Copy(from, from_off, to, to_off, len) => {
                let (from, to) = (self.regular(from).await?, self.regular(to).await?);
                // The kernel does not pass these on.
                let end = meta.getattr(from).await?.length;
                let len = (*len).min(end.saturating_sub(*from_off));
                if len == 0 {
                    return Ok(());
                }
                meta.copy_file_range(from, *from_off, to, *to_off, len).await.map(drop)
            }
            Step::Write(path, off, len) => self.write(path, *off, *len).await,
            other => panic!("{other:?} does not change content"),
        }
    }

    async fn unlink(&self, caller: &Caller, path: &str) -> Result<()> {
        let (dir, name) = self.parent_and_name(path).await?;
        let (_, attr) = self.meta.lookup(&Caller::root(), dir, &name).await?;
        if attr.is_dir() {
            // The kernel's errno; the client itself returns EPERM.
            return Err(Error::IsDirectory);
        }
        self.meta.unlink(caller, dir, &name).await
    }

    async fn rename(&self, caller: &Caller, from: &str, to: &str, flag: RenameFlag) -> Result<()> {
        let (src, old) = self.parent_and_name(from).await?;
        let (dst, new) = self.parent_and_name(to).await?;
        self.meta.lookup(&Caller::root(), src, &old).await?;
        let taken = self.meta.lookup(&Caller::root(), dst, &new).await.is_ok();
        // The kernel refuses a move into itself, after it has checked the flags.
        let below = |upper: &str, lower: &str| lower.starts_with(&format!("{upper}/"));
        match flag {
            RenameFlag::NoReplace if taken => return Err(Error::Exists),
            RenameFlag::Exchange if !taken => return Err(Error::NotFound),
            RenameFlag::Exchange if below(from, to) || below(to, from) => {
                return Err(Error::Invalid);
            }
            _ if below(from, to) => return Err(Error::Invalid),
            _ if below(to, from) => return Err(Error::NotEmpty),
            _ => {}
        }
        let mode = match flag {
            RenameFlag::Replace => RenameMode::Replace,
            RenameFlag::NoReplace => RenameMode::NoReplace,
            RenameFlag::Exchange => RenameMode::Exchange,
            RenameFlag::Whiteout => return Err(Error::NotSupported),
        };
        self.meta
            .rename(caller, EntryRef::new(src, &old), EntryRef::new(dst, &new), mode)
            .await
            .map(drop)
    }

    async fn write(&self, path: &str, off: u64, len: u32) -> Result<()> {
        let ino = self.regular(path).await?;
        let mtime = Timestamp::now();
        let id = self.meta.new_slice().await?;
        self.bucket.put(id, &content(off, len));
        let index = u32::try_from(off / CHUNK).unwrap();
        let pos = u32::try_from(off % CHUNK).unwrap();
        let slice = Slice { pos, id, size: len, off: 0, len };
        self.meta.write(ino, index, pos, slice, mtime).await
    }

    async fn find(&self, path: &str) -> Result<Ino> {
        let mut ino = Ino::ROOT;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if !self.meta.getattr(ino).await?.is_dir() {
                return Err(Error::NotDirectory);
            }
            ino = self.meta.lookup(&Caller::root(), ino, &Name::new(part)?).await?.0;
        }
        Ok(ino)
    }

    /// Finds a file to open for its content: the kernel refuses other types.
    async fn regular(&self, path: &str) -> Result<Ino> {
        let ino = self.find(path).await?;
        match self.meta.getattr(ino).await?.kind {
            FileKind::File => Ok(ino),
            FileKind::Dir => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    async fn parent_and_name(&self, path: &str) -> Result<(Ino, Name)> {
        let (dir, last) = path.rsplit_once('/').unwrap();
        let dir = self.find(dir).await?;
        if !self.meta.getattr(dir).await?.is_dir() {
            return Err(Error::NotDirectory);
        }
        Ok((dir, Name::new(last)?))
    }
}

fn time(nanos: u64) -> TimeSet {
    let (sec, nsec) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    TimeSet::At(Timestamp { sec: sec.cast_signed(), nsec: u32::try_from(nsec).unwrap() })
}
