//! Directory listings: as many entries as fit into the reply.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use nix::errno::Errno;

use super::{Entry, ReplyBody, ReplyBuffers, ReplyFormat};
use crate::fuse::protocol::abi;
use crate::fuse::protocol::message_head::MessageHead;
use crate::meta::Ino;
use crate::meta::record::FileKind;

/// Names, nodes and types.
#[derive(Debug)]
pub struct Listing {
    room: usize,
    entries: BytesMut,
}

/// A listing that also has the reply to a lookup of each name.
#[derive(Debug)]
pub struct ListingPlus(Listing);

impl Listing {
    /// Creates an empty listing for a buffer of this size.
    pub fn new(room: u32) -> Self {
        let room = usize::try_from(room).unwrap_or(0);
        Self { room, entries: BytesMut::with_capacity(room) }
    }

    /// Adds an entry; false if there is no room for it. `offset` is where the next call continues
    /// after this entry.
    #[must_use]
    pub fn push(&mut self, ino: Ino, offset: u64, kind: FileKind, name: &[u8]) -> bool {
        self.add(None, ino, offset, kind, name)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn add(
        &mut self,
        entry: Option<&Entry>,
        ino: Ino,
        offset: u64,
        kind: FileKind,
        name: &[u8],
    ) -> bool {
        let fixed = abi::DIRENT + entry.map_or(0, |_| abi::ENTRY_OUT);
        let length = (fixed + name.len()).next_multiple_of(8);
        let Ok(name_length) = u32::try_from(name.len()) else { return false };
        if self.entries.len() + length > self.room {
            return false;
        }
        let end = self.entries.len() + length;
        if let Some(entry) = entry {
            let mut head = MessageHead::empty();
            entry.put(&mut head);
            self.entries.put_slice(head.as_bytes());
        }
        self.entries.put_slice(&ino.0.to_ne_bytes());
        self.entries.put_slice(&offset.to_ne_bytes());
        self.entries.put_slice(&name_length.to_ne_bytes());
        self.entries.put_slice(&dirent_type(kind).to_ne_bytes());
        self.entries.put_slice(name);
        self.entries.resize(end, 0);
        true
    }
}

impl ReplyBody for Listing {
    fn encode(self, _: ReplyFormat, _: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        Ok(ReplyBuffers::One(self.entries.freeze()))
    }
}

impl ListingPlus {
    /// Creates an empty listing for a buffer of this size.
    pub fn new(room: u32) -> Self {
        Self(Listing::new(room))
    }

    /// Adds an entry that counts as a lookup of its node; false if there is no room for it.
    #[must_use]
    pub fn push(&mut self, entry: &Entry, offset: u64, kind: FileKind, name: &[u8]) -> bool {
        self.0.add(Some(entry), entry.ino, offset, kind, name)
    }

    /// Adds an entry without attributes, which does not count as a lookup: `.`, `..`, and entries
    /// removed meanwhile.
    #[must_use]
    pub fn push_name(&mut self, ino: Ino, offset: u64, kind: FileKind, name: &[u8]) -> bool {
        self.0.add(Some(&Entry::absent(Duration::ZERO)), ino, offset, kind, name)
    }
}

impl ReplyBody for ListingPlus {
    fn encode(self, format: ReplyFormat, head: &mut MessageHead) -> Result<ReplyBuffers, Errno> {
        self.0.encode(format, head)
    }
}

/// Returns the type of a dirent: the upper bits of the mode.
fn dirent_type(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 1,
        FileKind::CharDevice => 2,
        FileKind::Dir => 4,
        FileKind::BlockDevice => 6,
        FileKind::File => 8,
        FileKind::Symlink => 10,
        FileKind::Socket => 12,
    }
}
