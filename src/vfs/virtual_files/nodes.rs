//! The virtual files as nodes: names, inode numbers, attrs.

use nix::unistd::{getegid, geteuid};

use crate::meta::record::trash::TRASH_NAME;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Ino, Name, Timestamp};

/// The inode numbers of virtual files follow this one; those of the trash are higher.
const FIRST: u64 = 0x7FFF_FFFF_0000_0000;
/// The prefix of every name if the mount asks for it.
const PREFIX: &str = ".jfs";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VirtualNode {
    AccessLog = 1,
    Control = 2,
    Stats = 3,
    Config = 4,
}

/// The nodes of one mount.
pub struct VirtualNodes {
    prefix: &'static str,
    /// All times of all nodes.
    since: Timestamp,
    uid: u32,
    gid: u32,
}

impl VirtualNode {
    const ALL: [Self; 4] = [Self::AccessLog, Self::Control, Self::Stats, Self::Config];

    pub fn ino(self) -> Ino {
        Ino(FIRST + self as u64)
    }

    pub fn numbered(ino: Ino) -> Option<Self> {
        Self::ALL.into_iter().find(|node| node.ino() == ino)
    }

    fn name(self) -> &'static str {
        match self {
            Self::AccessLog => ".accesslog",
            Self::Control => ".control",
            Self::Stats => ".stats",
            Self::Config => ".config",
        }
    }

    /// The log and the configuration are for the owner of the mount. Anybody may write to
    /// `.control`, since each request is checked.
    fn mode(self) -> u16 {
        match self {
            Self::AccessLog | Self::Config => 0o400,
            Self::Control => 0o666,
            Self::Stats => 0o444,
        }
    }
}

impl VirtualNodes {
    /// The nodes belong to the user that runs this process.
    pub fn new(prefix: bool) -> Self {
        Self {
            prefix: if prefix { PREFIX } else { "" },
            since: Timestamp::from_secs(Timestamp::now().sec),
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
        }
    }

    pub fn named(&self, name: &[u8]) -> Option<VirtualNode> {
        let name = name.strip_prefix(self.prefix.as_bytes())?;
        VirtualNode::ALL.into_iter().find(|node| node.name().as_bytes() == name)
    }

    pub fn name(&self, node: VirtualNode) -> Name {
        self.prefixed(node.name())
    }

    pub fn trash_name(&self) -> Name {
        self.prefixed(TRASH_NAME)
    }

    pub fn attr(&self, node: VirtualNode, length: u64) -> Attr {
        let attr =
            Attr::new(FileKind::File, node.mode(), self.uid, self.gid, Ino::ROOT, self.since);
        Attr { length, ..attr }
    }

    fn prefixed(&self, name: &str) -> Name {
        Name::unchecked(format!("{}{name}", self.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_modes_are_those_of_juicefs() {
        let nodes = VirtualNodes::new(false);
        let all = VirtualNode::ALL.map(|node| (node.ino().0, nodes.attr(node, 0).mode));
        let expected = [
            (0x7FFF_FFFF_0000_0001, 0o400),
            (0x7FFF_FFFF_0000_0002, 0o666),
            (0x7FFF_FFFF_0000_0003, 0o444),
            (0x7FFF_FFFF_0000_0004, 0o400),
        ];
        assert_eq!(all, expected);
        assert_eq!(VirtualNode::numbered(Ino::TRASH), None);
        assert_eq!(VirtualNode::numbered(Ino(FIRST)), None);
    }

    #[test]
    fn a_prefix_is_part_of_every_name() {
        let nodes = VirtualNodes::new(true);
        assert_eq!(nodes.named(b".jfs.stats"), Some(VirtualNode::Stats));
        assert_eq!(nodes.named(b".stats"), None);
        assert_eq!(nodes.name(VirtualNode::Control).as_bytes(), b".jfs.control");
        assert_eq!(nodes.trash_name().as_bytes(), b".jfs.trash");
    }
}
