//! Delayed slices: slices that compaction replaced, kept as long as files in the trash.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Error, Result};
use crate::slice::{SliceId, SliceSize};

const ITEM_LEN: usize = 12;

/// Encodes a list of slices without its holes.
pub fn encode(slices: &[SliceSize]) -> Bytes {
    let mut out = BytesMut::with_capacity(slices.len() * ITEM_LEN);
    for slice in slices.iter().filter(|slice| !slice.id.is_hole()) {
        out.put_u64(slice.id.0);
        out.put_u32(slice.size);
    }
    out.freeze()
}

pub fn decode(mut raw: &[u8]) -> Result<Vec<SliceSize>> {
    if !raw.len().is_multiple_of(ITEM_LEN) {
        return Err(Error::damaged(
            "delayed slices",
            format!("{} bytes, not a multiple of 12", raw.len()),
        ));
    }
    let mut slices = Vec::with_capacity(raw.len() / ITEM_LEN);
    while !raw.is_empty() {
        slices.push(SliceSize { id: SliceId(raw.get_u64()), size: raw.get_u32() });
    }
    Ok(slices)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::meta::record::hex;

    #[test]
    fn a_stored_list_decodes_and_encodes() {
        let raw = hex("0000000000000005 000003e8 0000000000000006 000003e8");
        let slices = [5, 6].map(|id| SliceSize { id: SliceId(id), size: 1000 });
        assert_eq!(decode(&raw).unwrap(), slices);
        assert_eq!(encode(&slices), raw);
    }

    #[test]
    fn holes_are_left_out() {
        assert!(encode(&[SliceSize { id: SliceId::HOLE, size: 7 }]).is_empty());
    }

    #[test]
    fn a_truncated_list_is_damaged() {
        assert!(decode(&[0; 13]).is_err());
    }

    proptest! {
        #[test]
        fn an_encoded_list_decodes_to_the_same(
            parts in prop::collection::vec((1u64.., any::<u32>()), 0..5)
        ) {
            let slices: Vec<_> =
                parts.into_iter().map(|(id, size)| SliceSize { id: SliceId(id), size }).collect();
            prop_assert_eq!(decode(&encode(&slices)).unwrap(), slices);
        }
    }
}
