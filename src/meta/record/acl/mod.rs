//! ACL rules: immutable, shared between nodes, and referred to by id.

mod access;
mod xattr;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Error, Result};

/// One of a node's two rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AclKind {
    Access = 1,
    Default = 2,
}

/// The permission (rwx bits) of a named user or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AclEntry {
    pub id: u32,
    pub perm: u16,
}

/// Permission bits per class; [`AclRule::UNSET`] where a class is not given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AclRule {
    pub owner: u16,
    pub group: u16,
    pub mask: u16,
    pub other: u16,
    pub users: Vec<AclEntry>,
    pub groups: Vec<AclEntry>,
}

impl AclRule {
    pub const UNSET: u16 = 0xFFFF;

    /// Returns a rule without any class or entry.
    pub fn empty() -> Self {
        let unset = Self::UNSET;
        Self {
            owner: unset,
            group: unset,
            mask: unset,
            other: unset,
            users: Vec::new(),
            groups: Vec::new(),
        }
    }
}

/// Encoded length of a named entry.
const ENTRY_LEN: usize = 6;

impl AclRule {
    /// Encodes the rule as Redis and key-value stores hold it.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        for class in [self.owner, self.group, self.mask, self.other] {
            out.put_u16(class);
        }
        for named in [&self.users, &self.groups] {
            out.put_u32(u32::try_from(named.len()).unwrap_or(u32::MAX));
            out.put_slice(&encode_entries(named));
        }
        out.freeze()
    }

    pub fn decode(raw: &[u8]) -> Result<Self> {
        let damaged = || Error::damaged("ACL rule", format!("truncated: {} bytes", raw.len()));
        let mut rest = raw;
        let mut class = || rest.try_get_u16().map_err(|_| damaged());
        let (owner, group, mask, other) = (class()?, class()?, class()?, class()?);
        let mut named = || {
            let count = rest.try_get_u32().map_err(|_| damaged())? as usize;
            let len = count
                .checked_mul(ENTRY_LEN)
                .filter(|len| *len <= rest.len())
                .ok_or_else(damaged)?;
            let (entries, tail) = rest.split_at(len);
            rest = tail;
            decode_entries(entries)
        };
        let (users, groups) = (named()?, named()?);
        Ok(Self { owner, group, mask, other, users, groups })
    }
}

/// Encodes named entries as SQL columns hold them.
pub fn encode_entries(entries: &[AclEntry]) -> Bytes {
    let mut out = BytesMut::with_capacity(entries.len() * ENTRY_LEN);
    for entry in entries {
        out.put_u32(entry.id);
        out.put_u16(entry.perm);
    }
    out.freeze()
}

pub fn decode_entries(mut raw: &[u8]) -> Result<Vec<AclEntry>> {
    if !raw.len().is_multiple_of(ENTRY_LEN) {
        return Err(Error::damaged(
            "ACL entries",
            format!("{} bytes, not a multiple of 6", raw.len()),
        ));
    }
    let mut entries = Vec::with_capacity(raw.len() / ENTRY_LEN);
    while !raw.is_empty() {
        entries.push(AclEntry { id: raw.get_u32(), perm: raw.get_u16() });
    }
    Ok(entries)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `u::6 u:1000:7 g::4 m::7 o::4` as the Go client stores it.
    const RAW: [u8; 22] = [0, 6, 0, 4, 0, 7, 0, 4, 0, 0, 0, 1, 0, 0, 0x03, 0xe8, 0, 7, 0, 0, 0, 0];

    pub(crate) fn named(id: u32, perm: u16) -> AclEntry {
        AclEntry { id, perm }
    }

    pub(crate) fn sample() -> AclRule {
        AclRule {
            owner: 6,
            group: 4,
            mask: 7,
            other: 4,
            users: vec![named(1000, 7)],
            groups: vec![],
        }
    }

    #[test]
    fn a_stored_rule_decodes_and_encodes() {
        assert_eq!(AclRule::decode(&RAW).unwrap(), sample());
        assert_eq!(sample().encode(), &RAW[..]);
    }

    #[test]
    fn named_entries_decode_and_encode() {
        let raw = [0, 0, 0x03, 0xe8, 0, 7, 0, 0, 0x03, 0xe9, 0, 5];
        let entries = [named(1000, 7), named(1001, 5)];
        assert_eq!(decode_entries(&raw).unwrap(), entries);
        assert_eq!(encode_entries(&entries), &raw[..]);
    }

    #[test]
    fn a_truncated_rule_is_damaged() {
        for len in 0..RAW.len() {
            assert!(AclRule::decode(&RAW[..len]).is_err(), "{len}");
        }
        assert!(decode_entries(&RAW[..5]).is_err());
        // More entries than bytes.
        assert!(AclRule::decode(&[0, 6, 0, 4, 0, 7, 0, 4, 0xff, 0xff, 0xff, 0xff]).is_err());
    }

    pub(crate) fn rules() -> impl Strategy<Value = AclRule> {
        let perm = || prop_oneof![Just(AclRule::UNSET), 0u16..8];
        let entries = || prop::collection::vec((any::<u32>(), 0u16..8), 0..4);
        (perm(), perm(), perm(), perm(), entries(), entries()).prop_map(
            |(owner, group, mask, other, users, groups)| {
                let all =
                    |of: Vec<(u32, u16)>| of.into_iter().map(|(id, p)| named(id, p)).collect();
                AclRule { owner, group, mask, other, users: all(users), groups: all(groups) }
            },
        )
    }

    proptest! {
        #[test]
        fn an_encoded_rule_decodes_to_the_same(rule in rules()) {
            prop_assert_eq!(AclRule::decode(&rule.encode()).unwrap(), rule);
        }

        #[test]
        fn any_bytes_decode_or_fail(raw: Vec<u8>) {
            let _ = AclRule::decode(&raw);
        }
    }
}
