//! Keys and values against bytes that JuiceFS 1.4.1 wrote, both directions.

use bytes::Bytes;

use crate::error::Error;
use crate::meta::engine::kv::keys::StoreKey;
use crate::meta::engine::kv::values;
use crate::meta::record::{
    AclEntry, AclRule, Attr, Counter, DirStat, Entry, FileKind, Flock, LockKind, Plock, PlockRange,
    Quota, QuotaKey, Slice, SliceSize, chunk, delayed_slices,
};
use crate::meta::{Ino, LockOwner, Name, Sid, SliceId, Timestamp};

const HOUR: Ino = Ino(Ino::TRASH.0 + 1);

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex digits")
    };
    digits.chunks(2).map(byte).collect()
}

/// A key written as hex digits, with text in quotes.
fn key(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        out.extend(if index % 2 == 0 { hex(part) } else { part.as_bytes().to_vec() });
    }
    out
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

#[test]
fn keys_are_what_juicefs_writes() {
    let cases = [
        (StoreKey::Setting, "\"setting\""),
        (StoreKey::Attr(Ino::ROOT), "41 0100000000000000 49"),
        (StoreKey::Attr(Ino::TRASH), "41 00000010ffffff7f 49"),
        (StoreKey::Entry(Ino::ROOT, name("dd")), "41 0100000000000000 44 6464"),
        (
            StoreKey::Entry(Ino::TRASH, name("2026-11-16-00")),
            "41 00000010ffffff7f 44 \"2026-11-16-00\"",
        ),
        (StoreKey::Entry(HOUR, name("2-5-s")), "41 01000010ffffff7f 44 \"2-5-s\""),
        (
            StoreKey::Parent { ino: Ino(4), parent: Ino(2) },
            "41 0400000000000000 50 0200000000000000",
        ),
        (StoreKey::Chunk(Ino(3), 0), "41 0300000000000000 43 00000000"),
        (StoreKey::Chunk(Ino(3), 0x0102), "41 0300000000000000 43 00000102"),
        (StoreKey::Symlink(Ino(5)), "41 0500000000000000 53"),
        (StoreKey::Xattr(Ino(4), name("user.k")), "41 0400000000000000 58 \"user.k\""),
        (
            StoreKey::DeletedFile { ino: Ino(6), length: 300_000 },
            "44 0600000000000000 00000000000493e0",
        ),
        (StoreKey::Flocks(Ino(4)), "46 0400000000000000"),
        (StoreKey::Plocks(Ino(4)), "50 0400000000000000"),
        (StoreKey::SliceRef(SliceId(1), 300_000), "4b 0000000000000001 000493e0"),
        (
            StoreKey::Delayed { at: 0x6afa_4f39, id: SliceId(9) },
            "4c 000000006afa4f39 0000000000000009",
        ),
        (StoreKey::SessionExpire(Sid(1)), "5345 0000000000000001"),
        (StoreKey::SessionInfo(Sid(1)), "5349 0000000000000001"),
        (StoreKey::SessionHeartbeat(Sid(1)), "5348 0000000000000001"),
        (StoreKey::Sustained(Sid(1), Ino(6)), "5353 0000000000000001 0600000000000000"),
        (StoreKey::DirStat(Ino(2)), "55 0200000000000000"),
        (StoreKey::Detached(Ino(7)), "4e 0700000000000000"),
        (StoreKey::Quota(QuotaKey::Dir(Ino(2))), "5144 0200000000000000"),
        (StoreKey::Quota(QuotaKey::User(1000)), "5155 00000000000003e8"),
        (StoreKey::Quota(QuotaKey::Group(1000)), "5147 00000000000003e8"),
        (StoreKey::Acl(1), "52 00000001"),
        (StoreKey::Log { shard: None, version: 7 }, "\"XLOG\" 0000000000000007"),
        (StoreKey::Log { shard: Some(63), version: 7 }, "\"XLOG\" 3f 0000000000000007"),
    ];
    for (stored, text) in cases {
        let raw = key(text);
        assert_eq!(stored.encode(), raw, "{stored:?}");
        assert_eq!(StoreKey::decode(&raw), Some(stored));
    }
}

#[test]
fn versions_are_spread_over_shards_by_high_and_low_bits() {
    let version = (5 << 18) | 3;
    let key = |shards| StoreKey::log(shards, version).encode();
    assert_eq!(key(Some(64)), [b"XLOG\x06".as_slice(), &version.to_be_bytes()].concat());
    assert_eq!(key(None), [b"XLOG".as_slice(), &version.to_be_bytes()].concat());
}

#[test]
fn counters_are_named_as_juicefs_names_them() {
    let cases = [
        (Counter::UsedSpace, "CusedSpace"),
        (Counter::TotalInodes, "CtotalInodes"),
        (Counter::NextInode, "CnextInode"),
        (Counter::NextChunk, "CnextChunk"),
        (Counter::NextSession, "CnextSession"),
        (Counter::NextTrash, "CnextTrash"),
        (Counter::AclMaxId, "CaclMaxId"),
        (Counter::LastCleanupSessions, "ClastCleanupSessions"),
        (Counter::LastCleanupFiles, "ClastCleanupFiles"),
        (Counter::NextCleanupSlices, "CnextCleanupSlices"),
        (Counter::LastCleanupTrash, "ClastCleanupTrash"),
        (Counter::LastCleanupChangelog, "ClastCleanupChangelog"),
    ];
    for (counter, text) in cases {
        assert_eq!(StoreKey::Counter(counter).encode(), text.as_bytes());
        assert_eq!(StoreKey::decode(text.as_bytes()), Some(StoreKey::Counter(counter)));
    }
}

#[test]
fn foreign_keys_are_skipped() {
    let foreign = ["", "\"X\"", "\"XKD\" 00000001", "\"CkrbTokenMaxId\"", "55 02", "41 0100", "5a"];
    for text in foreign {
        assert_eq!(StoreKey::decode(&key(text)), None, "{text}");
    }
}

#[test]
fn counters_are_little_endian_and_election_times_big_endian() {
    let cases = [
        (Counter::NextInode, 1026, "0204000000000000"),
        (Counter::NextChunk, 4097, "0110000000000000"),
        (Counter::NextTrash, 1, "0100000000000000"),
        (Counter::UsedSpace, -4096, "00f0ffffffffffff"),
        (Counter::LastCleanupSessions, 0x6afa_4f39, "000000006afa4f39"),
        (Counter::LastCleanupFiles, 0x6afa_4f39, "000000006afa4f39"),
        (Counter::NextCleanupSlices, 0x6afa_4f39, "000000006afa4f39"),
        (Counter::LastCleanupTrash, 0x6afa_4f39, "000000006afa4f39"),
        (Counter::LastCleanupChangelog, 0x6afa_4f39, "000000006afa4f39"),
    ];
    for (counter, value, text) in cases {
        let raw = Bytes::from(hex(text));
        assert_eq!(values::encode_counter(counter, value), raw, "{counter:?}");
        assert_eq!(values::decode_counter(counter, Some(&raw)).expect("decodes"), value);
    }
}

#[test]
fn an_election_time_stored_in_the_wrong_byte_order_is_corrected() {
    let raw = Bytes::from(hex("394ffa6a00000000"));
    let time = values::decode_counter(Counter::LastCleanupTrash, Some(&raw));
    assert_eq!(time.expect("decodes"), 0x6afa_4f39);
}

#[test]
fn the_root_attr_decodes_and_encodes() {
    let raw = hex("00 21ff 00000000 00000000 000000006afa4f21 00000000 000000006afa4f27 06aefdc0
         000000006afa4f27 06aefdc0 00000003 0000000000001000 00000000 0000000000000001 00");
    let touched = Timestamp { sec: 0x6afa_4f27, nsec: 0x06ae_fdc0 };
    let mut attr =
        Attr::new(FileKind::Dir, 0o777, 0, 0, Ino::ROOT, Timestamp::from_secs(0x6afa_4f21));
    (attr.mtime, attr.ctime, attr.nlink) = (touched, touched, 3);
    assert_eq!(Attr::decode(&raw).expect("decodes"), attr);
    assert_eq!(attr.encode(), raw);
}

#[test]
fn entries_decode_and_encode() {
    let cases = [
        (FileKind::Dir, Ino(2), "02 0000000000000002"),
        (FileKind::Dir, HOUR, "02 7fffffff10000001"),
        (FileKind::Symlink, Ino(5), "03 0000000000000005"),
    ];
    for (kind, ino, text) in cases {
        let (entry, raw) = (Entry { kind, ino }, hex(text));
        assert_eq!(entry.encode().as_slice(), raw);
        assert_eq!(Entry::decode(&raw).expect("decodes"), entry);
    }
}

#[test]
fn a_chunk_decodes_and_encodes() {
    let raw = hex("00000000 0000000000000001 000493e0 00000000 000493e0");
    let slices = [Slice { pos: 0, id: SliceId(1), size: 300_000, off: 0, len: 300_000 }];
    assert_eq!(chunk::encode(&slices), raw);
    assert_eq!(chunk::decode(&raw).expect("decodes"), slices);
}

#[test]
fn parent_counts_and_references_are_little_endian() {
    let raw = Bytes::from(hex("0200000000000000"));
    assert_eq!(values::encode_number(2), raw);
    assert_eq!(values::decode_number(Some(&raw)).expect("decodes"), 2);
    assert_eq!(values::decode_number(None).expect("absent is zero"), 0);
}

#[test]
fn flocks_decode_and_encode() {
    let raw = hex("0000000000000001 e859175bd6bb0235 52");
    let lock = Flock { sid: Sid(1), owner: LockOwner(0xe859_175b_d6bb_0235), kind: LockKind::Read };
    assert_eq!(values::encode_flocks(&[lock]), raw);
    assert_eq!(values::decode_flocks(&raw).expect("decodes"), [lock]);
}

#[test]
fn plocks_decode_and_encode() {
    let raw = hex("0000000000000001 161681c0e751d451 00000018
         00000001 00002358 0000000000000005 000000000000000e");
    let range = PlockRange { kind: LockKind::Write, pid: 0x2358, start: 5, end: 14 };
    let lock = Plock { sid: Sid(1), owner: LockOwner(0x1616_81c0_e751_d451), ranges: vec![range] };
    assert_eq!(values::encode_plocks(std::slice::from_ref(&lock)), raw);
    assert_eq!(values::decode_plocks(&raw).expect("decodes"), [lock]);
}

#[test]
fn an_acl_rule_decodes_and_encodes() {
    let raw = hex("0006 0004 0007 0004 00000001 000003e8 0007 00000000");
    let rule = AclRule {
        owner: 6,
        group: 4,
        mask: 7,
        other: 4,
        users: vec![AclEntry { id: 1000, perm: 7 }],
        groups: Vec::new(),
    };
    assert_eq!(rule.encode(), raw);
    assert_eq!(AclRule::decode(&raw).expect("decodes"), rule);
}

#[test]
fn times_are_big_endian() {
    let raw = Bytes::from(hex("000000006afa4f75"));
    assert_eq!(values::encode_time(0x6afa_4f75), raw);
    assert_eq!(values::decode_time(Some(&raw)).expect("decodes"), 0x6afa_4f75);
}

#[test]
fn a_dir_stat_decodes_and_encodes() {
    let raw = hex("00000000000493e4 000000000004c000 0000000000000003");
    let stat = DirStat { length: 300_004, space: 311_296, inodes: 3 };
    assert_eq!(stat.encode().as_slice(), raw);
    assert_eq!(DirStat::decode(&raw).expect("decodes"), stat);
}

#[test]
fn a_quota_decodes_and_encodes() {
    let raw = hex("0000000040000000 ffffffffffffffff 0000000000006000 0000000000000005");
    let quota = Quota { max_space: 1 << 30, max_inodes: -1, used_space: 24_576, used_inodes: 5 };
    assert_eq!(quota.encode().as_slice(), raw);
    assert_eq!(Quota::decode(&raw).expect("decodes"), quota);
}

#[test]
fn delayed_slices_decode_and_encode() {
    let raw = hex("0000000000000005 000003e8 0000000000000006 000003e8");
    let slices = [5, 6].map(|id| SliceSize { id: SliceId(id), size: 1000 });
    assert_eq!(delayed_slices::encode(&slices), raw);
    assert_eq!(delayed_slices::decode(&raw).expect("decodes"), slices);
}

#[test]
fn a_sustained_mark_is_a_one() {
    assert_eq!(values::MARK, hex("01"));
}

#[test]
fn truncated_values_are_damaged() {
    let short = Bytes::from_static(&[1, 2, 3]);
    let damaged = [
        values::decode_number(Some(&short)).err(),
        values::decode_time(Some(&short)).err(),
        DirStat::decode(&short).err(),
        Quota::decode(&short).err(),
        values::decode_flocks(&short).err(),
        values::decode_plocks(&short).err(),
        values::decode_plocks(&hex("0000000000000001 0000000000000002 00000018 00")).err(),
    ];
    for error in damaged {
        assert!(matches!(error, Some(Error::Damaged { .. })), "{error:?}");
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_decode_to_a_key_or_to_none(head in "[A-Z]{0,2}", raw: Vec<u8>) {
        let raw = [head.as_bytes(), &raw].concat();
        if let Some(key) = StoreKey::decode(&raw) {
            assert_eq!(StoreKey::decode(&key.encode()), Some(key));
        }
        if let Ok(locks) = values::decode_flocks(&raw) {
            assert!(locks.len() <= raw.len());
        }
        if let Ok(locks) = values::decode_plocks(&raw) {
            assert!(locks.len() <= raw.len());
        }
        let raw = Bytes::from(raw);
        let _ = values::decode_number(Some(&raw));
        let _ = values::decode_time(Some(&raw));
    }
}
