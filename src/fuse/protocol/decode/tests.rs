//! Golden bytes of every operation, as in the kernel's header, and random bytes.

use proptest::prelude::*;

use super::*;
use crate::meta::Timestamp;
use crate::meta::record::LockKind;

/// A body, built field by field.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn u32(mut self, values: &[u32]) -> Self {
        self.0.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
        self
    }

    fn u64(mut self, values: &[u64]) -> Self {
        self.0.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

fn body() -> Body {
    Body::default()
}

#[track_caller]
fn check(opcode: Opcode, body: &Body, expected: &Operation<'_>) {
    let found = Operation::decode(opcode, &body.0, InitFlags::FUSE_SETXATTR_EXT);
    assert_eq!(found.as_ref(), Ok(expected));
    // No fixed field may be missing.
    if !body.0.is_empty() {
        let short = Operation::decode(opcode, &body.0[..1], InitFlags::FUSE_SETXATTR_EXT);
        assert_eq!(short, Err(Malformed), "{opcode:?} of one byte");
    }
}

#[test]
fn requests_without_arguments() {
    check(Opcode::Destroy, &body(), &Operation::Destroy);
    check(Opcode::Readlink, &body(), &Operation::Readlink);
    check(Opcode::Statfs, &body(), &Operation::Statfs);
    check(Opcode::NotifyReply, &body(), &Operation::NotifyReply);
    assert_eq!(
        Operation::decode(Opcode::Syncfs, &[0; 8], InitFlags::empty()),
        Ok(Operation::Syncfs)
    );
}

#[test]
fn init_with_and_without_the_second_flag_word() {
    let old = body().u32(&[7, 28, 4096, 0x0000_0005]);
    let offer = InitOffer { major: 7, minor: 28, max_readahead: 4096, flags: 5 };
    check(Opcode::Init, &old, &Operation::Init(offer));
    let new = body().u32(&[7, 45, 4096, 0x4000_0001, 0x80]).raw(&[0; 44]);
    let offer = InitOffer { major: 7, minor: 45, max_readahead: 4096, flags: 0x80_4000_0001 };
    check(Opcode::Init, &new, &Operation::Init(offer));
}

#[test]
fn interrupt_and_forget() {
    check(Opcode::Interrupt, &body().u64(&[6]), &Operation::Interrupt { unique: 6 });
    check(Opcode::Forget, &body().u64(&[3]), &Operation::Forget { lookups: 3 });
    let batch = body().u32(&[2, 0]).u64(&[10, 1, 11, 5]);
    let found = Operation::decode(Opcode::BatchForget, &batch.0, InitFlags::empty());
    let Ok(Operation::BatchForget(forgets)) = found else { panic!("{found:?}") };
    assert_eq!(forgets.iter().collect::<Vec<_>>(), [(Ino(10), 1), (Ino(11), 5)]);
    let lying = body().u32(&[3, 0]).u64(&[10, 1, 11, 5]);
    let found = Operation::decode(Opcode::BatchForget, &lying.0, InitFlags::empty());
    assert_eq!(found, Err(Malformed));
}

#[test]
fn names() {
    let name = b"name".as_slice();
    check(Opcode::Lookup, &body().raw(b"name\0"), &Operation::Lookup { name });
    check(Opcode::Unlink, &body().raw(b"name\0"), &Operation::Unlink { name });
    check(Opcode::Rmdir, &body().raw(b"name\0"), &Operation::Rmdir { name });
    check(Opcode::Removexattr, &body().raw(b"name\0"), &Operation::Removexattr { name });
    let symlink = Operation::Symlink { name, target: b"to" };
    check(Opcode::Symlink, &body().raw(b"name\0to\0"), &symlink);
    let mkdir = Operation::Mkdir { name, mode: 0o755, umask: 0o22 };
    check(Opcode::Mkdir, &body().u32(&[0o755, 0o22]).raw(b"name\0"), &mkdir);
    let mknod = Mknod { name, mode: 0o10644, rdev: 9, umask: 0o22 };
    let bytes = body().u32(&[0o10644, 9, 0o22, 0]).raw(b"name\0");
    check(Opcode::Mknod, &bytes, &Operation::Mknod(mknod));
    let link = Operation::Link { node: Ino(12), name };
    check(Opcode::Link, &body().u64(&[12]).raw(b"name\0"), &link);
}

#[test]
fn both_forms_of_rename() {
    let rename = Rename { name: b"a", new_dir: Ino(9), new_name: b"b", flags: 0 };
    check(Opcode::Rename, &body().u64(&[9]).raw(b"a\0b\0"), &Operation::Rename(rename));
    let bytes = body().u64(&[9]).u32(&[2, 0]).raw(b"a\0b\0");
    check(Opcode::Rename2, &bytes, &Operation::Rename(Rename { flags: 2, ..rename }));
}

#[test]
fn attributes() {
    check(Opcode::Getattr, &body().u32(&[0, 0]).u64(&[5]), &Operation::Getattr { fh: None });
    let with_handle = Operation::Getattr { fh: Some(Fh(5)) };
    check(Opcode::Getattr, &body().u32(&[1, 0]).u64(&[5]), &with_handle);
    let ask = StatxRequest { fh: None, flags: 0x100, mask: 0xFFF };
    let bytes = body().u32(&[0, 0]).u64(&[5]).u32(&[0x100, 0xFFF]);
    check(Opcode::Statx, &bytes, &Operation::Statx(ask));
    check(Opcode::Access, &body().u32(&[4, 0]), &Operation::Access { mask: 4 });
}

fn setattr(valid: u32) -> Body {
    // fh, size, owner, times, nanoseconds, mode, unused, uid, gid, unused
    let front = body().u32(&[valid, 0]).u64(&[5, 1000, 77, 1, u64::MAX, 3]);
    front.u32(&[10, 20, 30, 0o644, 0, 12, 34, 0])
}

#[test]
fn only_the_valid_fields_of_a_setattr_are_decoded() {
    check(Opcode::Setattr, &setattr(0), &Operation::Setattr(SetAttr::default()));
    let at = |sec, nsec| Timestamp { sec, nsec };
    let all = SetAttr {
        mode: Some(0o644),
        uid: Some(12),
        gid: Some(34),
        size: Some(1000),
        atime: Some(SetTime::At(at(1, 10))),
        mtime: Some(SetTime::At(at(-1, 20))),
        ctime: Some(at(3, 30)),
        fh: Some(Fh(5)),
        lock_owner: Some(77),
        kill_suidgid: true,
    };
    check(Opcode::Setattr, &setattr(0b1110_0111_1111), &Operation::Setattr(all));
    let now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..all };
    check(Opcode::Setattr, &setattr(0b1111_1111_1111), &Operation::Setattr(now));
}

#[test]
fn opening_and_closing() {
    let open = Open { flags: 0x8002, kill_suidgid: true };
    check(Opcode::Open, &body().u32(&[0x8002, 1]), &Operation::Open(open));
    check(Opcode::Opendir, &body().u32(&[0x8002, 1]), &Operation::Opendir(open));
    let create =
        Create { name: b"n", flags: 0x41, mode: 0o100_644, umask: 0o22, kill_suidgid: false };
    let bytes = body().u32(&[0x41, 0o100_644, 0o22, 0]).raw(b"n\0");
    check(Opcode::Create, &bytes, &Operation::Create(create));
    check(Opcode::Tmpfile, &bytes, &Operation::Tmpfile(create));
    let release = Release { fh: Fh(5), flags: 2, lock_owner: 9, flush: true, flock_unlock: false };
    let bytes = body().u64(&[5]).u32(&[2, 1]).u64(&[9]);
    check(Opcode::Release, &bytes, &Operation::Release(release));
    let release = Release { flush: false, flock_unlock: true, ..release };
    let bytes = body().u64(&[5]).u32(&[2, 2]).u64(&[9]);
    check(Opcode::Releasedir, &bytes, &Operation::Releasedir(release));
    let flush = Operation::Flush { fh: Fh(5), lock_owner: 9 };
    check(Opcode::Flush, &body().u64(&[5]).u32(&[0, 0]).u64(&[9]), &flush);
    let fsync = Operation::Fsync { fh: Fh(5), data_only: true };
    check(Opcode::Fsync, &body().u64(&[5]).u32(&[1, 0]), &fsync);
    let fsyncdir = Operation::Fsyncdir { fh: Fh(5), data_only: false };
    check(Opcode::Fsyncdir, &body().u64(&[5]).u32(&[0, 0]), &fsyncdir);
}

fn io(flags: u32) -> Body {
    body().u64(&[5, 4096]).u32(&[3, flags]).u64(&[77]).u32(&[0x8000, 0])
}

#[test]
fn reading() {
    let read = Read { fh: Fh(5), offset: 4096, size: 3, lock_owner: None, flags: 0x8000 };
    check(Opcode::Read, &io(0), &Operation::Read(read));
    let owned = Read { lock_owner: Some(77), ..read };
    check(Opcode::Read, &io(2), &Operation::Read(owned));
    let list = ReadDir { fh: Fh(5), offset: 4096, size: 3 };
    check(Opcode::Readdir, &io(0), &Operation::Readdir(list));
    check(Opcode::Readdirplus, &io(0), &Operation::Readdirplus(list));
}

#[test]
fn a_write_has_exactly_as_much_data_as_its_size() {
    let write = Write {
        fh: Fh(5),
        offset: 4096,
        size: 3,
        lock_owner: Some(77),
        flags: 0x8000,
        from_cache: true,
        kill_suidgid: true,
    };
    check(Opcode::Write, &io(7).raw(b"abc"), &Operation::Write(write));
    for data in [b"ab".as_slice(), b"abcd"] {
        let lying = io(0).raw(data);
        let found = Operation::decode(Opcode::Write, &lying.0, InitFlags::empty());
        assert_eq!(found, Err(Malformed));
    }
}

#[test]
fn extended_attributes_in_both_layouts() {
    let set = SetXattr { name: b"user.a", value: b"xyz", flags: 1, kill_sgid: true };
    let extended = body().u32(&[3, 1, 1, 0]).raw(b"user.a\0xyz");
    check(Opcode::Setxattr, &extended, &Operation::Setxattr(set));
    let old = body().u32(&[3, 1]).raw(b"user.a\0xyz");
    let found = Operation::decode(Opcode::Setxattr, &old.0, InitFlags::empty());
    assert_eq!(found, Ok(Operation::Setxattr(SetXattr { kill_sgid: false, ..set })));
    let lying = body().u32(&[4, 1]).raw(b"user.a\0xyz");
    let found = Operation::decode(Opcode::Setxattr, &lying.0, InitFlags::empty());
    assert_eq!(found, Err(Malformed));
    let get = Operation::Getxattr { name: b"user.a", size: 100 };
    check(Opcode::Getxattr, &body().u32(&[100, 0]).raw(b"user.a\0"), &get);
    check(Opcode::Listxattr, &body().u32(&[100, 0]), &Operation::Listxattr { size: 100 });
}

#[test]
fn locks_keep_their_owner_and_their_kind() {
    let bytes = |kind, flags| body().u64(&[5, 77, 10, 19]).u32(&[kind, 123, flags, 0]);
    let lock = Lock {
        fh: Fh(5),
        owner: 77,
        start: 10,
        end: 19,
        kind: Some(LockKind::Read),
        pid: 123,
        flock: false,
    };
    check(Opcode::Getlk, &bytes(0, 0), &Operation::Getlk(lock));
    let write = Lock { kind: Some(LockKind::Write), ..lock };
    check(Opcode::Setlk, &bytes(1, 0), &Operation::Setlk(write));
    let unlock = Lock { kind: None, flock: true, ..lock };
    check(Opcode::Setlkw, &bytes(2, 1), &Operation::Setlkw(unlock));
    let unknown = bytes(3, 0);
    let found = Operation::decode(Opcode::Setlk, &unknown.0, InitFlags::empty());
    assert_eq!(found, Err(Malformed));
}

#[test]
fn ranges() {
    let allocate = Allocate { fh: Fh(5), offset: 10, length: 20, mode: 3 };
    let bytes = body().u64(&[5, 10, 20]).u32(&[3, 0]);
    check(Opcode::Fallocate, &bytes, &Operation::Fallocate(allocate));
    let lseek = Operation::Lseek { fh: Fh(5), offset: 10, whence: 4 };
    check(Opcode::Lseek, &body().u64(&[5, 10]).u32(&[4, 0]), &lseek);
    let copy = CopyRange {
        fh: Fh(5),
        offset: 10,
        to: Ino(8),
        to_fh: Fh(6),
        to_offset: 20,
        length: 1 << 40,
        flags: 0,
    };
    let bytes = body().u64(&[5, 10, 8, 6, 20, 1 << 40, 0]);
    check(Opcode::CopyFileRange, &bytes, &Operation::CopyFileRange(copy));
    check(Opcode::CopyFileRange64, &bytes, &Operation::CopyFileRange(copy));
    let bmap = Operation::Bmap { block: 3, block_size: 512 };
    check(Opcode::Bmap, &body().u64(&[3]).u32(&[512, 0]), &bmap);
}

#[test]
fn ioctl_and_poll() {
    let ioctl = Ioctl {
        fh: Fh(5),
        flags: 16,
        command: 0x4008_6602,
        argument: 0xdead_beef,
        input: b"in",
        output_size: 8,
    };
    let front = body().u64(&[5]).u32(&[16, 0x4008_6602]).u64(&[0xdead_beef]);
    check(Opcode::Ioctl, &front.u32(&[2, 8]).raw(b"in"), &Operation::Ioctl(ioctl));
    let poll = Poll { fh: Fh(5), handle: 6, flags: 1, events: 4 };
    check(Opcode::Poll, &body().u64(&[5, 6]).u32(&[1, 4]), &Operation::Poll(poll));
}

fn message(length: u32, opcode: u32, extensions: u16, rest: &[u8]) -> Vec<u8> {
    let front = body().u32(&[length, opcode]).u64(&[abi::RESENT + 42, 9]).u32(&[1, 2, 3]);
    front.raw(&extensions.to_ne_bytes()).raw(&[0; 2]).raw(rest).0
}

#[test]
fn a_header_has_the_caller() {
    let message = message(45, 1, 0, b"name\0");
    let header = Header::decode(&message).unwrap();
    assert_eq!(header.opcode, 1);
    let request = header.request;
    assert_eq!((request.ino, request.uid, request.gid, request.pid), (Ino(9), 1, 2, 3));
    assert!(request.is_resent());
    assert_eq!(header.body(&message), Ok(b"name\0".as_slice()));
}

#[test]
fn extensions_are_not_part_of_the_body() {
    let message = message(53, 1, 1, b"name\0extended");
    let header = Header::decode(&message).unwrap();
    assert_eq!(header.body(&message), Ok(b"name\0".as_slice()));
}

#[test]
fn a_header_with_inconsistent_lengths_is_malformed() {
    for (length, extensions) in [(44, 0), (46, 0), (45, 1), (45, u16::MAX)] {
        let message = message(length, 1, extensions, b"name\0");
        assert_eq!(Header::decode(&message), Err(Malformed), "{length} {extensions}");
    }
    assert_eq!(Header::decode(&[0; 39]), Err(Malformed));
    assert_eq!(Header::decode(&[]), Err(Malformed));
}

proptest! {
    #[test]
    fn random_bytes_never_panic_the_decoder(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        extended in any::<bool>(),
    ) {
        let mut agreed = InitFlags::empty();
        agreed.set(InitFlags::FUSE_SETXATTR_EXT, extended);
        for opcode in Opcode::ALL {
            if let Ok(Operation::BatchForget(forgets)) = Operation::decode(*opcode, &bytes, agreed) {
                prop_assert!(forgets.iter().count() <= bytes.len() / 16);
            }
        }
    }

    #[test]
    fn a_random_message_is_rejected_or_has_a_body_within_it(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        true_length in any::<bool>(),
    ) {
        if true_length && bytes.len() >= 4 {
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
        }
        if let Ok(header) = Header::decode(&bytes) {
            prop_assert!(header.body(&bytes).unwrap().len() + abi::IN_HEADER <= bytes.len());
        }
    }

    #[test]
    fn a_truncated_setattr_is_malformed(
        cut in 0_usize..64,
    ) {
        // The arguments of a setattr are all fixed: none may be missing.
        let whole = setattr(0xFFF).0;
        let left = whole.len().saturating_sub(4 + cut);
        let found = Operation::decode(Opcode::Setattr, &whole[..left.min(80)], InitFlags::empty());
        prop_assert_eq!(found, Err(Malformed));
    }
}
