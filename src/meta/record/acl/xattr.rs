//! ACL rules in the form of Linux's `system.posix_acl_*` attributes: a version, then one 8-byte
//! entry per class or name, all little-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{AclEntry, AclKind, AclRule};
use crate::error::{Error, Result};

const VERSION: u32 = 2;
const ENTRY_LEN: usize = 8;
/// The id of entries without a name.
const NO_ID: u32 = u32::MAX;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

impl AclKind {
    pub fn xattr_name(self) -> &'static str {
        match self {
            Self::Access => "system.posix_acl_access",
            Self::Default => "system.posix_acl_default",
        }
    }

    /// Returns which rule an attribute holds, if any.
    pub fn from_xattr_name(name: &[u8]) -> Option<Self> {
        [Self::Access, Self::Default].into_iter().find(|kind| kind.xattr_name().as_bytes() == name)
    }
}

impl AclRule {
    /// Encodes the rule as the value of the attribute.
    pub fn to_xattr(&self) -> Bytes {
        let entries = 4 + self.users.len() + self.groups.len();
        let mut out = BytesMut::with_capacity(4 + entries * ENTRY_LEN);
        out.put_u32_le(VERSION);
        let mut put = |tag, perm, id| {
            out.put_u16_le(tag);
            out.put_u16_le(perm);
            out.put_u32_le(id);
        };
        put(OWNER, self.owner, NO_ID);
        self.users.iter().for_each(|user| put(USER, user.perm, user.id));
        put(GROUP, self.group, NO_ID);
        self.groups.iter().for_each(|group| put(NAMED_GROUP, group.perm, group.id));
        if self.mask != Self::UNSET {
            put(MASK, self.mask, NO_ID);
        }
        put(OTHER, self.other, NO_ID);
        out.freeze()
    }

    /// Decodes the value of the attribute. Values that the kernel would not accept are invalid.
    /// Classes may be missing; without any, the rule is empty.
    pub fn from_xattr(mut raw: &[u8]) -> Result<Self> {
        if raw.len() % ENTRY_LEN != 4 || raw.get_u32_le() != VERSION {
            return Err(Error::Invalid);
        }
        let mut rule = Self::empty();
        while !raw.is_empty() {
            let (tag, perm, id) = (raw.get_u16_le(), raw.get_u16_le(), raw.get_u32_le());
            if perm > 7 {
                return Err(Error::Invalid);
            }
            let class = match tag {
                OWNER => &mut rule.owner,
                GROUP => &mut rule.group,
                MASK => &mut rule.mask,
                OTHER => &mut rule.other,
                USER => {
                    rule.users.push(AclEntry { id, perm });
                    continue;
                }
                NAMED_GROUP => {
                    rule.groups.push(AclEntry { id, perm });
                    continue;
                }
                _ => return Err(Error::Invalid),
            };
            if *class != Self::UNSET {
                return Err(Error::Invalid);
            }
            *class = perm;
        }
        let has_names = !rule.users.is_empty() || !rule.groups.is_empty();
        if has_names && rule.mask == Self::UNSET {
            return Err(Error::Invalid);
        }
        Ok(rule)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{rules, sample};
    use super::*;

    /// `u::6 u:1000:7 g::4 m::7 o::4` as `getfattr` shows it.
    const RAW: [u8; 44] = [
        2, 0, 0, 0, //
        1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, //
        2, 0, 7, 0, 0xe8, 0x03, 0, 0, //
        4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, //
        0x10, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, //
        0x20, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
    ];

    #[test]
    fn a_rule_encodes_and_decodes_as_an_attribute() {
        assert_eq!(sample().to_xattr(), &RAW[..]);
        assert_eq!(AclRule::from_xattr(&RAW).unwrap(), sample());
    }

    #[test]
    fn a_rule_without_mask_has_no_mask_entry() {
        let minimal = AclRule { owner: 7, group: 5, other: 0, ..AclRule::empty() };
        let raw = minimal.to_xattr();
        assert_eq!(raw.len(), 4 + 3 * 8);
        assert_eq!(AclRule::from_xattr(&raw).unwrap(), minimal);
    }

    #[test]
    fn a_value_without_entries_is_the_empty_rule() {
        assert!(AclRule::from_xattr(&[2, 0, 0, 0]).unwrap().is_empty());
    }

    #[test]
    fn values_that_the_kernel_rejects_are_invalid() {
        let entry = |tag: u8, perm: u8| [tag, 0, perm, 0, 1, 0, 0, 0];
        let with = |entries: &[[u8; 8]]| [&[2, 0, 0, 0], entries.concat().as_slice()].concat();
        for raw in [
            vec![],
            vec![1, 0, 0, 0],
            vec![2, 0, 0, 0, 1],
            RAW[..40].to_vec(),
            with(&[entry(1, 6), entry(1, 6)]),
            with(&[entry(0x40, 6)]),
            with(&[entry(1, 8)]),
            with(&[entry(2, 7)]),
            with(&[entry(8, 7)]),
        ] {
            assert!(matches!(AclRule::from_xattr(&raw), Err(Error::Invalid)), "{raw:?}");
        }
    }

    #[test]
    fn attribute_names_identify_the_kind() {
        for kind in [AclKind::Access, AclKind::Default] {
            assert_eq!(AclKind::from_xattr_name(kind.xattr_name().as_bytes()), Some(kind));
        }
        assert_eq!(AclKind::from_xattr_name(b"user.posix_acl_access"), None);
    }

    proptest! {
        #[test]
        fn an_encoded_rule_decodes_to_the_same(rule in rules(), mode in 0u16..0o1000) {
            let mut rule = rule;
            rule.fill_from_mode(mode);
            rule.mask = rule.mode() >> 3 & 7;
            prop_assert_eq!(AclRule::from_xattr(&rule.to_xattr()).unwrap(), rule);
        }

        #[test]
        fn any_bytes_decode_or_fail(raw: Vec<u8>) {
            let _ = AclRule::from_xattr(&raw);
        }
    }
}
