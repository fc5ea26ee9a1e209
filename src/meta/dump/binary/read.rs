//! Reading the segments of a binary dump, record by record: a segment may be larger than memory.

use std::io::Read;

use prost::Message;

use super::message::{
    Acl, Chunk, Counter, DelFile, Edge, Footer, Format, Node, Parent, Quota, SliceRef, Stat,
    Sustained, Symlink, Xattr,
};
use super::{FORMAT, MAGIC, SEGMENTS, VERSION};
use crate::error::{Error, Result};

/// The longest record. The largest are settings, chunks with many slices, and files that a session
/// keeps alive.
const MAX_RECORD: u64 = 64 << 20;
/// The longest footer: it has eight bytes for each segment.
pub const MAX_FOOTER: u64 = 64 << 20;

/// One record of any kind.
#[derive(Debug)]
pub enum Item {
    Format(Vec<u8>),
    Counter(Counter),
    Node(Node),
    Edge(Edge),
    Chunk(Chunk),
    SliceRef(SliceRef),
    Symlink(Symlink),
    Sustained(Sustained),
    DelFile(DelFile),
    Xattr(Xattr),
    Acl(Acl),
    Stat(Stat),
    /// The kind of the quota is that of the field, where it tells.
    Quota(Quota),
    Parent(Parent),
}

pub struct Reader<R> {
    input: R,
    at: u64,
    record: Vec<u8>,
}

impl<R: Read> Reader<R> {
    pub fn new(input: R) -> Self {
        Self { input, at: 0, record: Vec::new() }
    }

    /// Passes every record to `visit`, with the type of its segment. Fails if the dump has no
    /// proper end.
    pub fn each(&mut self, mut visit: impl FnMut(u32, Item) -> Result<()>) -> Result<Footer> {
        loop {
            let kind = u32::from_be_bytes(self.array()?);
            if kind == MAGIC {
                return self.footer();
            }
            if !(1..=SEGMENTS.len()).contains(&usize::try_from(kind).unwrap_or(0)) {
                return Err(
                    self.error(format!("{kind} is not a type of segment: not a binary dump"))
                );
            }
            self.segment(kind, &mut visit)?;
        }
    }

    /// Reads one segment. Returns its type; none at the end mark.
    pub fn one(&mut self, mut visit: impl FnMut(u32, Item) -> Result<()>) -> Result<u32> {
        let kind = u32::from_be_bytes(self.array()?);
        if !(1..=SEGMENTS.len()).contains(&usize::try_from(kind).unwrap_or(0)) {
            return Err(self.error("no segment begins here"));
        }
        self.segment(kind, &mut visit)?;
        Ok(kind)
    }

    fn segment(
        &mut self,
        kind: u32,
        visit: &mut impl FnMut(u32, Item) -> Result<()>,
    ) -> Result<()> {
        let len = u64::from_be_bytes(self.array()?);
        let end = self.at.checked_add(len).ok_or_else(|| self.error("an impossible length"))?;
        if kind == FORMAT {
            self.take(len)?;
            let format = Format::decode(&self.record[..]).map_err(|cause| self.error(cause))?;
            return visit(kind, Item::Format(format.data));
        }
        while self.at < end {
            let tag = self.varint()?;
            // Every field of a batch is a list of messages.
            if tag & 7 != 2 {
                return Err(self.error("a field that is not a record"));
            }
            let len = self.varint()?;
            if self.at.checked_add(len).is_none_or(|after| after > end) {
                return Err(self.error("a record that is longer than its segment"));
            }
            self.take(len)?;
            if let Some(item) = decode(tag >> 3, &self.record).map_err(|cause| self.error(cause))? {
                visit(kind, item)?;
            }
        }
        Ok(())
    }

    fn footer(&mut self) -> Result<Footer> {
        let start = self.at;
        let mut rest = Vec::new();
        let read = self.input.by_ref().take(MAX_FOOTER).read_to_end(&mut rest);
        read.map_err(|error| Error::bad_input(format!("cannot read the dump: {error}")))?;
        let Some((footer, len)) = rest.split_last_chunk::<8>() else {
            return Err(self.error("it ends here: the dump is truncated"));
        };
        if u64::from_be_bytes(*len) != footer.len() as u64 {
            return Err(self.error("the footer has another length than it says"));
        }
        self.at = start + rest.len() as u64;
        check_footer(footer)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.error("a number of more than ten bytes"))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|error| self.read_error(&error))?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// Reads a record. Memory grows with what is there, not with what the length says.
    fn take(&mut self, len: u64) -> Result<()> {
        if len > MAX_RECORD {
            return Err(self.error(format!("a record of {len} bytes")));
        }
        self.record.clear();
        let read = self.input.by_ref().take(len).read_to_end(&mut self.record);
        let read = read.map_err(|error| self.read_error(&error))?;
        self.at += read as u64;
        if (read as u64) < len {
            return Err(self.error("it ends here: the dump is truncated"));
        }
        Ok(())
    }

    pub fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::bad_input(format!("byte {} of the dump: {what}", self.at))
    }

    fn read_error(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.error("it ends here: the dump is truncated"),
            _ => Error::bad_input(format!("cannot read the dump: {error}")),
        }
    }
}

/// Decodes a footer and checks what it is.
pub fn check_footer(raw: &[u8]) -> Result<Footer> {
    let footer = Footer::decode(raw)
        .map_err(|cause| Error::bad_input(format!("the footer of the dump: {cause}")))?;
    if footer.magic != MAGIC {
        return Err(Error::bad_input("not a binary dump: the footer has another magic number"));
    }
    if footer.version > VERSION {
        return Err(Error::bad_input(format!(
            "the dump has version {}, this client knows {VERSION}",
            footer.version
        )));
    }
    Ok(footer)
}

/// Decodes a record by its field in a batch; none if this version does not know it.
fn decode(field: u64, raw: &[u8]) -> Result<Option<Item>, prost::DecodeError> {
    let quota = |kind| -> Result<Item, prost::DecodeError> {
        Ok(Item::Quota(Quota { kind, ..Quota::decode(raw)? }))
    };
    Ok(Some(match field {
        1 => Item::Node(Node::decode(raw)?),
        2 => Item::Edge(Edge::decode(raw)?),
        3 => Item::Chunk(Chunk::decode(raw)?),
        4 => Item::SliceRef(SliceRef::decode(raw)?),
        5 => Item::Xattr(Xattr::decode(raw)?),
        6 => Item::Parent(Parent::decode(raw)?),
        7 => Item::Symlink(Symlink::decode(raw)?),
        8 => Item::Sustained(Sustained::decode(raw)?),
        9 => Item::DelFile(DelFile::decode(raw)?),
        10 => Item::Stat(Stat::decode(raw)?),
        11 => Item::Quota(Quota::decode(raw)?),
        12 => Item::Acl(Acl::decode(raw)?),
        13 => Item::Counter(Counter::decode(raw)?),
        15 => quota(1)?,
        16 => quota(2)?,
        _ => return Ok(None),
    }))
}
