use proptest::prelude::*;

use super::super::hex;
use super::*;

/// Bytes that the Go client stored, and the attrs that they encode.
fn golden() -> [(&'static str, Attr); 8] {
    let time = |sec, nsec| Timestamp { sec, nsec };
    let second = 0x6afa_7dc7;
    let node =
        |kind, mode, parent, at: u32| Attr::new(kind, mode, 0, 0, Ino(parent), time(second, at));
    [
        (
            // The root.
            "00 21ff 00000000 00000000 000000006afa4f21 00000000 000000006afa4f27 06aefdc0
             000000006afa4f27 06aefdc0 00000003 0000000000001000 00000000 0000000000000001 00",
            Attr {
                atime: time(0x6afa_4f21, 0),
                mtime: time(0x6afa_4f27, 0x06ae_fdc0),
                ctime: time(0x6afa_4f27, 0x06ae_fdc0),
                nlink: 3,
                ..node(FileKind::Dir, 0o777, 1, 0)
            },
        ),
        (
            // The trash.
            "00 216d 00000000 00000000 000000006afa7dc4 00000000 000000006afa7dc4 00000000
             000000006afa7dc4 00000000 00000002 0000000000001000 00000000 0000000000000001 00",
            Attr::new(FileKind::Dir, 0o555, 0, 0, Ino::ROOT, time(0x6afa_7dc4, 0)),
        ),
        (
            // An access ACL.
            "00 11bc 00000000 00000000 000000006afa7dc7 16a850a8 000000006afa7dc7 16bc72c1
             000000006afa7dc8 076005de 00000001 0000000000000003 00000000 0000000000000001
             00000001 00000000 00",
            Attr {
                mtime: time(second, 0x16bc_72c1),
                ctime: time(second + 1, 0x0760_05de),
                length: 3,
                access_acl: 1,
                ..node(FileKind::File, 0o674, 1, 0x16a8_50a8)
            },
        ),
        (
            // An access ACL and a tier.
            "00 11bc 00000000 00000000 000000006afa7dc7 16a850a8 000000006afa7dc7 16bc72c1
             000000006afa7dcf 13e02d40 00000001 0000000000000003 00000000 0000000000000001
             00000001 00000000 01 00",
            Attr {
                mtime: time(second, 0x16bc_72c1),
                ctime: time(second + 8, 0x13e0_2d40),
                length: 3,
                access_acl: 1,
                tier: 1,
                ..node(FileKind::File, 0o674, 1, 0x16a8_50a8)
            },
        ),
        (
            // A default ACL and a tier.
            "00 21ed 00000000 00000000 000000006afa7dc7 17b2019d 000000006afa7dc7 17b2019d
             000000006afa7dcf 07fe9db7 00000002 0000000000001000 00000000 0000000000000001
             00000000 00000001 01 00",
            Attr {
                ctime: time(second + 8, 0x07fe_9db7),
                default_acl: 1,
                tier: 1,
                ..node(FileKind::Dir, 0o755, 1, 0x17b2_019d)
            },
        ),
        (
            // A tier.
            "00 11a4 00000000 00000000 000000006afa7dc7 186ebc7f 000000006afa7dc7 187fb763
             000000006afa7dcf 07fbfb19 00000001 0000000000000002 00000000 0000000000000003 01 00",
            Attr {
                mtime: time(second, 0x187f_b763),
                ctime: time(second + 8, 0x07fb_fb19),
                length: 2,
                tier: 1,
                ..node(FileKind::File, 0o644, 3, 0x186e_bc7f)
            },
        ),
        (
            // A flag: immutable.
            "01 11a4 00000000 00000000 000000006afa7dc7 21435387 000000006afa7dc7 21435387
             000000006afa7dc7 24c4c115 00000001 0000000000000000 00000000 0000000000000001 00",
            Attr {
                flags: flag::IMMUTABLE,
                ctime: time(second, 0x24c4_c115),
                ..node(FileKind::File, 0o644, 1, 0x2143_5387)
            },
        ),
        (
            // A device.
            "00 61a4 00000000 00000000 000000006afa7dc7 22856656 000000006afa7dc7 22856656
             000000006afa7dc7 22856656 00000001 0000000000000000 00000507 0000000000000001 00",
            Attr { rdev: 0x507, ..node(FileKind::CharDevice, 0o644, 1, 0x2285_6656) },
        ),
    ]
}

#[test]
fn stored_attrs_decode_and_encode() {
    for (raw, attr) in golden() {
        assert_eq!(Attr::decode(&hex(raw)).unwrap(), attr);
        assert_eq!(attr.encode(), hex(raw));
    }
}

#[test]
fn very_old_attrs_have_no_parent() {
    let (raw, attr) = &golden()[1];
    for len in [63, 64] {
        let old = Attr::decode(&hex(raw)[..len]).unwrap();
        assert_eq!(old, Attr { parent: Ino::NONE, ..attr.clone() });
    }
    // Without the pad byte.
    assert_eq!(Attr::decode(&hex(raw)[..71]).unwrap(), *attr);
}

#[test]
fn damaged_attrs_are_errors() {
    let raw = hex(golden()[0].0);
    assert!(Attr::decode(&raw[..62]).is_err());
    for kind in [0x0, 0x8, 0xf] {
        let mut raw = raw.clone();
        raw[1] = kind << 4;
        assert!(Attr::decode(&raw).is_err());
    }
}

#[test]
fn unknown_flags_are_kept() {
    let mut raw = hex(golden()[0].0);
    raw[0] = 0xff;
    assert_eq!(Attr::decode(&raw).unwrap().encode(), raw);
}

#[test]
fn usage_counts_whole_pages_and_at_least_one() {
    for (length, space) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192), (300_000, 303_104)] {
        assert_eq!(align4k(length), space);
    }
    assert_eq!(align4k(u64::MAX), i64::MAX);
    let dir = &golden()[0].1;
    assert_eq!(dir.space(), 4096);
    assert_eq!(Attr { kind: FileKind::File, length: 4097, ..dir.clone() }.space(), 8192);
}

prop_compose! {
    fn attrs()(
        kind in 1u8..8,
        flags: u8,
        mode in 0u16..0o10000,
        owner: (u32, u32),
        times: [(i64, u32); 3],
        links: (u32, u64, u32, u64),
        acl: (u32, u32),
        tier: u8,
    ) -> Attr {
        let [atime, mtime, ctime] = times.map(|(sec, nsec)| Timestamp { sec, nsec });
        Attr {
            flags, mode, atime, mtime, ctime, tier,
            kind: FileKind::from_u8(kind).unwrap(),
            uid: owner.0,
            gid: owner.1,
            nlink: links.0,
            length: links.1,
            rdev: links.2,
            parent: Ino(links.3),
            access_acl: acl.0,
            default_acl: acl.1,
        }
    }
}

proptest! {
    #[test]
    fn an_encoded_attr_decodes_to_the_same(attr in attrs(), has_acl: bool, has_tier: bool) {
        let mut attr = attr;
        if !has_acl {
            (attr.access_acl, attr.default_acl) = (0, 0);
        }
        if !has_tier {
            attr.tier = 0;
        }
        let raw = attr.encode();
        prop_assert!([72, 73, 80, 81].contains(&raw.len()));
        prop_assert_eq!(raw.last(), Some(&0));
        prop_assert_eq!(Attr::decode(&raw).unwrap(), attr);
    }

    #[test]
    fn any_bytes_decode_or_fail(raw in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Attr::decode(&raw);
    }
}
