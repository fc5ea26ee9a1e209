//! How the kernel numbers nodes: as the volume does, but what is mounted is always 1 to it.

use crate::meta::Ino;

/// The number that the kernel gives its root.
const KERNEL_ROOT: Ino = Ino::ROOT;

/// The node that the kernel means.
pub fn from_kernel(root: Ino, number: Ino) -> Ino {
    if number == KERNEL_ROOT { root } else { number }
}

/// How the kernel knows a node.
pub fn to_kernel(root: Ino, ino: Ino) -> Ino {
    if ino == root { KERNEL_ROOT } else { ino }
}
