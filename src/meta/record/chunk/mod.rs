//! Chunks: the slice records of 64 MiB of a file, in order. Later records hide earlier ones.

pub mod compaction;
pub mod delayed_slices;
pub mod visible_slices;

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

    /// Returns the position after the last byte.
    pub fn end(&self) -> u32 {
        self.pos.saturating_add(self.len)
    }
}

/// Encodes records in their order.
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
    if !raw.len().is_multiple_of(SLICE_LEN) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::meta::record::hex;

    #[test]
    fn stored_records_decode_and_encode() {
        for (raw, slices) in [
            ("", vec![]),
            (
                "00000000 0000000000000001 000493e0 00000000 000493e0",
                vec![Slice { pos: 0, id: SliceId(1), size: 300_000, off: 0, len: 300_000 }],
            ),
            (
                "00000000 0000000000000000 00000000 00000000 04000000 \
                 03f00000 0000000000000002 00100000 00000000 00100000",
                vec![
                    Slice::hole(0, 1 << 26),
                    Slice { pos: 63 << 20, id: SliceId(2), size: 1 << 20, off: 0, len: 1 << 20 },
                ],
            ),
        ] {
            assert_eq!(decode(&hex(raw)).unwrap(), slices);
            assert_eq!(encode(&slices), hex(raw));
        }
    }

    #[test]
    fn truncated_records_are_damaged() {
        for len in [1, 23, 25, 47] {
            assert!(decode(&[0; 48][..len]).is_err(), "{len}");
        }
    }

    proptest! {
        #[test]
        fn encoded_records_decode_to_the_same(
            parts in prop::collection::vec(any::<(u32, u64, u32, u32, u32)>(), 0..5)
        ) {
            let slices: Vec<_> = parts
                .into_iter()
                .map(|(pos, id, size, off, len)| Slice { pos, id: SliceId(id), size, off, len })
                .collect();
            prop_assert_eq!(decode(&encode(&slices)).unwrap(), slices);
        }
    }
}
