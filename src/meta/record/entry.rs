//! Entries: what a name in a directory points to.

use super::FileKind;
use crate::error::{Error, Result};
use crate::meta::Ino;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub kind: FileKind,
    pub ino: Ino,
}

impl Entry {
    pub const LEN: usize = 9;

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[0] = self.kind as u8;
        out[1..].copy_from_slice(&self.ino.0.to_be_bytes());
        out
    }

    pub fn decode(raw: &[u8]) -> Result<Self> {
        let (Some(kind), Some(Ok(ino))) = (raw.first(), raw.get(1..).map(<[u8; 8]>::try_from))
        else {
            return Err(Error::damaged(
                "entry",
                format!("{} bytes instead of {}", raw.len(), Self::LEN),
            ));
        };
        let kind = FileKind::from_u8(*kind)
            .ok_or_else(|| Error::damaged("entry", format!("unknown type {kind}")))?;
        Ok(Self { kind, ino: Ino(u64::from_be_bytes(ino)) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::hex;
    use super::*;

    #[test]
    fn stored_entries_decode_and_encode() {
        for (raw, kind, ino) in [
            ("02 0000000000000002", FileKind::Dir, Ino(2)),
            ("02 7fffffff10000001", FileKind::Dir, Ino(Ino::TRASH.0 + 1)),
            ("03 0000000000000005", FileKind::Symlink, Ino(5)),
            ("01 0000000000000003", FileKind::File, Ino(3)),
        ] {
            let entry = Entry { kind, ino };
            assert_eq!(Entry::decode(&hex(raw)).unwrap(), entry);
            assert_eq!(&entry.encode()[..], hex(raw));
        }
    }

    #[test]
    fn damaged_entries_are_errors() {
        for raw in [
            "",
            "01",
            "01 00000000000003",
            "01 000000000000000300",
            "00 0000000000000003",
            "08 0000000000000003",
        ] {
            assert!(Entry::decode(&hex(raw)).is_err(), "{raw}");
        }
    }

    proptest::proptest! {
        #[test]
        fn an_encoded_entry_decodes_to_the_same(kind in 1u8..8, ino: u64) {
            let entry = Entry { kind: FileKind::from_u8(kind).unwrap(), ino: Ino(ino) };
            assert_eq!(Entry::decode(&entry.encode()).unwrap(), entry);
        }
    }
}
