//! Attrs as stat(2) shows them.

use crate::fuse::answer::Stat;
use crate::meta::Ino;
use crate::meta::record::FileKind;
use crate::vfs::Node;

/// What programs are advised to read and write at once.
const BLOCK_SIZE: u32 = 64 << 10;

/// `number` is how the kernel knows the node.
pub fn stat(number: Ino, node: &Node) -> Stat {
    let attr = &node.attr;
    let size = match attr.kind {
        FileKind::File | FileKind::Dir | FileKind::Symlink => attr.length,
        _ => 0,
    };
    let rdev = match attr.kind {
        FileKind::BlockDevice | FileKind::CharDevice => attr.rdev,
        _ => 0,
    };
    Stat {
        ino: number.0,
        size,
        blocks: size.div_ceil(512),
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        mode: kind_bits(attr.kind) | u32::from(attr.mode),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev,
        block_size: BLOCK_SIZE,
    }
}

/// The type in the upper bits of a mode.
pub fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::Dir => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::File => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}

/// The type that the upper bits of a mode name; none of them means a file, as in mknod(2).
pub fn kind_of(mode: u32) -> Option<FileKind> {
    let kinds = [
        FileKind::Fifo,
        FileKind::CharDevice,
        FileKind::Dir,
        FileKind::BlockDevice,
        FileKind::File,
        FileKind::Symlink,
        FileKind::Socket,
    ];
    match mode & 0o170_000 {
        0 => Some(FileKind::File),
        bits => kinds.into_iter().find(|kind| kind_bits(*kind) == bits),
    }
}

/// The permission bits of a mode.
pub fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or_default()
}
