//! The footer of a staged block: its storage tier, for the client that will upload it.
//!
//! `0x4653`, a length, and a `MessagePack` map of `tier` and `pad`. The padding tells whether
//! checksums precede the footer: if so, its length is a multiple of four, otherwise it is not.

/// The first bytes of a footer.
const MAGIC: [u8; 2] = [0x46, 0x53];

/// Length of the magic bytes and the length field.
pub const HEADER: usize = 4;

/// There are no higher tiers; the default replaces them, as in JuiceFS.
const MAX_TIER: u8 = 3;

/// Longer than any footer with its padding.
pub const MAX_LEN: usize = 1 << 10;

pub fn encode(tier: u8, after_checksums: bool) -> Vec<u8> {
    // Without padding the map has 14 bytes.
    let padding = if after_checksums { 2 } else { 0 };
    let mut map = vec![0x82, 0xa4, b't', b'i', b'e', b'r', 0xcc, tier];
    map.extend([0xa3, b'p', b'a', b'd', 0xc4, padding]);
    map.resize(map.len() + usize::from(padding), 0);
    let mut footer = MAGIC.to_vec();
    footer.extend([0, 14 + padding]);
    footer.append(&mut map);
    footer
}

/// Returns the tier in a footer; `None` if the footer is damaged.
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

    /// What the Go client writes for tier 2, with and without checksums before it.
    const PADDED: &[u8] = b"FS\x00\x10\x82\xa4tier\xcc\x02\xa3pad\xc4\x02\x00\x00";
    const BARE: &[u8] = b"FS\x00\x0e\x82\xa4tier\xcc\x02\xa3pad\xc4\x00";

    #[test]
    fn footers_match_the_go_client() {
        assert_eq!(encode(2, true), PADDED);
        assert_eq!(encode(2, false), BARE);
    }

    #[test]
    fn footers_decode_to_the_encoded_tier() {
        for tier in 1..=3 {
            for padded in [true, false] {
                assert_eq!(decode(&encode(tier, padded)), Some(tier));
            }
        }
        assert_eq!(decode(&encode(200, true)), Some(0), "no such tier");
    }

    #[test]
    fn a_damaged_footer_fails_to_decode_or_has_another_tier() {
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
