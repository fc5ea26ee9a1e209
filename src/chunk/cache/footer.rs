//! The footer of a staged block: its storage tier, for the client that will upload it.
//!
//! `0x4653`, a length, and a MessagePack map of `tier` and `pad`. The padding says whether
//! checksums come before: then the length is a multiple of four, otherwise it is not.

/// Opens a footer.
const MAGIC: [u8; 2] = [0x46, 0x53];

/// Magic and length.
pub const HEADER: usize = 4;

/// Higher ones do not exist; the default takes their place, as in JuiceFS.
const MAX_TIER: u8 = 3;

/// A length that no footer has, padded as it may be.
pub const MAX_LEN: u64 = 1 << 10;

pub fn encode(tier: u8, after_checksums: bool) -> Vec<u8> {
    // Without padding the map has 14 bytes.
    let pad: &[u8] = if after_checksums { &[0; 2] } else { &[] };
    let mut map = vec![0x82, 0xa4, b't', b'i', b'e', b'r', 0xcc, tier];
    map.extend([0xa3, b'p', b'a', b'd', 0xc4, pad.len() as u8]);
    map.extend(pad);
    let mut footer = MAGIC.to_vec();
    footer.extend([0, map.len() as u8]);
    footer.append(&mut map);
    footer
}

/// The tier in a footer; none if it is damaged.
pub fn decode(footer: &[u8]) -> Option<u8> {
    let (header, map) = footer.split_at_checked(HEADER)?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[..2] != MAGIC || length == 0 || length != map.len() {
        return None;
    }
    let tier = read_tier(&mut { map })?;
    Some(if tier > MAX_TIER { 0 } else { tier })
}

fn read_tier(map: &mut &[u8]) -> Option<u8> {
    let fields = rmp::decode::read_map_len(map).ok()?;
    let mut tier = 0;
    for _ in 0..fields {
        match read_name(map)? {
            b"tier" => tier = rmp::decode::read_int(map).ok()?,
            b"pad" => {
                let length = rmp::decode::read_bin_len(map).ok()?;
                *map = map.get(length as usize..)?;
            }
            _ => return None,
        }
    }
    Some(tier)
}

fn read_name<'a>(map: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = rmp::decode::read_str_len(map).ok()? as usize;
    let (name, rest) = map.split_at_checked(length)?;
    *map = rest;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the Go client writes for tier 2, with and without checksums before.
    const PADDED: &[u8] = b"FS\x00\x10\x82\xa4tier\xcc\x02\xa3pad\xc4\x02\x00\x00";
    const BARE: &[u8] = b"FS\x00\x0e\x82\xa4tier\xcc\x02\xa3pad\xc4\x00";

    #[test]
    fn footers_are_those_of_the_go_client() {
        assert_eq!(encode(2, true), PADDED);
        assert_eq!(encode(2, false), BARE);
    }

    #[test]
    fn footers_read_back() {
        for tier in 1..=3 {
            for padded in [true, false] {
                assert_eq!(decode(&encode(tier, padded)), Some(tier));
            }
        }
        assert_eq!(decode(&encode(200, true)), Some(0), "no such tier");
    }

    #[test]
    fn a_damaged_footer_is_none_or_only_another_tier() {
        for at in 0..PADDED.len() {
            let mut footer = PADDED.to_vec();
            footer[at] ^= 0x41;
            let decoded = decode(&footer);
            let harmless = at == 11 || at >= PADDED.len() - 2;
            assert_eq!(decoded.is_some(), harmless, "byte {at}: {decoded:?}");
        }
        for length in 0..PADDED.len() {
            assert_eq!(decode(&PADDED[..length]), None, "{length} bytes");
        }
    }
}
