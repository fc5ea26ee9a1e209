//! The virtual files as nodes: names, numbers, attrs.

use nix::unistd::{getegid, geteuid};

use crate::meta::record::trash::TRASH_NAME;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Ino, Name, Timestamp};

/// The numbers of virtual files begin behind this one; those of the trash lie above.
const FIRST: u64 = 0x7FFF_FFFF_0000_0000;
/// What goes before every name if the mount asks for it.
const PREFIX: &str = ".jfs";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    AccessLog = 1,
    Control = 2,
    Stats = 3,
    Config = 4,
}

/// The nodes of one mount.
pub struct Nodes {
    prefix: &'static str,
    /// Every time of every node.
    since: Timestamp,
    uid: u32,
    gid: u32,
}

impl Node {
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

    /// The log and the setting are for the owner of the mount; asking is for everyone, and what is
    /// asked for is checked then.
    fn mode(self) -> u16 {
        match self {
            Self::AccessLog | Self::Config => 0o400,
            Self::Control => 0o666,
            Self::Stats => 0o444,
        }
    }
}

impl Nodes {
    /// They belong to whoever runs this process.
    pub fn new(prefix: bool) -> Self {
        Self {
            prefix: if prefix { PREFIX } else { "" },
            since: Timestamp::from_secs(Timestamp::now().sec),
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
        }
    }

    pub fn named(&self, name: &[u8]) -> Option<Node> {
        let name = name.strip_prefix(self.prefix.as_bytes())?;
        Node::ALL.into_iter().find(|node| node.name().as_bytes() == name)
    }

    pub fn name(&self, node: Node) -> Name {
        self.prefixed(node.name())
    }

    pub fn trash_name(&self) -> Name {
        self.prefixed(TRASH_NAME)
    }

    pub fn attr(&self, node: Node, length: u64) -> Attr {
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
        let nodes = Nodes::new(false);
        let all = Node::ALL.map(|node| (node.ino().0, nodes.attr(node, 0).mode));
        let expected = [
            (0x7FFF_FFFF_0000_0001, 0o400),
            (0x7FFF_FFFF_0000_0002, 0o666),
            (0x7FFF_FFFF_0000_0003, 0o444),
            (0x7FFF_FFFF_0000_0004, 0o400),
        ];
        assert_eq!(all, expected);
        assert_eq!(Node::numbered(Ino::TRASH), None);
        assert_eq!(Node::numbered(Ino(FIRST)), None);
    }

    #[test]
    fn a_prefix_goes_before_every_name() {
        let nodes = Nodes::new(true);
        assert_eq!(nodes.named(b".jfs.stats"), Some(Node::Stats));
        assert_eq!(nodes.named(b".stats"), None);
        assert_eq!(nodes.name(Node::Control).as_bytes(), b".jfs.control");
        assert_eq!(nodes.trash_name().as_bytes(), b".jfs.trash");
    }
}
