//! Formats nodes and names for the access log.

use std::fmt::Write;

use super::convert::kind_bits;
use crate::meta::record::{Attr, FileKind};
use crate::vfs::Node;

pub fn name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub fn node(node: &Node) -> String {
    format!("({},{})", node.ino, attr(&node.attr))
}

pub fn attr(attr: &Attr) -> String {
    let mode = kind_bits(attr.kind) | u32::from(attr.mode);
    format!(
        "[{}:0{mode:06o},{},{},{},{},{},{},{}]",
        letters(attr),
        attr.nlink,
        attr.uid,
        attr.gid,
        attr.atime.sec,
        attr.mtime.sec,
        attr.ctime.sec,
        attr.length
    )
}

/// Formats a mode as ls(1) does.
pub fn mode(mode: u32) -> String {
    format!("{}:0{mode:o}", rwx(permissions(mode)))
}

fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or_default()
}

fn letters(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileKind::File => '-',
        FileKind::Dir => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::BlockDevice => 'b',
        FileKind::CharDevice => 'c',
        FileKind::Socket => 's',
    };
    format!("{kind}{}", rwx(attr.mode))
}

fn rwx(mode: u16) -> String {
    let mut text = String::with_capacity(9);
    for (class, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> class;
        let last = match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        };
        let one = |bit, letter| if bits & bit != 0 { letter } else { '-' };
        // Writing to a string does not fail.
        let _ = write!(text, "{}{}{last}", one(4, 'r'), one(2, 'w'));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{Ino, Timestamp};

    #[test]
    fn nodes_have_the_format_of_juicefs() {
        let now = Timestamp::from_secs(1_794_789_108);
        let dir = Attr::new(FileKind::Dir, 0o755, 0, 5, Ino::ROOT, now);
        let shown = node(&Node { ino: Ino(2), attr: dir });
        let times = "1794789108,1794789108,1794789108";
        assert_eq!(shown, format!("(2,[drwxr-xr-x:0040755,2,0,5,{times},4096])"));
    }

    #[test]
    fn special_bits_replace_the_x() {
        assert_eq!(rwx(0o4755), "rwsr-xr-x");
        assert_eq!(rwx(0o2640), "rw-r-S---");
        assert_eq!(rwx(0o1777), "rwxrwxrwt");
    }
}
