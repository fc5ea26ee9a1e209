//! Conversions between the kernel and the volume: inode numbers, modes and attributes.

use crate::fuse::protocol::encode::Stat;
use crate::meta::Ino;
use crate::meta::record::FileKind;
use crate::vfs::Node;

/// The preferred I/O size for programs.
const BLOCK_SIZE: u32 = 64 << 10;

/// The kernel's inode number for its root.
const KERNEL_ROOT: Ino = Ino::ROOT;

/// Returns the inode that the kernel refers to by this number.
pub fn from_kernel(root: Ino, number: Ino) -> Ino {
    if number == KERNEL_ROOT { root } else { number }
}

/// Returns the kernel's number for an inode.
pub fn to_kernel(root: Ino, ino: Ino) -> Ino {
    if ino == root { KERNEL_ROOT } else { ino }
}

/// Converts attributes. `number` is the kernel's number for the node.
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

/// Returns the file type bits of a mode.
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

/// Returns the type in the upper bits of a mode; without any it is a file, as in mknod(2).
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

/// Returns the permission bits of a mode.
pub fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or_default()
}
