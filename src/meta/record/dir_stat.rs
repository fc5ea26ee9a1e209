//! Dir stats: the usage of a directory's direct entries.

use std::ops::AddAssign;

use super::quota::{decode_numbers, encode_numbers};
use crate::error::Result;

/// The usage of direct entries, or a change of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirStat {
    pub length: i64,
    pub space: i64,
    pub inodes: i64,
}

impl AddAssign for DirStat {
    fn add_assign(&mut self, other: Self) {
        self.length += other.length;
        self.space += other.space;
        self.inodes += other.inodes;
    }
}

impl DirStat {
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    pub fn is_negative(&self) -> bool {
        self.length < 0 || self.space < 0 || self.inodes < 0
    }
}

impl DirStat {
    pub const LEN: usize = 24;

    /// Encodes the record as key-value stores hold it.
    pub fn encode(&self) -> [u8; Self::LEN] {
        encode_numbers([self.length, self.space, self.inodes])
    }

    pub fn decode(raw: &[u8]) -> Result<Self> {
        let [length, space, inodes] = decode_numbers("dir stat", raw)?;
        Ok(Self { length, space, inodes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Files of 300000, 2 and 2 bytes, as the Go client stores it.
    const RAW: [u8; 24] =
        [0, 0, 0, 0, 0, 4, 0x93, 0xe4, 0, 0, 0, 0, 0, 4, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 3];

    #[test]
    fn a_stored_stat_decodes_and_encodes() {
        let stat = DirStat { length: 300_004, space: 311_296, inodes: 3 };
        assert_eq!(DirStat::decode(&RAW).unwrap(), stat);
        assert_eq!(stat.encode(), RAW);
    }

    #[test]
    fn a_record_of_another_length_is_damaged() {
        for len in [0, 16, 23] {
            assert!(DirStat::decode(&RAW[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn changes_add_up() {
        let mut stat = DirStat { length: 5, space: 4096, inodes: 1 };
        stat += DirStat { length: -5, space: -4096, inodes: -1 };
        assert!(stat.is_zero());
        stat += DirStat { inodes: -1, ..DirStat::default() };
        assert!(stat.is_negative());
    }

    proptest! {
        #[test]
        fn an_encoded_stat_decodes_to_the_same(length: i64, space: i64, inodes: i64) {
            let stat = DirStat { length, space, inodes };
            prop_assert_eq!(DirStat::decode(&stat.encode()).unwrap(), stat);
        }
    }
}
