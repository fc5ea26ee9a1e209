//! Replies, byte for byte as in the kernel's header.

use std::time::Duration;

use super::*;
use crate::fuse::protocol::abi;
use crate::meta::record::FileKind;
use crate::meta::{Ino, Timestamp};

const STAT: Stat = Stat {
    ino: 1,
    size: 2,
    blocks: 3,
    atime: Timestamp { sec: 4, nsec: 7 },
    mtime: Timestamp { sec: 5, nsec: 8 },
    ctime: Timestamp { sec: 6, nsec: 9 },
    mode: 10,
    nlink: 11,
    uid: 12,
    gid: 13,
    rdev: 14,
    block_size: 15,
};

fn format_of(opcode: Opcode, size: u32) -> ReplyFormat {
    ReplyFormat { opcode, size }
}

fn encoded(answer: impl ReplyBody, format: ReplyFormat) -> Result<Vec<u8>, Errno> {
    let mut head = MessageHead::empty();
    let parts = answer.encode(format, &mut head)?;
    let mut bytes = head.as_bytes().to_vec();
    match parts {
        ReplyBuffers::None => {}
        ReplyBuffers::One(part) => bytes.extend(part),
        ReplyBuffers::Many(parts) => parts.into_iter().for_each(|part| bytes.extend(part)),
    }
    Ok(bytes)
}

fn u64s(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|chunk| u64::from_ne_bytes(*chunk)).collect()
}

fn u32s(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|chunk| u32::from_ne_bytes(*chunk)).collect()
}

fn entry() -> Entry {
    Entry {
        ino: Ino(1),
        generation: 20,
        stat: STAT,
        entry_lifetime: Duration::new(21, 23),
        attr_lifetime: Duration::new(22, 24),
    }
}

#[test]
fn attributes_have_their_layout() {
    let attributes = Attributes { stat: STAT, lifetime: Duration::new(30, 31) };
    let bytes = encoded(attributes, format_of(Opcode::Getattr, 0)).unwrap();
    assert_eq!(bytes.len(), 16 + abi::ATTR);
    assert_eq!(u64s(&bytes[..8]), [30]);
    assert_eq!(u32s(&bytes[8..16]), [31, 0]);
    assert_eq!(u64s(&bytes[16..64]), [1, 2, 3, 4, 5, 6]);
    assert_eq!(u32s(&bytes[64..]), [7, 8, 9, 10, 11, 12, 13, 14, 15, 0]);
}

#[test]
fn an_entry_has_its_layout() {
    let bytes = encoded(entry(), format_of(Opcode::Lookup, 0)).unwrap();
    assert_eq!(bytes.len(), abi::ENTRY_OUT);
    assert_eq!(u64s(&bytes[..32]), [1, 20, 21, 22]);
    assert_eq!(u32s(&bytes[32..40]), [23, 24]);
    assert_eq!(u64s(&bytes[40..88]), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_created_file_is_an_entry_and_a_handle() {
    let opened = OpenReply { flags: FopenFlags::FOPEN_KEEP_CACHE, ..OpenReply::new(Fh(40)) };
    let bytes =
        encoded(CreateReply { entry: entry(), opened }, format_of(Opcode::Create, 0)).unwrap();
    assert_eq!(bytes.len(), abi::ENTRY_OUT + 16);
    assert_eq!(u64s(&bytes[abi::ENTRY_OUT..][..8]), [40]);
    assert_eq!(u32s(&bytes[abi::ENTRY_OUT + 8..]), [2, 0]);
}

#[test]
fn statx_has_its_full_length_and_splits_the_device_number() {
    let stat = Stat { rdev: 0x0451_23EF, ..STAT };
    let btime = Timestamp { sec: 50, nsec: 51 };
    let statx = Statx { stat, mask: 0xFFF, btime, lifetime: Duration::from_secs(1) };
    let bytes = encoded(statx, format_of(Opcode::Statx, 0)).unwrap();
    assert_eq!(bytes.len(), 288);
    assert_eq!(u32s(&bytes[32..40]), [0xFFF, 15]);
    assert_eq!(u32s(&bytes[48..60]), [11, 12, 13]);
    assert_eq!(bytes[60..62], 10_u16.to_ne_bytes());
    assert_eq!(u64s(&bytes[64..88]), [1, 2, 3]);
    assert_eq!(u64s(&bytes[112..120]), [50]);
    assert_eq!(u32s(&bytes[160..168]), [0x123, 0x45EF]);
}

#[test]
fn a_listing_takes_what_fits_and_pads_it() {
    let mut listing = Listing::new(100);
    assert!(listing.is_empty());
    assert!(listing.push(Ino(5), 1, FileKind::File, b"abc"));
    assert!(listing.push(Ino(6), 2, FileKind::Dir, b"12345678"));
    assert!(listing.push(Ino(7), 3, FileKind::Dir, b"x"));
    assert!(!listing.push(Ino(8), 4, FileKind::Dir, b"y"));
    let bytes = encoded(listing, format_of(Opcode::Readdir, 100)).unwrap();
    assert_eq!(bytes.len(), 32 + 32 + 32);
    assert_eq!(u64s(&bytes[..16]), [5, 1]);
    assert_eq!(u32s(&bytes[16..24]), [3, 8]);
    assert_eq!(&bytes[24..32], b"abc\0\0\0\0\0");
    assert_eq!(u32s(&bytes[48..56]), [8, 4]);
    assert_eq!(&bytes[56..64], b"12345678");
}

#[test]
fn a_listing_with_attributes_has_an_entry_before_each_name() {
    let mut listing = ListingPlus::new(4096);
    assert!(listing.push_name(Ino(1), 1, FileKind::Dir, b"."));
    assert!(listing.push(&entry(), 2, FileKind::File, b"f"));
    let bytes = encoded(listing, format_of(Opcode::Readdirplus, 4096)).unwrap();
    let each = abi::ENTRY_OUT + 32;
    assert_eq!(bytes.len(), 2 * each);
    // An entry without attributes counts as no lookup.
    assert_eq!(u64s(&bytes[..8]), [0]);
    assert_eq!(u64s(&bytes[abi::ENTRY_OUT..][..16]), [1, 1]);
    assert_eq!(u64s(&bytes[each..][..8]), [1]);
    assert_eq!(u64s(&bytes[each + abi::ENTRY_OUT..][..16]), [1, 2]);
}

#[test]
fn a_getxattr_returns_size_or_value_or_erange() {
    let value = || Xattr("value".into());
    assert_eq!(u32s(&encoded(value(), format_of(Opcode::Getxattr, 0)).unwrap()), [5, 0]);
    assert_eq!(encoded(value(), format_of(Opcode::Getxattr, 5)).unwrap(), b"value");
    assert_eq!(encoded(value(), format_of(Opcode::Getxattr, 4)), Err(Errno::ERANGE));
}

#[test]
fn a_read_reply_is_never_longer_than_asked_for() {
    let content = || ReadReply(vec!["ab".into(), "cd".into()]);
    assert_eq!(encoded(content(), format_of(Opcode::Read, 4)).unwrap(), b"abcd");
    assert_eq!(encoded(content(), format_of(Opcode::Read, 3)), Err(Errno::EIO));
}

#[test]
fn a_copy_is_reported_in_the_width_of_the_request() {
    let wide = encoded(CopiedBytes(1 << 40), format_of(Opcode::CopyFileRange64, 0)).unwrap();
    assert_eq!(u64s(&wide), [1 << 40]);
    let narrow = encoded(CopiedBytes(1000), format_of(Opcode::CopyFileRange, 0)).unwrap();
    assert_eq!(u32s(&narrow), [1000, 0]);
}

#[test]
fn statfs_and_locks_have_their_layout() {
    let space = StatfsReply {
        block_size: 1,
        blocks: 2,
        blocks_free: 3,
        blocks_available: 4,
        files: 5,
        files_free: 6,
        name_max: 255,
    };
    let bytes = encoded(space, format_of(Opcode::Statfs, 0)).unwrap();
    assert_eq!(bytes.len(), 80);
    assert_eq!(u64s(&bytes[..40]), [2, 3, 4, 5, 6]);
    assert_eq!(u32s(&bytes[40..52]), [1, 255, 1]);
    let held = LockConflict { start: 1, end: 2, kind: None, pid: 3 };
    let bytes = encoded(held, format_of(Opcode::Getlk, 0)).unwrap();
    assert_eq!(u64s(&bytes[..16]), [1, 2]);
    assert_eq!(u32s(&bytes[16..]), [2, 3]);
}

#[test]
fn an_ioctl_returns_no_more_than_there_is_room_for() {
    let done = |output: &'static str| IoctlReply { result: -1, output: output.into() };
    let bytes = encoded(done("abcd"), format_of(Opcode::Ioctl, 4)).unwrap();
    assert_eq!(u32s(&bytes[..16]), [u32::MAX, 0, 0, 0]);
    assert_eq!(&bytes[16..], b"abcd");
    assert_eq!(encoded(done("abcd"), format_of(Opcode::Ioctl, 3)), Err(Errno::EINVAL));
}
