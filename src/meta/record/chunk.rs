//! Chunk: the ordered list of slice records of 64 MiB of a file; later records overlay earlier.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Error, Result};
use crate::meta::SliceId;

pub const CHUNK_BITS: u32 = 26;
pub const CHUNK_SIZE: u64 = 1 << CHUNK_BITS;
/// Encoded length of one slice record.
pub const SLICE_LEN: usize = 24;

/// One record: `len` bytes of slice `id`, from `off` in the slice, at `pos` in the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slice {
    pub pos: u32,
    /// [`SliceId::HOLE`] for zeros.
    pub id: SliceId,
    /// Length of the whole slice; 0 for a hole.
    pub size: u32,
    pub off: u32,
    pub len: u32,
}

impl Slice {
    pub fn hole(pos: u32, len: u32) -> Self {
        Self { pos, id: SliceId::HOLE, size: 0, off: 0, len }
    }

    /// The position behind the last byte.
    pub fn end(&self) -> u32 {
        self.pos.saturating_add(self.len)
    }
}

/// The stored form of records in their order.
pub fn encode(slices: &[Slice]) -> Bytes {
    let mut out = BytesMut::with_capacity(slices.len() * SLICE_LEN);
    for slice in slices {
        out.put_u32(slice.pos);
        out.put_u64(slice.id.0);
        out.put_u32(slice.size);
        out.put_u32(slice.off);
        out.put_u32(slice.len);
    }
    out.freeze()
}

pub fn decode(mut raw: &[u8]) -> Result<Vec<Slice>> {
    if raw.len() % SLICE_LEN != 0 {
        return Err(Error::damaged("chunk", format!("{} bytes, not a multiple of 24", raw.len())));
    }
    let mut slices = Vec::with_capacity(raw.len() / SLICE_LEN);
    while !raw.is_empty() {
        slices.push(Slice {
            pos: raw.get_u32(),
            id: SliceId(raw.get_u64()),
            size: raw.get_u32(),
            off: raw.get_u32(),
            len: raw.get_u32(),
        });
    }
    Ok(slices)
}
