//! Access checks by ACL rules, and how rules and mode bits are derived from each other.

use super::{AclEntry, AclRule};
use crate::meta::record::Attr;

/// The mode bits that rules do not contain: setuid, setgid, sticky.
const SPECIAL: u16 = 0o7000;

impl AclRule {
    /// Returns whether the rule has no class and no entry. Storing it removes the rule of a node.
    pub fn is_empty(&self) -> bool {
        *self == Self::empty()
    }

    /// Returns whether mode bits can express the whole rule.
    pub fn is_minimal(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.mask == Self::UNSET
    }

    /// Returns the nine permission bits of a node with this rule: the mask takes the place of the
    /// group bits.
    pub fn mode(&self) -> u16 {
        let group = if self.is_minimal() { self.group } else { self.mask };
        (self.owner & 7) << 6 | (group & 7) << 3 | self.other & 7
    }

    /// Changes the rule as chmod does. Keeps named entries and, if there is a mask, the group.
    pub fn set_mode(&mut self, mode: u16) {
        let group = if self.is_minimal() { &mut self.group } else { &mut self.mask };
        *group = mode >> 3 & 7;
        self.owner = mode >> 6 & 7;
        self.other = mode & 7;
    }

    /// Sets the classes that are unset from mode bits, except the mask.
    pub fn fill_from_mode(&mut self, mode: u16) {
        for (class, shift) in [(&mut self.owner, 6), (&mut self.group, 3), (&mut self.other, 0)] {
            if *class == Self::UNSET {
                *class = mode >> shift & 7;
            }
        }
    }

    /// Returns the mode, and the access rule if mode bits are not enough, of a node created with
    /// `mode` in a directory with this default rule. The umask is not applied.
    pub fn for_child(&self, mode: u16) -> (u16, Option<AclRule>) {
        if self.is_minimal() {
            return (mode & (SPECIAL | self.mode()), None);
        }
        let rule = Self {
            owner: mode >> 6 & 7 & self.owner,
            mask: mode >> 3 & 7 & self.mask,
            other: mode & 7 & self.other,
            ..self.clone()
        };
        (mode & SPECIAL | rule.mode(), Some(rule))
    }

    /// Returns whether a caller has all permissions in `want` (rwx bits) on a node. The first class
    /// that matches the caller decides; among groups, one that grants them is enough. Root is not
    /// treated specially.
    pub fn permits(
        &self,
        uid: u32,
        in_group: impl Fn(u32) -> bool,
        node: &Attr,
        want: u16,
    ) -> bool {
        let grants = |perm: u16| perm & want == want;
        if uid == node.uid {
            return grants(self.owner);
        }
        if let Some(user) = self.users.iter().find(|user| user.id == uid) {
            return grants(user.perm & self.mask);
        }
        let owning = AclEntry { id: node.gid, perm: self.group };
        let mut is_member = false;
        for group in std::iter::once(&owning).chain(&self.groups) {
            if in_group(group.id) {
                if grants(group.perm & self.mask) {
                    return true;
                }
                is_member = true;
            }
        }
        !is_member && grants(self.other)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{named, rules, sample};
    use super::*;
    use crate::meta::record::{FileKind, hex};
    use crate::meta::{Ino, Timestamp};

    fn rule(owner: u16, group: u16, mask: u16, other: u16) -> AclRule {
        AclRule { owner, group, mask, other, ..AclRule::empty() }
    }

    fn node() -> Attr {
        Attr::new(FileKind::File, 0, 10, 20, Ino::ROOT, Timestamp::default())
    }

    #[test]
    fn only_a_rule_without_classes_and_entries_is_empty() {
        assert!(AclRule::empty().is_empty());
        for some in [rule(0, 0, 0, 0), AclRule { mask: 7, ..AclRule::empty() }, sample()] {
            assert!(!some.is_empty(), "{some:?}");
        }
    }

    #[test]
    fn a_rule_without_mask_and_names_is_minimal() {
        assert!(rule(7, 5, AclRule::UNSET, 0).is_minimal());
        assert!(!rule(7, 5, 7, 0).is_minimal());
        assert!(!sample().is_minimal());
    }

    #[test]
    fn the_mask_shows_as_group_bits() {
        assert_eq!(sample().mode(), 0o674);
        assert_eq!(rule(7, 5, AclRule::UNSET, 0).mode(), 0o750);
    }

    #[test]
    fn chmod_changes_the_mask_or_else_the_group() {
        let mut masked = sample();
        masked.set_mode(0o4751);
        assert_eq!(masked, AclRule { owner: 7, mask: 5, other: 1, ..sample() });
        let mut minimal = rule(7, 5, AclRule::UNSET, 0);
        minimal.set_mode(0o640);
        assert_eq!(minimal, rule(6, 4, AclRule::UNSET, 0));
    }

    #[test]
    fn unset_classes_come_from_the_mode() {
        let mut partial = AclRule { mask: 7, other: 1, ..AclRule::empty() };
        partial.fill_from_mode(0o754);
        assert_eq!(partial, rule(7, 5, 7, 1));
    }

    #[test]
    fn a_minimal_default_rule_limits_the_mode_of_a_child() {
        let (mode, access) = rule(7, 5, AclRule::UNSET, 0).for_child(0o4777);
        assert_eq!((mode, access), (0o4750, None));
    }

    #[test]
    fn a_full_default_rule_becomes_the_access_rule_of_a_child() {
        let (mode, access) = sample().for_child(0o2644);
        assert_eq!(mode, 0o2644);
        assert_eq!(access, Some(AclRule { owner: 6, mask: 4, other: 4, ..sample() }));
    }

    #[test]
    fn rules_change_as_the_go_client_changes_them() {
        // What it stored for a file created with 0666 in a directory with the sample as default
        // rule, and for a file with the sample after chmod 0640.
        let child = hex("0006 0004 0006 0004 00000001 000003e8 0007 00000000");
        let changed = hex("0006 0004 0004 0000 00000001 000003e8 0007 00000000");
        let (mode, access) = sample().for_child(0o666);
        assert_eq!((mode, access.unwrap().encode().as_ref()), (0o664, child.as_slice()));
        let mut rule = sample();
        rule.set_mode(0o640);
        assert_eq!(rule.encode(), changed);
    }

    #[test]
    fn the_first_matching_class_decides() {
        let rule = AclRule {
            users: vec![named(10, 7), named(11, 6), named(12, 0)],
            groups: vec![named(21, 4), named(22, 3)],
            ..rule(4, 1, 6, 7)
        };
        let may =
            |uid, gids: &[u32], want| rule.permits(uid, |gid| gids.contains(&gid), &node(), want);
        // The owner class applies even if the owner is also a named user.
        assert!(may(10, &[], 4) && !may(10, &[], 2));
        // Named users are limited by the mask; their groups do not matter.
        assert!(may(11, &[], 6) && !may(11, &[], 1));
        assert!(!may(12, &[21], 4));
        // The mask removes x from the owning group; one group that grants everything is enough.
        assert!(!may(13, &[20], 1));
        assert!(may(13, &[20, 21], 4) && may(13, &[21, 22], 2));
        assert!(!may(13, &[21, 22], 6));
        // The other class applies only if no group matches.
        assert!(may(13, &[23], 7) && !may(13, &[20], 4));
    }

    #[test]
    fn an_empty_request_is_always_permitted() {
        assert!(rule(0, 0, 0, 0).permits(1, |_| true, &node(), 0));
    }

    proptest! {
        #[test]
        fn a_minimal_rule_permits_the_same_as_its_mode_bits(
            mode in 0u16..0o1000, uid in 9u32..12, gid in 19u32..22, want in 0u16..8
        ) {
            let mut rule = AclRule::empty();
            rule.fill_from_mode(mode);
            prop_assert!(rule.is_minimal());
            prop_assert_eq!(rule.mode(), mode);
            let shift = if uid == 10 { 6 } else if gid == 20 { 3 } else { 0 };
            let by_bits = mode >> shift & want == want;
            prop_assert_eq!(rule.permits(uid, |g| g == gid, &node(), want), by_bits);
        }

        #[test]
        fn set_mode_is_reflected_by_mode(rule in rules(), mode in 0u16..0o1000) {
            let mut changed = rule.clone();
            changed.set_mode(mode);
            prop_assert_eq!(changed.mode(), mode);
            prop_assert_eq!(changed.users, rule.users);
            prop_assert_eq!(changed.groups, rule.groups);
        }

        #[test]
        fn a_child_never_gets_more_than_it_asks_for(rule in rules(), mode in 0u16..0o10000) {
            let (got, access) = rule.for_child(mode);
            prop_assert_eq!(got & !mode, 0);
            prop_assert_eq!(got & SPECIAL, mode & SPECIAL);
            if let Some(access) = access {
                prop_assert_eq!(access.mode(), got & 0o777);
            }
        }
    }
}
