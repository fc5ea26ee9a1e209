//! Quotas of directories, users and groups.

use bytes::{Buf, BufMut};

use crate::error::{Error, Result};
use crate::meta::Ino;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaKey {
    Dir(Ino),
    User(u32),
    Group(u32),
}

impl QuotaKey {
    /// Returns the stored number of the kind, and the inode, uid or gid.
    pub fn number(self) -> (u8, u64) {
        match self {
            Self::Dir(ino) => (0, ino.0),
            Self::User(uid) => (1, uid.into()),
            Self::Group(gid) => (2, gid.into()),
        }
    }
}

/// Limits and usage; a limit of 0 or less means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    pub max_space: i64,
    pub max_inodes: i64,
    pub used_space: i64,
    pub used_inodes: i64,
}

impl Quota {
    /// A record without limits; for a directory it means no quota.
    pub const UNLIMITED: Self =
        Self { max_space: -1, max_inodes: -1, used_space: 0, used_inodes: 0 };
    /// Length of the limits alone.
    pub const LIMITS_LEN: usize = 16;
    /// Length of the whole record.
    pub const LEN: usize = 32;

    pub fn is_limited(&self) -> bool {
        self.max_space > 0 || self.max_inodes > 0
    }

    /// Returns whether the record only counts usage: -1 marks limits that were never set, or
    /// removed.
    pub fn is_unset(&self) -> bool {
        self.max_space == -1 && self.max_inodes == -1
    }

    /// Returns whether adding this much would exceed a limit. A decrease never does.
    pub fn exceeded_by(&self, space: i64, inodes: i64) -> bool {
        let exceeds =
            |max: i64, used: i64, more: i64| max > 0 && more > 0 && used.saturating_add(more) > max;
        exceeds(self.max_space, self.used_space, space)
            || exceeds(self.max_inodes, self.used_inodes, inodes)
    }

    /// Encodes the record as key-value stores hold it.
    pub fn encode(&self) -> [u8; Self::LEN] {
        encode_numbers([self.max_space, self.max_inodes, self.used_space, self.used_inodes])
    }

    pub fn decode(raw: &[u8]) -> Result<Self> {
        let [max_space, max_inodes, used_space, used_inodes] = decode_numbers("quota", raw)?;
        Ok(Self { max_space, max_inodes, used_space, used_inodes })
    }

    /// Encodes the limits as Redis holds them.
    pub fn encode_limits(&self) -> [u8; Self::LIMITS_LEN] {
        encode_numbers([self.max_space, self.max_inodes])
    }

    /// Sets the limits from the bytes that Redis holds. The usage stays.
    pub fn set_limits(&mut self, raw: &[u8]) -> Result<()> {
        [self.max_space, self.max_inodes] = decode_numbers("quota limits", raw)?;
        Ok(())
    }
}

/// Encodes big-endian numbers one after another.
pub(super) fn encode_numbers<const N: usize, const LEN: usize>(numbers: [i64; N]) -> [u8; LEN] {
    let mut out = [0; LEN];
    let mut rest = &mut out[..];
    for number in numbers {
        rest.put_i64(number);
    }
    out
}

/// Decodes exactly `N` big-endian numbers.
pub(super) fn decode_numbers<const N: usize>(record: &str, raw: &[u8]) -> Result<[i64; N]> {
    if raw.len() != N * 8 {
        return Err(Error::damaged(record, format!("{} bytes instead of {}", raw.len(), N * 8)));
    }
    let mut rest = raw;
    Ok(std::array::from_fn(|_| rest.get_i64()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 1 GiB and 100 inodes, as the Go client stores it in Redis.
    const LIMITS: [u8; 16] = [0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x64];

    fn limited() -> Quota {
        Quota { max_space: 1 << 30, max_inodes: 100, used_space: 24576, used_inodes: 5 }
    }

    #[test]
    fn limits_decode_and_encode() {
        assert_eq!(limited().encode_limits(), LIMITS);
        let mut quota = Quota { max_space: 7, max_inodes: 7, ..limited() };
        quota.set_limits(&LIMITS).unwrap();
        assert_eq!(quota, limited());
        quota.set_limits(&[0xff; 16]).unwrap();
        assert!(quota.is_unset());
        assert_eq!(quota.encode_limits(), [0xff; 16]);
    }

    #[test]
    fn whole_records_decode_and_encode() {
        let mut raw = LIMITS.to_vec();
        raw.extend([0, 0, 0, 0, 0, 0, 0x60, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(limited().encode(), &raw[..]);
        assert_eq!(Quota::decode(&raw).unwrap(), limited());
    }

    #[test]
    fn records_of_other_lengths_are_damaged() {
        for len in [0, 8, 24, 31, 33] {
            assert!(Quota::decode(&[0; 64][..len]).is_err(), "{len}");
        }
        assert!(limited().set_limits(&[0; 32]).is_err());
    }

    #[test]
    fn only_both_limits_at_minus_one_mean_no_quota() {
        assert!(Quota { max_space: -1, max_inodes: -1, ..limited() }.is_unset());
        assert!(!Quota { max_space: 1, max_inodes: -1, ..limited() }.is_unset());
        assert!(!Quota::default().is_unset());
    }

    #[test]
    fn only_a_limit_above_zero_can_be_exceeded() {
        let quota = limited();
        assert!(!quota.exceeded_by((1 << 30) - 24576, 95));
        assert!(quota.exceeded_by((1 << 30) - 24575, 0));
        assert!(quota.exceeded_by(0, 96));
        let over = Quota { used_space: i64::MAX, used_inodes: i64::MAX, ..quota };
        assert!(over.exceeded_by(i64::MAX, 0));
        assert!(!over.exceeded_by(0, -1));
        for none in [0, -1] {
            let unlimited = Quota { max_space: none, max_inodes: none, ..over };
            assert!(!unlimited.exceeded_by(i64::MAX, i64::MAX));
        }
    }

    proptest! {
        #[test]
        fn an_encoded_quota_decodes_to_the_same(numbers: [i64; 4]) {
            let [max_space, max_inodes, used_space, used_inodes] = numbers;
            let quota = Quota { max_space, max_inodes, used_space, used_inodes };
            prop_assert_eq!(Quota::decode(&quota.encode()).unwrap(), quota);
        }
    }
}
